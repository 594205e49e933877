"""The HTTP server, on the listening socket that the master bound and that every exporter inherits.

1. One loop serves all clients and never blocks on one of them, so a slow client does not delay the others.
2. Immediate responses, such as health, are sent at once. The renderer makes the other responses in a separate thread.
   Scrapes are never refused. If several clients request a scrape in the same format before the renderer has begun it,
   they share one response.
3. A client that takes too long is disconnected. If there are too many clients, the oldest client is disconnected.
"""

import math
import os
import queue
import resource
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from itertools import cycle
from typing import Final

from rota_supervisor.exporter.endpoints import Site
from rota_supervisor.exporter.http_connection import ClientPhase, HttpClient, HttpRequest, HttpResponse, text_response

MAX_CLIENTS: Final = 256
MAX_PAGES: Final = 16  # the maximum number of pages that are being made or sent; a page can take several megabytes
BETWEEN_SECONDS: Final = 1.0
_MAX_ACCEPTED: Final = 64
_EVENTS: Final = {
    ClientPhase.REQUESTING: select.EPOLLIN,
    ClientPhase.WAITING: 0,
    ClientPhase.RESPONDING: select.EPOLLOUT,
    ClientPhase.CLOSING: select.EPOLLIN,
}
# The epoll event to wait for after each TLS error. The errors are identified by name, because ssl is imported only if
# TLS is used.
_TLS_WANTS: Final = {"SSLWantReadError": select.EPOLLIN, "SSLWantWriteError": select.EPOLLOUT}
# The order in which clients are dropped if there are too many. A client that is WAITING for its response is never
# dropped, because this server causes the delay.
_DROPPED_FIRST: Final = (ClientPhase.CLOSING, ClientPhase.REQUESTING, ClientPhase.RESPONDING)
_BUSY: Final = text_response(
    "too many requests at once; try again\n", ("Retry-After", "1"), status=HTTPStatus.SERVICE_UNAVAILABLE
)


@dataclass(eq=False, slots=True)
class PendingPage:
    """A requested page, and the clients that wait for it."""

    request: HttpRequest
    clients: list[HttpClient]
    # Identifies the format of a scrape; "" for other pages. All clients that request the same format before the
    # renderer begins the scrape share the response.
    scrape_kind: str = ""
    is_started: bool = False


class Renderer:
    """The thread that makes the slow responses, one after the other.

    A scrape takes about 100 ms, and 500 ms more while Redis does not reply. Scrapes and other pages alternate, so that
    neither kind has to wait for many of the other kind. The thread calls `make` for each request. It calls `between`
    before each request and about every second.
    """

    def __init__(self, make: Callable[[HttpRequest], HttpResponse], between: Callable[[], object]) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # readable when a response is ready
        self._make = make
        self._between = between
        self._submitted: queue.SimpleQueue[None] = queue.SimpleQueue()  # one item per page in the next two fields
        self._scrapes: deque[PendingPage] = deque()
        self._pages: deque[PendingPage] = deque()
        self._made: deque[tuple[PendingPage, HttpResponse]] = deque()
        self._failure: BaseException | None = None
        threading.Thread(target=self._run, name="renderer", daemon=True).start()

    def submit(self, page: PendingPage) -> None:
        (self._scrapes if page.scrape_kind else self._pages).append(page)
        self._submitted.put(None)

    def made(self) -> Iterator[tuple[PendingPage, HttpResponse]]:
        """Yield the responses made since the last call. Raises the exception that ended the thread, if a bug ended
        it.
        """
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        while self._made:
            yield self._made.popleft()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        turns = cycle([(self._scrapes, self._pages), (self._pages, self._scrapes)])
        try:
            while True:
                self._serve(turns)
        except BaseException as failure:  # noqa: BLE001 - it is raised in the main loop, and ends the process
            self._failure = failure
            os.eventfd_write(self.fd, 1)

    def _serve(self, turns: Iterator[tuple[deque[PendingPage], deque[PendingPage]]]) -> None:
        self._between()
        with suppress(queue.Empty):
            self._submitted.get(timeout=BETWEEN_SECONDS)
            first, second = next(turns)
            page = (first or second).popleft()
            page.is_started = True
            self._made.append((page, self._make(page.request)))
            os.eventfd_write(self.fd, 1)


