"""The thread that renders the exporter's pages, and the handling of this thread's failures."""

import select
import socket
import threading
from collections.abc import Iterator

import pytest

from rota_supervisor.exporter.http_connection import HttpClient, HttpRequest, HttpResponse, text_response
from rota_supervisor.exporter.http_server import PendingPage, Renderer

DEADLINE_SECONDS = 30.0
REQUEST = HttpRequest("GET", "/", "", {})


@pytest.fixture
def client() -> Iterator[HttpClient]:
    ours, theirs = socket.socketpair()
    with theirs:
        made = HttpClient(ours, 0.0)
        yield made
        made.close()


def wait_for(renderer: Renderer) -> list[tuple[PendingPage, HttpResponse]]:
    assert select.select([renderer.fd], [], [], DEADLINE_SECONDS)[0]
    return list(renderer.made())


def test_the_renderer_does_other_work_between_pages(client: HttpClient) -> None:
    done: list[str] = []

    def make(request: HttpRequest) -> HttpResponse:
        done.append(request.path)
        return text_response(request.path)

    renderer = Renderer(make, lambda: done.append("between"))
    page = PendingPage(REQUEST, [client])
    renderer.submit(page)
    assert wait_for(renderer) == [(page, text_response("/"))]
    assert done[:2] == ["between", "/"]
    assert list(renderer.made()) == []


def test_the_exporter_renders_scrapes_and_other_pages_alternately(client: HttpClient) -> None:
    made: list[str] = []
    may_begin = threading.Event()

    def make(request: HttpRequest) -> HttpResponse:
        may_begin.wait(DEADLINE_SECONDS)
        made.append(request.path)
        return text_response("")

    renderer = Renderer(make, lambda: None)
    pages = [PendingPage(HttpRequest("GET", "/page", "", {}), [client]) for _ in range(6)]
    pages += [PendingPage(HttpRequest("GET", "/metrics", "", {}), [client], "plain") for _ in range(2)]
    for page in pages:
        renderer.submit(page)
    may_begin.set()
    got = 0
    while got < len(pages):
        got += len(wait_for(renderer))
    assert "/metrics" in made[:3]
    assert made[:5].count("/metrics") == 2


def test_a_failure_of_work_between_pages_is_raised_to_the_caller() -> None:
    def fail() -> None:
        raise LookupError("no slot")

    with pytest.raises(LookupError, match="no slot"):
        wait_for(Renderer(lambda _: text_response("ok\n"), fail))
