"""The network between the processes and the server, with all its faults."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import Final, Generic, Protocol, TypeVar

from rota.server.server_errors import ConnectionLost, ServerError
from simulation.timeline import Action, Timeline

T = TypeVar("T")
PATIENCE_SECONDS: Final = 3.0  # a connection is closed after this long without a reply
REFUSED_SECONDS: Final = 0.002
USUAL_SECONDS: Final = 0.001
SLOW_SECONDS: Final = 0.3


class Up(Enum):
    """The state of the server. While the server is DOWN, it refuses connections. While it is STALLED, it accepts
    requests but does not reply until it continues.
    """

    UP = auto()
    DOWN = auto()
    STALLED = auto()


class Caller(Protocol):
    """A process that calls the server. It receives replies only while it is not stopped."""

    @property
    def location(self) -> str:
        """The name of the node on which the process runs."""

    def later(self, seconds: float, action: Action) -> None:
        """Plan an action after this number of seconds. If the process is stopped at that time, the action runs when the
        process continues.
        """


@dataclass(slots=True)
class _Question(Generic[T]):
    caller: Caller
    until: float
    execute: Callable[[bool], T]
    done: Callable[[T | ServerError], None]
    is_done: bool = False

    def receive(self, reply: T | ServerError) -> None:
        """Accept a reply or a timeout. If both arrive, only the first one has an effect."""
        if not self.is_done:
            self.is_done = True
            self.done(reply)


@dataclass(slots=True)
class Network:
    """The network with its current faults. `cut` has the names of the nodes whose packets are lost, and `slow` has the
    names of the nodes with a slow link. `losing` is the share of replies that are lost, and `late` is the longest extra
    delay of a reply in seconds. `was_away` is set if the server was ever unavailable.
    """

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
        """Change the state of the server. Calls that arrived while the server was STALLED are executed when it
        continues or goes DOWN.
        """
        self.up = up
        self.was_away |= up is not Up.UP
        if up is not Up.STALLED:
            waiting = self._stalled
            self._stalled = []
            for arrive in waiting:
                arrive()

    def call(self, caller: Caller, execute: Callable[[bool], T], done: Callable[[T | ServerError], None]) -> None:
        """Execute a call on the server. The caller receives the reply, or an error if there is no reply.

        `execute` is called with True if the caller will receive the reply, and with False otherwise.
        """
        if self.up is Up.DOWN:
            caller.later(REFUSED_SECONDS, lambda: done(ConnectionLost("refused", "network")))
            return
        question = _Question(caller, self.timeline.now + PATIENCE_SECONDS, execute, done)
        caller.later(PATIENCE_SECONDS, lambda: question.receive(ConnectionLost("silence", "silent")))
        if caller.location not in self.cut:
            self.timeline.after(self._seconds(caller), lambda: self._arrive(question))

    def reply(self, caller: Caller, action: Action) -> None:
        """Let the caller run an action when the reply has arrived. If the reply is lost, the action does not run."""
        seconds = self._seconds_home(caller)
        if seconds is not None:
            caller.later(seconds, action)

    def _arrive(self, question: "_Question[T]") -> None:
        if self.up is Up.DOWN:  # the kernel of the server's machine resets the connection
            question.caller.later(REFUSED_SECONDS, lambda: question.receive(ConnectionLost("reset", "network")))
            return
        if self.up is Up.STALLED:
            self._stalled.append(lambda: self._arrive(question))
            return
        seconds = self._seconds_home(question.caller)
        if seconds is None or self.timeline.now + seconds >= question.until:
            question.execute(False)
            return
        reply = question.execute(True)
        question.caller.later(seconds, lambda: question.receive(reply))

    def _seconds_home(self, caller: Caller) -> float | None:
        if caller.location in self.cut or self.random.random() < self.losing:
            return None
        return self._seconds(caller) + (self.random.uniform(0, self.late) if self.late else 0.0)

    def _seconds(self, caller: Caller) -> float:
        most = SLOW_SECONDS if caller.location in self.slow else USUAL_SECONDS
        return self.random.uniform(most / 10, most)