class Server:
    """The server that serves `site` on `listener`. While it waits for clients, it also waits for the descriptors in
    `others`, which the caller handles.

    `wrap` adds TLS to a connection if there is a certificate.
    """

    def __init__(
        self,
        listener: socket.socket,
        site: Site,
        others: Iterable[int],
        wrap: Callable[[socket.socket], socket.socket] = lambda plain: plain,
    ) -> None:
        listener.setblocking(False)
        self._wrap = wrap
        self._listener = listener
        self._site = site
        self._others = set(others)
        self._renderer = Renderer(site.page, site.between)
        self._scrapes: dict[str, PendingPage] = {}  # the last scrape of each format
        self._clients: dict[int, HttpClient] = {}  # by file descriptor, in order of arrival
        # Clients get at most a quarter of the descriptors, because the exporter needs descriptors to inspect processes
        # too.
        self._room = min(MAX_CLIENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        self._epoll = select.epoll()
        for fd in (listener.fileno(), self._renderer.fd, *self._others):
            self._epoll.register(fd, select.EPOLLIN)

    @property
    def is_busy(self) -> bool:
        return bool(self._clients)

    def stop_listening(self) -> None:
        """Stop accepting clients. New clients wait for the next exporter, which inherits the same socket."""
        self._epoll.unregister(self._listener)

    def serve_ready(self, seconds: float) -> set[int]:
        """Wait for at most `seconds`, and serve the clients that are ready. Returns the descriptors of `others` that
        are readable."""
        soonest = min((client.until for client in self._clients.values()), default=math.inf)
        ready = dict(self._epoll.poll(max(0.0, min(seconds, soonest - time.monotonic()))))
        now = time.monotonic()
        for client in [self._clients[fd] for fd in ready.keys() & self._clients.keys()]:
            self._move(client, now)
        if self._renderer.fd in ready:
            for page, response in self._renderer.made():
                self._give(page, response, now)
        self._drop(*(client for client in self._clients.values() if client.until <= now))
        if self._listener.fileno() in ready:
            self._accept(now)
        return self._others & ready.keys()

    def _give(self, page: PendingPage, response: HttpResponse, now: float) -> None:
        for client in page.clients:
            self._move(client, now, response)
        if page.scrape_kind and self._open_pages() > MAX_PAGES:  # Drop a client, because scrapes are never refused.
            self._drop_oldest((ClientPhase.RESPONDING,))

    def _accept(self, now: float) -> None:
        for _ in range(_MAX_ACCEPTED):
            try:
                client = HttpClient(self._wrap(self._listener.accept()[0]), now)
            except OSError:  # There is no further client, or it has disconnected.
                return
            self._clients[client.fileno()] = client
            self._epoll.register(client, client.watched)
            self._move(client, now)
            if len(self._clients) > self._room:
                self._drop_oldest(_DROPPED_FIRST)

    def _move(self, client: HttpClient, now: float, made: HttpResponse | None = None) -> None:
        """Serve a client, unless its connection is closed. If its response has been made (`made`), begin to send it.
        Otherwise, continue to receive the request or to send the response.
        """
        if client.phase is ClientPhase.CLOSED:
            return
        wanted = None
        try:
            self._go_on(client, now) if made is None else client.respond(made, now)
        except BlockingIOError:  # The socket is not ready yet.
            pass
        except OSError as error:
            wanted = _TLS_WANTS.get(type(error).__name__)
            if wanted is None:  # The client has disconnected.
                self._drop(client)
                return
        self._watch(client, _EVENTS[client.phase] if wanted is None else wanted)

    def _watch(self, client: HttpClient, wanted: int) -> None:
        if client.watched != wanted:  # Skip needless system calls, each of which may wait for the GIL.
            self._epoll.modify(client, wanted)
            client.watched = wanted

    def _go_on(self, client: HttpClient, now: float) -> None:
        match client.phase:
            case ClientPhase.REQUESTING:
                self._receive(client, now)
            case ClientPhase.RESPONDING:
                client.send(now)
            case ClientPhase.CLOSING:
                client.receive()
            case _:  # A waiting client is watched only for the end of its connection.
                raise ConnectionResetError

    def _receive(self, client: HttpClient, now: float) -> None:
        received = client.receive_request()
        if isinstance(received, HttpRequest):
            received = self._immediate_response(client, received)
        if received is not None:
            client.respond(received, now)

    def _immediate_response(self, client: HttpClient, request: HttpRequest) -> HttpResponse | None:
        """Return the response if it can be sent at once, or a refusal if there are too many requests. Otherwise, let
        the renderer make the response, and return None.
        """
        response = self._site.immediate_response(request)
        if response is not None:
            return response
        kind = self._site.scrape_kind(request)
        if not kind and not self._has_room_for_a_page():
            return _BUSY
        client.wait(is_scraping=bool(kind))
        known = self._scrapes.get(kind)
        if kind and known is not None and not known.is_started:
            known.clients.append(client)
            return None
        page = PendingPage(request, [client], kind)
        if kind:
            self._scrapes[kind] = page
        self._renderer.submit(page)
        return None

    def _has_room_for_a_page(self) -> bool:
        return self._open_pages() < min(MAX_PAGES, self._room // 2) or self._drop_oldest((ClientPhase.RESPONDING,))

    def _open_pages(self) -> int:
        """Return the number of pages that are being made or sent. A body that is being sent to many clients counts
        once. Scrapes that are being made do not count.
        """
        waiting = sum(
            client.phase is ClientPhase.WAITING and not client.is_scraping for client in self._clients.values()
        )
        return waiting + len(
            {id(client.body) for client in self._clients.values() if client.phase is ClientPhase.RESPONDING}
        )

    def _drop_oldest(self, phases: Iterable[ClientPhase]) -> bool:
        """Find the first of these phases that has clients, and disconnect its oldest client. Returns whether a client
        was disconnected.
        """
        for phase in phases:
            for client in self._clients.values():
                if client.phase is phase:
                    self._drop(client)
                    return True
        return False

    def _drop(self, *clients: HttpClient) -> None:
        for client in clients:
            del self._clients[client.fileno()]
            client.close()
