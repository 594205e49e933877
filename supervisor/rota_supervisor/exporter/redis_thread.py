"""Questions to Redis, which a thread of its own asks over one connection, one after the other.

An answer may take as long as a worker waits for one. No page waits for that: what is asked again and again is shown
as it was last, and a person who asks for something else waits for ASK_SECONDS at most.
"""

import queue
import select
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from rota.child.child_settings import ServerSettings
from rota.protocol.command import Command, RunCommand
from rota.server import address, connection
from rota.server.server_errors import ServerError

T = TypeVar("T")

LIMIT_SECONDS: Final = 0.5  # for which a page waits, from when it was asked
ASK_SECONDS: Final = 3.0  # for which one waits for what is asked once; LIMIT_SECONDS after it did so in vain
FRESH_SECONDS: Final = 1.0
STALE_SECONDS: Final = 30.0  # after which an answer is not shown any more
READER_SECONDS: Final = 120.0  # Prometheus asks once a minute at least


class NoAnswer(Exception):
    """Redis is away, did not answer in time, or answered something else."""


class Runs(Protocol):
    """A connection, as far as it is needed here."""

    @property
    def is_to_renew(self) -> bool:
        """Whether to replace it."""
        ...

    def run(self, call: Command[T]) -> T:
        """Run a script. Raises ServerError."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


def connector(server: ServerSettings) -> Callable[[], connection.Connection]:
    """Return what connects to that server, or raises ServerError. Raises ValueError for an unusable URL."""
    redis = address.address_of(server)
    options = connection.ConnectionOptions("rota-exporter")  # as patient as a worker
    return lambda: connection.connect(redis, options)


class _Question(Generic[T]):
    """What somebody wants to know, until `is_dropped`. Times are monotonic; `over_at` is set before `is_over`."""

    def __init__(self, ask: Callable[[RunCommand], T]) -> None:
        self.ask = ask
        self.put_at = self.over_at = time.monotonic()
        self.answers: list[T] = []  # the one, once it is there
        self.is_over = threading.Event()
        self.is_dropped = False

    @property
    def seconds(self) -> float:
        """How long it took, once it is over."""
        return self.over_at - self.put_at


class RedisThread:
    """Asks what it is told to. `connect` makes a connection or raises ServerError; that happens at the first question,
    and anew after a failure."""

    def __init__(self, connect: Callable[[], Runs]) -> None:
        self._connect = connect
        self._connection: Runs | None = None
        self._questions: queue.SimpleQueue[_Question[Any]] = queue.SimpleQueue()
        self._patience = ASK_SECONDS
        threading.Thread(target=self._serve, name="redis", daemon=True).start()

    def ask(self, ask: Callable[[RunCommand], T]) -> T:
        """Return what `ask` returns, which the thread calls with what runs a command. Raises NoAnswer."""
        question = self.put(ask)
        question.is_dropped = not question.is_over.wait(self._patience)
        self._patience = LIMIT_SECONDS if question.is_dropped else ASK_SECONDS
        if question.is_dropped or not question.answers:
            raise NoAnswer
        return question.answers[0]

    def put(self, ask: Callable[[RunCommand], T]) -> _Question[T]:
        """Have `ask` called when its turn comes, and return the question."""
        question = _Question(ask)
        self._questions.put(question)
        return question

    def _serve(self) -> None:
        while True:
            question = self._questions.get()
            if not question.is_dropped:
                self._answer(question)
            question.over_at = time.monotonic()
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
        made = self._connection
        if made is not None and (made.is_to_renew or connection.wait_for(made.fileno(), select.POLLIN, 0.0)):
            self._hang_up()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection.run(call)


class FreshAnswer(Generic[T]):
    """What `ask` returns, asked for when somebody wants to know it, at most once a second.

    While Redis is slow, the last answer is returned until the next one has come, and is asked for again without a
    reader as long as there was one lately: a reader never waits longer than LIMIT_SECONDS. Not safe for two threads at
    once."""

    def __init__(self, redis: RedisThread, ask: Callable[[RunCommand], T]) -> None:
        self._redis = redis
        self._ask = ask
        self._question: _Question[T] | None = None
        self._last: _Question[T] | None = None  # the last one that was answered, unless a later one failed
        self._read_at = time.monotonic()  # it is asked for once at the start, so that a first reader need not wait

    def read(self) -> T | None:
        """Return what Redis answered last, at most STALE_SECONDS ago; None when it does not answer."""
        self._read_at = time.monotonic()
        question = self._current(self._read_at)
        question.is_over.wait(max(0.0, question.put_at + LIMIT_SECONDS - self._read_at))
        self._settle()
        return self._last.answers[0] if self._last is not None else None

    def keep_fresh(self) -> None:
        """Ask again if answers take long and somebody wants to know them; to be called every second or so."""
        now = time.monotonic()
        self._settle()
        is_slow = self._last is None or self._last.seconds > LIMIT_SECONDS
        if is_slow and now - self._read_at < READER_SECONDS:
            self._current(now)

    def _current(self, now: float) -> "_Question[T]":
        """Return the question under way, or a new one when the last answer is no longer fresh."""
        self._settle()
        question = self._question
        if question is None or (question.is_over.is_set() and now - question.put_at >= FRESH_SECONDS):
            self._question = question = self._redis.put(self._ask)
        return question

    def _settle(self) -> None:
        question = self._question
        if question is not None and question.is_over.is_set():
            self._last = question if question.answers else None
        if self._last is not None and time.monotonic() - self._last.put_at > STALE_SECONDS:
            self._last = None
