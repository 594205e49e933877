"""Serves HTTP over the listening socket that the master bound and every exporter inherits.

1. One loop talks to all clients and waits for none of them: who is slow takes nobody's place.
2. What can be answered at once, as health can, is. The rest is made by the renderer, in a thread of its own.
   Scrapes are never refused: of each format one is made at a time, for all who ask for it meanwhile.
3. Who takes too long is hung up on; when too many are there, who has been there for longest.
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
from rota_supervisor.exporter.http_connection import Answer, ClientTurn, HttpClient, HttpRequest, text_answer

MAX_CLIENTS: Final = 256
MAX_PAGES: Final = 16  # being made or sent: each is up to some megabytes
BETWEEN_SECONDS: Final = 1.0
_ACCEPTS_A_TURN: Final = 64
_EVENTS: Final = {
    ClientTurn.ASKING: select.EPOLLIN,
    ClientTurn.WAITING: 0,
    ClientTurn.TAKING: select.EPOLLOUT,
    ClientTurn.LEAVING: select.EPOLLIN,
}
# Errors of TLS, by name as ssl is imported only with TLS, and the event that each waits for.
_TLS_WANTS: Final = {"SSLWantReadError": select.EPOLLIN, "SSLWantWriteError": select.EPOLLOUT}
# A client that is WAITING for its answer is not dropped: the delay is ours.
_DROPPED_FIRST: Final = (ClientTurn.LEAVING, ClientTurn.ASKING, ClientTurn.TAKING)
_BUSY: Final = text_answer(
    "too many ask at once; ask again\n", ("Retry-After", "1"), status=HTTPStatus.SERVICE_UNAVAILABLE
)


@dataclass(eq=False, slots=True)
class PageOrder:
    """A page that is to be made, and who gets it. `scrape_kind`: "" but for a scrape, whose answer all share who ask
    before it is begun."""

    request: HttpRequest
    clients: list[HttpClient]
    scrape_kind: str = ""
    has_begun: bool = False


class Renderer:
    """Makes the answers that take long (a scrape takes 100 ms, and 500 more while Redis is silent), one after the
    other: scrapes and other pages by turns, so that neither waits for many of the other. Calls `make` for each request,
    and `between` before each and every second or so, always in its thread."""

    def __init__(self, make: Callable[[HttpRequest], Answer], between: Callable[[], object]) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # readable when an answer is there
        self._make = make
        self._between = between
        self._orders: queue.SimpleQueue[None] = queue.SimpleQueue()  # one thing for each order in these two
        self._scrapes: deque[PageOrder] = deque()
        self._pages: deque[PageOrder] = deque()
        self._made: deque[tuple[PageOrder, Answer]] = deque()
        self._failure: BaseException | None = None
        threading.Thread(target=self._run, name="renderer", daemon=True).start()

    def ask(self, order: PageOrder) -> None:
        (self._scrapes if order.scrape_kind else self._pages).append(order)
        self._orders.put(None)

    def made(self) -> Iterator[tuple[PageOrder, Answer]]:
        """Yield the answers made since the last call. Raises what ended the thread, which only a bug of ours can."""
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
        except BaseException as failure:  # noqa: BLE001 - raised in the loop of the process, which it ends
            self._failure = failure
            os.eventfd_write(self.fd, 1)

    def _serve(self, turns: Iterator[tuple[deque[PageOrder], deque[PageOrder]]]) -> None:
        self._between()
        with suppress(queue.Empty):
            self._orders.get(timeout=BETWEEN_SECONDS)
            first, second = next(turns)
            order = (first or second).popleft()
            order.has_begun = True
            self._made.append((order, self._make(order.request)))
            os.eventfd_write(self.fd, 1)


class Server:
    """Serves `site` on `listener`, and watches `others`, descriptors that mean something to its caller. `wrap` puts TLS
    on a connection, or does not."""

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
        self._scrapes: dict[str, PageOrder] = {}  # the last of each kind
        self._clients: dict[int, HttpClient] = {}  # by descriptor, in the order in which they came
        # No more than a quarter of the descriptors: to look at a process takes some too.
        self._room = min(MAX_CLIENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        self._epoll = select.epoll()
        for fd in (listener.fileno(), self._renderer.fd, *self._others):
            self._epoll.register(fd, select.EPOLLIN)

    @property
    def is_busy(self) -> bool:
        return bool(self._clients)

    def stop_listening(self) -> None:
        """Leave clients who come now to the next exporter."""
        self._epoll.unregister(self._listener)

    def turn(self, seconds: float) -> set[int]:
        """Serve whoever is ready, or will be within this time; return which `others` are readable."""
        soonest = min((client.until for client in self._clients.values()), default=math.inf)
        ready = dict(self._epoll.poll(max(0.0, min(seconds, soonest - time.monotonic()))))
        now = time.monotonic()
        for client in [self._clients[fd] for fd in ready.keys() & self._clients.keys()]:
            self._move(client, now)
        if self._renderer.fd in ready:
            for order, answer in self._renderer.made():
                self._give(order, answer, now)
        self._drop(*(client for client in self._clients.values() if client.until <= now))
        if self._listener.fileno() in ready:
            self._accept(now)
        return self._others & ready.keys()

    def _give(self, order: PageOrder, answer: Answer, now: float) -> None:
        for client in order.clients:
            self._move(client, now, answer)
        if order.scrape_kind and self._pages_held() > MAX_PAGES:  # it was not refused; who is slow makes room for it
            self._drop_oldest((ClientTurn.TAKING,))

    def _accept(self, now: float) -> None:
        for _ in range(_ACCEPTS_A_TURN):
            try:
                client = HttpClient(self._wrap(self._listener.accept()[0]), now)
            except OSError:  # nobody is there, or has left again
                return
            self._clients[client.fileno()] = client
            self._epoll.register(client, client.watched)
            self._move(client, now)
            if len(self._clients) > self._room:
                self._drop_oldest(_DROPPED_FIRST)

    def _move(self, client: HttpClient, now: float, made: Answer | None = None) -> None:
        """Go on with the client, if it is still there: with its answer, once that is made."""
        if client.turn is ClientTurn.GONE:
            return
        wanted = None
        try:
            self._go_on(client, now) if made is None else client.answer(made, now)
        except BlockingIOError:  # it is not ready; it will be
            pass
        except OSError as error:
            wanted = _TLS_WANTS.get(type(error).__name__)
            if wanted is None:  # it has left
                self._drop(client)
                return
        self._watch(client, _EVENTS[client.turn] if wanted is None else wanted)

    def _watch(self, client: HttpClient, wanted: int) -> None:
        if client.watched != wanted:  # each call of the kernel waits for the renderer
            self._epoll.modify(client, wanted)
            client.watched = wanted

    def _go_on(self, client: HttpClient, now: float) -> None:
        match client.turn:
            case ClientTurn.ASKING:
                self._hear(client, now)
            case ClientTurn.TAKING:
                client.send(now)
            case ClientTurn.LEAVING:
                client.receive()
            case _:  # nothing else is reported of who waits
                raise ConnectionResetError

    def _hear(self, client: HttpClient, now: float) -> None:
        heard = client.hear()
        if isinstance(heard, HttpRequest):
            heard = self._answer_now(client, heard)
        if heard is not None:
            client.answer(heard, now)

    def _answer_now(self, client: HttpClient, request: HttpRequest) -> Answer | None:
        """Return the answer that can be given at once; None when the renderer is to make it."""
        answer = self._site.at_once(request)
        if answer is not None:
            return answer
        kind = self._site.scrape_kind(request)
        if not kind and not self._has_room_for_a_page():
            return _BUSY
        client.wait(is_scraping=bool(kind))
        known = self._scrapes.get(kind)
        if kind and known is not None and not known.has_begun:
            known.clients.append(client)
            return None
        order = PageOrder(request, [client], kind)
        if kind:
            self._scrapes[kind] = order
        self._renderer.ask(order)
        return None

    def _has_room_for_a_page(self) -> bool:
        return self._pages_held() < min(MAX_PAGES, self._room // 2) or self._drop_oldest((ClientTurn.TAKING,))

    def _pages_held(self) -> int:
        """Return how many pages are waited for or held: what is sent to many is one."""
        waiting = sum(client.turn is ClientTurn.WAITING and not client.is_scraping for client in self._clients.values())
        return waiting + len({id(client.body) for client in self._clients.values() if client.turn is ClientTurn.TAKING})

    def _drop_oldest(self, turns: Iterable[ClientTurn]) -> bool:
        """Hang up on who has been there for longest, of the first of these turns that anybody is at."""
        for turn in turns:
            for client in self._clients.values():
                if client.turn is turn:
                    self._drop(client)
                    return True
        return False

    def _drop(self, *clients: HttpClient) -> None:
        for client in clients:
            del self._clients[client.fileno()]
            client.close()
