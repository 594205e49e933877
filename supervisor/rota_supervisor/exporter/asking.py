"""Questions to Redis, which a thread of its own asks over one connection, one after the other.

So nothing (a stalled server, a resolver without network) holds up a page for longer than half a second.
"""

import math
import queue
import select
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from rota.child.settings import ServerSettings
from rota.protocol.command import Command, RunCommand
from rota.server import address, connection
from rota.server.server_errors import ServerError

T = TypeVar("T")

LIMIT_SECONDS: Final = 0.5
FRESH_SECONDS: Final = 1.0


class NoAnswer(Exception):
    """Redis is away, did not answer in time, or answered something else."""


class Runs(Protocol):
    """A connection, as far as it is needed here."""

    def run(self, call: Command[T]) -> T:
        """Run a script. Raises ServerError."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


def connector(server: ServerSettings) -> Callable[[], connection.Connection]:
    """Return what connects to that server, or raises ServerError. Raises ValueError for an unusable URL."""
    redis = address.address_of(server)
    options = connection.ConnectionOptions("rota-exporter", connect_seconds=LIMIT_SECONDS, read_seconds=LIMIT_SECONDS)
    return lambda: connection.connect(redis, options)


class _Question(Generic[T]):
    """What somebody waits for, until `is_dropped`."""

    def __init__(self, ask: Callable[[RunCommand], T]) -> None:
        self.ask = ask
        self.answers: list[T] = []  # the one, once it is there
        self.is_over = threading.Event()
        self.is_dropped = False


class RedisThread:
    """Asks what it is told to. `connect` makes a connection or raises ServerError; that happens at the first question,
    and anew after a failure."""

    def __init__(self, connect: Callable[[], Runs]) -> None:
        self._connect = connect
        self._connection: Runs | None = None
        self._questions: queue.SimpleQueue[_Question[Any]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="redis", daemon=True).start()

    def ask(self, ask: Callable[[RunCommand], T]) -> T:
        """Return what `ask` returns, which the thread calls with what runs a command. Raises NoAnswer."""
        question = _Question(ask)
        self._questions.put(question)
        question.is_dropped = not question.is_over.wait(LIMIT_SECONDS)
        if question.is_dropped or not question.answers:
            raise NoAnswer
        return question.answers[0]

    def _serve(self) -> None:
        while True:
            question = self._questions.get()
            if not question.is_dropped:
                self._answer(question)
            question.is_over.set()

    def _answer(self, question: _Question[T]) -> None:
        try:
            question.answers.append(question.ask(self._run))
        except (ServerError, ValueError, IndexError, TypeError):
            # The master logs an outage; here it shows as what is absent, as does a reply of another shape
            # (the last three), which must not end this thread. The next question connects anew.
            self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run(self, call: Command[T]) -> T:
        # Where something is to be read although nothing was asked, the server has hung up since: it was restarted, or
        # closes who is idle.
        if self._connection is not None and connection.wait_for(self._connection.fileno(), select.POLLIN, 0.0):
            self._hang_up()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection.run(call)


class FreshAnswer(Generic[T]):
    """What `ask` returns, which is called when somebody wants to know, at most once a second."""

    def __init__(self, redis: RedisThread, ask: Callable[[RunCommand], T]) -> None:
        self._redis = redis
        self._ask = ask
        self._answer: T | None = None  # this and the next are of the thread of `redis` alone
        self._asked_at = -math.inf  # monotonic

    def read(self) -> T | None:
        """Return what Redis said within the last second; None when it did not answer."""
        try:
            return self._redis.ask(self._ask_if_due)
        except NoAnswer:
            return None

    def _ask_if_due(self, run: RunCommand) -> T | None:
        now = time.monotonic()
        if now - self._asked_at >= FRESH_SECONDS:
            self._answer, self._asked_at = None, now
            self._answer = self._ask(run)
        return self._answer
