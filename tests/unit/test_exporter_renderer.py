"""The thread that makes pages, and what becomes of failures."""

import select
import socket
import threading
from collections.abc import Iterator

import pytest

from rota_supervisor.exporter.http_connection import Answer, HttpClient, HttpRequest, text_answer
from rota_supervisor.exporter.http_server import PageOrder, Renderer

DEADLINE_SECONDS = 30.0
REQUEST = HttpRequest("GET", "/", "", {})


@pytest.fixture
def client() -> Iterator[HttpClient]:
    ours, theirs = socket.socketpair()
    with theirs:
        made = HttpClient(ours, 0.0)
        yield made
        made.close()


def wait_for(renderer: Renderer) -> list[tuple[PageOrder, Answer]]:
    assert select.select([renderer.fd], [], [], DEADLINE_SECONDS)[0]
    return list(renderer.made())


def test_pages_are_made_in_turn_and_what_is_to_be_done_between_them_is(client: HttpClient) -> None:
    done: list[str] = []

    def make(request: HttpRequest) -> Answer:
        done.append(request.path)
        return text_answer(request.path)

    renderer = Renderer(make, lambda: done.append("between"))
    order = PageOrder(REQUEST, [client])
    renderer.ask(order)
    assert wait_for(renderer) == [(order, text_answer("/"))]
    assert done[:2] == ["between", "/"]
    assert list(renderer.made()) == []


def test_scrapes_and_other_pages_are_made_by_turns(client: HttpClient) -> None:
    made: list[str] = []
    may_begin = threading.Event()

    def make(request: HttpRequest) -> Answer:
        may_begin.wait(DEADLINE_SECONDS)
        made.append(request.path)
        return text_answer("")

    renderer = Renderer(make, lambda: None)
    orders = [PageOrder(HttpRequest("GET", "/page", "", {}), [client]) for _ in range(6)]
    orders += [PageOrder(HttpRequest("GET", "/metrics", "", {}), [client], "plain") for _ in range(2)]
    for order in orders:
        renderer.ask(order)
    may_begin.set()
    got = 0
    while got < len(orders):
        got += len(wait_for(renderer))
    assert "/metrics" in made[:3]
    assert made[:5].count("/metrics") == 2


def test_a_failure_between_pages_is_raised_where_the_process_ends_of_it() -> None:
    def fail() -> None:
        raise LookupError("no slot")

    with pytest.raises(LookupError, match="no slot"):
        wait_for(Renderer(lambda _: text_answer("ok\n"), fail))
