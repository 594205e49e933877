"""What can happen to a master: one frozen value for each thing. What was read from the world stands in the event."""

import math
import os
import signal
from typing import NamedTuple, TypeAlias

from rota.child.slot_record import HeldUp, TaskInSlot, TaskTimes
from rota.child.slots import Phase, RecycleReason
from rota.protocol.replies import Retired
from rota.protocol.views import ClosedQueue
from rota.protocol.wire import NOTHING, Packed
from rota_supervisor import messages
from rota_supervisor.config.loader import Loaded
from rota_supervisor.config.model import Fault
from rota_supervisor.control.port import RequestKind, ScaleOrder
from rota_supervisor.master.core.effects import Retire


class Ticked(NamedTuple):
    """Everything that had happened was taken in: the master looks what is to be done. At least once a second.
    `redis_silent_since`: since when Redis owes an answer; `inf` when it owes none."""

    redis_silent_since: float = math.inf


# What people ask for


class Requested(NamedTuple):
    """Somebody asked for something. `ticket`: the number under which it is answered. `by_signal`: nobody waits for an
    answer, so that a refusal is written to the log. `order`: of SCALE."""

    request: RequestKind
    ticket: int
    by_signal: bool = False
    order: ScaleOrder | None = None


class ConfigurationRead(NamedTuple):
    """The configuration was read for a reload. With `faults` it cannot be used."""

    ticket: int
    loaded: Loaded
    faults: tuple[Fault, ...] = ()


class PlacePrepared(NamedTuple):
    """The exporter's place of another configuration was bound, or it was found that it could be; not with `faults`."""

    ticket: int
    faults: tuple[Fault, ...] = ()


class PlaceTaken(NamedTuple):
    """The master listens at this place for the exporter; "" for none. With an `error` it stayed where it was."""

    place: str
    error: str = ""


# Children


class Look(NamedTuple):
    """What the slot of a child shows, where it is something else than before. `tasks`: of those that run when they
    began, and their deadlines. `shortest_soft_ns`: the shortest soft limit met of late, last at `shortest_soft_met_ns`.
    `stepping`: the place whose coroutine takes a step, where several run."""

    slot: int
    nonce: int
    phase: Phase
    tasks: tuple[TaskTimes, ...]
    beat_ns: int
    recycle_reason: RecycleReason = RecycleReason.NONE
    shortest_soft_ns: int = 0
    shortest_soft_met_ns: int = 0
    has_worked: bool = False
    has_outcomes: bool = False
    stepping: int | None = None


class Looked(NamedTuple):
    """The slots were looked at, and these show something new."""

    looks: tuple[Look, ...]


class Started(NamedTuple):
    """A zygote, a poller or the exporter was started; not with an `error`, by which the kernel refused."""

    slot: int
    nonce: int
    pid: int = 0
    error: str = ""


class StackFileMade(NamedTuple):
    """A child that is started has a file to write its stack to."""

    slot: int
    nonce: int


class ZygoteSaid(NamedTuple):
    """A packet from a zygote of that generation, or from one of its intermediates. For a worker whose intermediate died
    before it could report it, the master makes up the report when it finds the worker in its slot."""

    generation: int
    message: messages.Message


class ZygoteGone(NamedTuple):
    """The channel of a zygote has ended: itself and all its intermediates are gone."""

    slot: int
    nonce: int


class StopSeen(NamedTuple):
    """A signal stopped a child, or it goes on."""

    slot: int
    nonce: int
    stopped: bool


class ProcessEnd(NamedTuple):
    """How a process ended. `oom_killed`: the kernel counted a kill for want of memory that no other death explains;
    `max_rss_kb` includes the pages it shared with its zygote; `cpu_seconds`: of the process itself, not of what it had
    started."""

    wait_status: int
    oom_killed: bool = False
    max_rss_kb: int = 0
    cpu_seconds: float = 0.0

    @property
    def signal_name(self) -> str:
        """`SIGKILL`, or "" when it was no signal."""
        if not os.WIFSIGNALED(self.wait_status):
            return ""
        number = os.WTERMSIG(self.wait_status)
        try:
            return signal.Signals(number).name
        except ValueError:
            return f"SIGRTMIN+{number - signal.SIGRTMIN}" if number > signal.SIGRTMIN else f"signal {number}"

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None when a signal ended it."""
        return os.WEXITSTATUS(self.wait_status) if os.WIFEXITED(self.wait_status) else None


class Died(NamedTuple):
    """A child's process was reaped. From its slot: the `tasks` that ran, the packed `outcomes` of finished tasks that
    no answer has confirmed, and whether it `has_worked`. `stack`: what stands in its stack file. `wall`: Unix seconds.
    `slot_is_intact`: its slot can be read; a task may have written over it."""

    slot: int
    nonce: int
    ending: ProcessEnd
    tasks: tuple[TaskInSlot, ...] = ()
    outcomes: Packed = NOTHING
    has_worked: bool = False
    stack: str = ""
    wall: float = 0.0
    slot_is_intact: bool = True


# Redis


class OwnersRegistered(NamedTuple):
    """Workers to be started have owners: slot, nonce and name of each. `sent_ns`: when the call was sent."""

    owners: tuple[tuple[int, int, str], ...]
    lease_seconds: float
    sent_ns: int


class LeasesRenewed(NamedTuple):
    """A round of renewals is over; `lost` are the owners whose lease was found to be lost. `failed`: some were not."""

    lost: tuple[str, ...] = ()
    failed: bool = False


class ClosedSeen(NamedTuple):
    """The queues of the fleet from which nobody may claim now."""

    closed: tuple[ClosedQueue, ...]


class OwnerRetired(NamedTuple):
    """What a dead worker held is given back."""

    asked: Retire
    retired: Retired


class ClaimHeldUp(NamedTuple):
    """A task takes long, and others that were claimed with it wait for it."""

    slot: int
    nonce: int
    held_up: HeldUp


class CancelOrdered(NamedTuple):
    """Somebody cancelled the task of this number, which runs in that place. `kill_after`: seconds from now to the kill
    of its process if it has not ended by then, None for no such order."""

    slot: int
    nonce: int
    place: int
    number: int
    task_id: str
    kill_after: float | None = None


class RedisAnswered(NamedTuple):
    """Redis answers, for the first time or again."""


class RoundTripSeen(NamedTuple):
    """How long an answer of Redis takes at present, in seconds."""

    seconds: float


class RedisFailed(NamedTuple):
    """A call to Redis failed. `is_away`: nothing can be done there until it goes through, unlike one that was refused.
    `is_reply`: the server answered, and said that it does nothing for now."""

    reason: str
    error: str
    is_away: bool
    is_reply: bool = False


class EvictionPolicySeen(NamedTuple):
    """What the server does when its memory is full."""

    policy: str


Event: TypeAlias = (
    "Ticked | Requested | ConfigurationRead | PlacePrepared | PlaceTaken | Looked | Started | StackFileMade"
    " | ZygoteSaid | ZygoteGone | StopSeen | Died | OwnersRegistered | LeasesRenewed | ClosedSeen | OwnerRetired"
    " | ClaimHeldUp | CancelOrdered | RedisAnswered | RoundTripSeen | RedisFailed | EvictionPolicySeen"
)
