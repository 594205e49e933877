"""Makes the answers that take long (a scrape takes 100 ms, and 500 more while Redis is silent), one after the other, in
a thread of its own: nobody else waits for them."""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from rota_supervisor.exporter.client import HttpClient
from rota_supervisor.exporter.exchange import Answer, HttpRequest

BETWEEN_SECONDS: Final = 1.0


class Renderer:
    """Calls `make` for each request, and `between` before each and every second or so, always in its thread."""

    def __init__(self, make: Callable[[HttpRequest], Answer], between: Callable[[], None]) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # readable when an answer is there
        self._make = make
        self._between = between
        self._asked: queue.SimpleQueue[tuple[HttpClient, HttpRequest]] = queue.SimpleQueue()
        self._made: deque[tuple[HttpClient, Answer]] = deque()
        self._failure: BaseException | None = None
        threading.Thread(target=self._run, name="renderer", daemon=True).start()

    def ask(self, client: HttpClient, request: HttpRequest) -> None:
        """Have an answer made."""
        self._asked.put((client, request))

    def made(self) -> Iterator[tuple[HttpClient, Answer]]:
        """The answers made since the last call. Raises what has ended the thread, which only a mistake of ours can."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        while self._made:
            yield self._made.popleft()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while True:
                self._serve()
        except BaseException as failure:  # noqa: BLE001 - raised in the loop of the process, which it ends
            self._failure = failure
            os.eventfd_write(self.fd, 1)

    def _serve(self) -> None:
        self._between()
        with suppress(queue.Empty):
            client, request = self._asked.get(timeout=BETWEEN_SECONDS)
            self._made.append((client, self._make(request)))
            os.eventfd_write(self.fd, 1)
