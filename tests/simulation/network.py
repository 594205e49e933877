"""What lies between the processes and the server, and everything that can go wrong there."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import Final, Generic, Protocol, TypeVar

from rota.server.server_errors import ConnectionLost, ServerError
from simulation.timeline import Action, Timeline

T = TypeVar("T")
PATIENCE_SECONDS: Final = 3.0  # a connection is given up after so long a silence
REFUSED_SECONDS: Final = 0.002
USUAL_SECONDS: Final = 0.001
SLOW_SECONDS: Final = 0.3


class Up(Enum):
    """A server that is DOWN refuses; a STALLED one takes what is sent, and answers when it goes on."""

    UP = auto()
    DOWN = auto()
    STALLED = auto()


class Caller(Protocol):
    """A process that calls: it takes answers in only while it runs."""

    @property
    def place(self) -> str:
        """Its node."""

    def later(self, seconds: float, action: Action) -> None:
        """Have it do something, once it is not stopped."""


@dataclass(slots=True)
class _Question(Generic[T]):
    caller: Caller
    until: float
    execute: Callable[[bool], T]
    done: Callable[[T | ServerError], None]
    heard: bool = False

    def hear(self, answer: T | ServerError) -> None:
        """The first of answer and end of patience counts."""
        if not self.heard:
            self.heard = True
            self.done(answer)


@dataclass(slots=True)
class Network:
    """`cut`: nodes whose packets vanish; `slow`: nodes with a slow link; `losing`: the share of lost replies;
    `late`: the longest that a reply may be on its way. `was_away`: whether the server ever was."""

    timeline: Timeline
    random: Random
    up: Up = Up.UP
    cut: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)
    losing: float = 0.0
    late: float = 0.0
    was_away: bool = False
    _stalled: list[Action] = field(default_factory=list)

    def set_up(self, up: Up) -> None:
        """Whether the server answers. What came while it was stalled is looked at when it goes on."""
        self.up = up
        self.was_away |= up is not Up.UP
        if up is not Up.STALLED:
            waiting, self._stalled = self._stalled, []
            for arrive in waiting:
                arrive()

    def call(self, caller: Caller, execute: Callable[[bool], T], done: Callable[[T | ServerError], None]) -> None:
        """Have the server execute a call; the caller hears its answer, or that there was none.

        `execute` is told whether the answer will be heard.
        """
        if self.up is Up.DOWN:
            caller.later(REFUSED_SECONDS, lambda: done(ConnectionLost("refused", "network")))
            return
        question = _Question(caller, self.timeline.now + PATIENCE_SECONDS, execute, done)
        caller.later(PATIENCE_SECONDS, lambda: question.hear(ConnectionLost("silence", "silent")))
        if caller.place not in self.cut:
            self.timeline.after(self._seconds(caller), lambda: self._arrive(question))

    def answer(self, caller: Caller, action: Action) -> None:
        """Carry a reply home, unless it is lost."""
        seconds = self._seconds_home(caller)
        if seconds is not None:
            caller.later(seconds, action)

    def _arrive(self, question: "_Question[T]") -> None:
        if self.up is Up.DOWN:  # its kernel says so
            question.caller.later(REFUSED_SECONDS, lambda: question.hear(ConnectionLost("reset", "network")))
            return
        if self.up is Up.STALLED:
            self._stalled.append(lambda: self._arrive(question))
            return
        seconds = self._seconds_home(question.caller)
        if seconds is None or self.timeline.now + seconds >= question.until:
            question.execute(False)
            return
        answer = question.execute(True)
        question.caller.later(seconds, lambda: question.hear(answer))

    def _seconds_home(self, caller: Caller) -> float | None:
        if caller.place in self.cut or self.random.random() < self.losing:
            return None
        return self._seconds(caller) + (self.random.uniform(0, self.late) if self.late else 0.0)

    def _seconds(self, caller: Caller) -> float:
        most = SLOW_SECONDS if caller.place in self.slow else USUAL_SECONDS
        return self.random.uniform(most / 10, most)
