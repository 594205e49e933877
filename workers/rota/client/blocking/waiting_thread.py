"""The background thread that serves all waits of a client. It needs only one blocking connection, no matter how many
threads of the application wait.

1. The thread calls the script `wait` for all new waits. A wait whose event has already happened ends at once. For each
   other wait, the server records that this client waits.
2. The thread sleeps in BLPOP at the client's reply list. A message on this list is only a wake-up call: the thread then
   calls the script again, so that only one script reads results.
3. After an error, and every QUERY_ALL_SECONDS, the thread calls the script for all open waits, and the server records
   these waits again. So a wait survives a lost connection, a failover, and a server that lost its last second of
   writes.

A thread of the application hands its `Wait` to this thread and sleeps until the wait ends. Threads that wait do not
call the server, so a time limit, a cancellation or Ctrl-C can interrupt them at any time.
"""

import os
import time
from collections.abc import Mapping
from threading import Lock, Thread
from typing import Final

from rota.client.command_replies import Denied, Exchange
from rota.client.timed_connections import ClientPool, ReplyList, Wakeup
from rota.client.waits import (
    CLOSED,
    Wait,
    WaitQuery,
    WaitResult,
    WaitResults,
    WaitRounds,
    limit_of,
    results_in,
)
from rota.durations import Duration
from rota.errors import Unavailable
from rota.protocol.store import Store
from rota.soft_limit import time_limit_deferred

_FAILED: Final = "the client's waiting thread failed (its traceback is on standard error)"


class _Mail:
    """A queue of new waits for the thread. The item None makes the thread end. Adding an item wakes the thread."""

    def __init__(self, first: Wait) -> None:
        self._lock = Lock()
        self._left: list[Wait | None] = [first]
        self._is_closed = False
        self._wakeup = Wakeup()

    def leave(self, wait: Wait | None) -> bool:
        """Add a wait. Return False if the thread has ended and accepts no more waits."""
        with self._lock:
            if self._is_closed:
                return False
            self._left.append(wait)
            self._wakeup.ring()
        return True

    def take(self) -> list[Wait | None]:
        """Return the waits that were added since the last call."""
        with self._lock:
            taken = self._left
            self._left = []
        return taken

    def close_if_empty(self) -> bool:
        """If there is no new wait to take, accept no more waits, and return True: the thread may end. Otherwise return
        False."""
        with self._lock:
            self._is_closed = not self._left
        return self._is_closed

    def close(self) -> list[Wait | None]:
        """Accept no more waits, and return those that have not been taken yet."""
        with self._lock:
            self._is_closed = True
            self._wakeup.close()
        return self.take()

    def sleep(self, seconds: float, replies: ReplyList) -> None:
        """Sleep until a wait is added, the reply list has a message, or the time has expired."""
        self._wakeup.wait(seconds, replies.fileno())


class WaitingThread(Thread):
    """The waiting thread. It runs from the first wait until there has been no wait for LINGER_SECONDS, or until it is
    stopped."""

    def __init__(self, pool: ClientPool, store: Store, first: Wait) -> None:
        super().__init__(name="rota-waiting", daemon=True)
        self._mail = _Mail(first)
        self._pool = pool
        self._rounds = WaitRounds(store)
        self._replies = ReplyList(pool.endpoint, pool.timeout_seconds, self._rounds.key)

    @property
    def trouble(self) -> str:
        """The reason why the server does not respond, or "" if it does."""
        return self._rounds.trouble

    def take(self, wait: Wait) -> bool:
        """Accept a wait. Return False if the thread has ended. The caller then starts another thread."""
        return self._mail.leave(wait)

    def stop(self) -> None:
        """Stop the thread, and end all its waits."""
        self._mail.leave(None)

    def run(self) -> None:
        """Serve waits until the thread is stopped or idle."""
        why = _FAILED
        try:
            while self._goes_on():
                if time.monotonic() >= self._rounds.retry_at:
                    self._converse()
                self._rest()
            why = CLOSED
        finally:  # Even if a bug in Rota ended this thread, no call may wait forever.
            for wait in self._mail.close():
                self._keep(wait)
            self._rounds.open.give_up(why)
            self._replies.close()

    def _keep(self, wait: Wait | None) -> None:
        if wait is not None:
            self._rounds.open.add(wait)

    def _goes_on(self) -> bool:
        left = self._mail.take()
        for wait in left:
            self._keep(wait)
        if None in left:
            return False
        return self._rounds.has_more or not self._mail.close_if_empty()

    def _converse(self) -> None:
        try:
            messages = self._replies.messages()
            if messages is not None:
                self._rounds.receive(messages)
            while queries := self._rounds.next_queries():
                self._rounds.resolve(queries, self._results(queries))
            if self._rounds.open and not self._replies.is_parked:
                self._replies.park()
        except Denied as error:  # This is not a network error, so trying again would not help.
            self._replies.close()
            self._rounds.open.give_up(str(error))
        except Unavailable as error:
            self._replies.close()
            self._rounds.fail(str(error))

    def _results(self, queries: Mapping[WaitQuery, str]) -> WaitResults:
        until = time.monotonic() + self._pool.timeout_seconds
        [reply] = self._pool.exchange(Exchange([self._rounds.query_command(queries)], None, until))
        return results_in(reply)

    def _rest(self) -> None:
        self._mail.sleep(self._rounds.seconds_to_rest(self._replies.silent_at), self._replies)


_CLOSE_SECONDS: Final = 1.0  # How long `close` waits for the thread to end. The thread may be busy connecting.
_FOREVER: Final = -1.0


class Waiting:
    """All waits of one client in one process. A forked child makes its own object."""

    def __init__(self, pool: ClientPool, store: Store) -> None:
        self._pool = pool
        self._store = store
        self._lock = Lock()
        self._thread: WaitingThread | None = None
        self.pid = os.getpid()

    def wait(self, query: WaitQuery, timeout: Duration | None) -> WaitResult:
        """Wait until the event that the query describes has happened.

        Raises WaitTimeout if that takes longer than the timeout, and Unavailable if the client is closed or the server
        does not permit this user to wait.
        """
        limit = limit_of(timeout)
        wait = Wait(query)
        with time_limit_deferred:
            thread = self._leave(wait)
        in_time = wait.sleep(_FOREVER if limit is None else limit)
        return wait.outcome(limit, thread.trouble, in_time=in_time)

    def close(self) -> None:
        """End all waits. This may be called more than once. The next wait starts a new thread."""
        thread = self._thread
        self._thread = None
        if thread is not None and self.pid == os.getpid():
            thread.stop()
            thread.join(_CLOSE_SECONDS)

    def _leave(self, wait: Wait) -> WaitingThread:
        with self._lock:
            if self._thread is None or not self._thread.take(wait):
                thread = WaitingThread(self._pool, self._store, wait)
                thread.start()
                self._thread = thread
            return self._thread
