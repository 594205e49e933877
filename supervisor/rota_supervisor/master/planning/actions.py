"""What a plan is made of: the actions that the master performs."""

from dataclasses import dataclass

from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Reason


@dataclass(frozen=True, slots=True)
class Start:
    """Begin a child in a free slot."""

    role: Role
    pool: str
    generation: int
    slot: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask a child to leave when it has finished."""

    slot: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Tell a worker that its task is over its soft limit."""

    slot: int


@dataclass(frozen=True, slots=True)
class Dump:
    """Ask a child for its stack, a moment before it is killed."""

    slot: int


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL for a child and its process group."""

    slot: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Abandon:
    """Give up a child that has no process yet."""

    slot: int
    reason: Reason


Action = Start | Drain | Interrupt | Dump | Kill | Abandon
