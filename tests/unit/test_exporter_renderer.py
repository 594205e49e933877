"""The thread that makes pages, and what becomes of failures."""

import select
import socket
from collections.abc import Iterator

import pytest

from rota_supervisor.exporter.client import Answer, HttpClient, HttpRequest, text_answer
from rota_supervisor.exporter.server import Renderer

DEADLINE_SECONDS = 30.0
REQUEST = HttpRequest("GET", "/", "", {})


@pytest.fixture
def client() -> Iterator[HttpClient]:
    ours, theirs = socket.socketpair()
    with theirs:
        made = HttpClient(ours, 0.0)
        yield made
        made.close()


def wait_for(renderer: Renderer) -> list[tuple[HttpClient, Answer]]:
    assert select.select([renderer.fd], [], [], DEADLINE_SECONDS)[0]
    return list(renderer.made())


def test_pages_are_made_in_turn_and_what_is_to_be_done_between_them_is(client: HttpClient) -> None:
    done: list[str] = []

    def make(request: HttpRequest) -> Answer:
        done.append(request.path)
        return text_answer(request.path)

    renderer = Renderer(make, lambda: done.append("between"))
    renderer.ask(client, REQUEST)
    assert wait_for(renderer) == [(client, text_answer("/"))]
    assert done[:2] == ["between", "/"]
    assert list(renderer.made()) == []


def test_a_failure_between_pages_is_raised_where_the_process_ends_of_it() -> None:
    def fail() -> None:
        raise LookupError("no slot")

    with pytest.raises(LookupError, match="no slot"):
        wait_for(Renderer(lambda _: text_answer("ok\n"), fail))
