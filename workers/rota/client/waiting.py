"""Waiting for tasks, in any thread of an application.

Whoever waits leaves a `Wait` with the client's waiting thread and sleeps on it. So no thread that waits calls the
server, and each can be interrupted at any time: by a time limit, by a cancellation, by Ctrl-C.
"""

import os
from threading import Lock
from typing import Final

from rota.client.open_waits import Question, Wait, WaitAnswer
from rota.client.wait_rounds import given_up, limit_of, too_late
from rota.client.waiting_thread import Access, WaitingThread
from rota.durations import Duration
from rota.soft_limit import time_limit_deferred

_CLOSE_SECONDS: Final = 1.0  # that `close` waits for the thread, which may be connecting
_FOREVER: Final = -1.0


class Waiting:
    """The waits of one client in one process; a forked child needs one of its own."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = Lock()
        self._thread: WaitingThread | None = None
        self.pid = os.getpid()

    def wait(self, question: Question, timeout: Duration | None) -> WaitAnswer:
        """Wait until what is asked about has come. Raises WaitTimeout, or Unavailable when the client is closed or
        the server does not let it ask."""
        limit = limit_of(timeout)
        wait = Wait(question)
        with time_limit_deferred:
            thread = self._leave(wait)
        if not wait.sleep(_FOREVER if limit is None else limit):
            raise too_late(question, limit or 0.0, thread.trouble)
        if wait.found is None:
            raise given_up(question, wait.why)
        return wait.found

    def close(self) -> None:
        """End all waits. May be repeated; the next wait begins anew."""
        thread, self._thread = self._thread, None
        if thread is not None and self.pid == os.getpid():
            thread.stop()
            thread.join(_CLOSE_SECONDS)

    def _leave(self, wait: Wait) -> WaitingThread:
        with self._lock:
            if self._thread is None or not self._thread.take(wait):
                thread = WaitingThread(self._access, wait)
                thread.start()
                self._thread = thread
            return self._thread
