"""The events that the master's core handles. Each event is a frozen value that contains everything that was read from
outside, because the core does no I/O."""

import math
import os
import signal
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from rota.child.slot_record import HeldUp, TaskInSlot, TaskTimes
from rota.child.slots import Phase, RecycleReason
from rota.protocol.replies import Reaped
from rota.protocol.views import ClosedQueue
from rota.protocol.wire import NOTHING, Packed
from rota_supervisor import messages
from rota_supervisor.config.errors import Fault
from rota_supervisor.config.loader import Loaded
from rota_supervisor.control.port import RequestKind, ScaleOrder
from rota_supervisor.master.core.effects import ReapOwner
from rota_supervisor.master.core.scaling_inputs import NodeLoad, PoolInputs
from rota_supervisor.master.core.scaling_rule import Decision


class Ticked(NamedTuple):
    """All pending events have been handled, and the master decides what to do next. This event occurs at least once a
    second."""

    # When the first call without a reply was sent to Redis; `inf` if there is none.
    redis_silent_since: float = math.inf


# Requests


class Requested(NamedTuple):
    """A request was made through the control socket, by a signal, or because a watched file changed."""

    request: RequestKind
    ticket: int  # the number that connects the reply with the request
    by_signal: bool = False  # whether the request was a signal, so that a refusal is logged instead of sent
    order: ScaleOrder | None = None  # the number of workers that a SCALE request sets


class ConfigurationRead(NamedTuple):
    """The configuration was read for a reload."""

    ticket: int
    loaded: Loaded
    faults: tuple[Fault, ...] = ()  # the reasons why the configuration cannot be used


class AddressPrepared(NamedTuple):
    """The exporter's new listen address was bound, was found to be free, or cannot be bound."""

    ticket: int
    faults: tuple[Fault, ...] = ()  # the reasons why the address could not be bound


class ListeningAt(NamedTuple):
    """The address on which the master listens for the exporter was changed, or kept because of an error."""

    address: str  # the address, or "" for none
    error: str = ""  # why the master kept the previous address, or ""


# Children


class SlotReading(NamedTuple):
    """A reading of a child's slot that differs from the previous one."""

    slot: int
    nonce: int
    phase: Phase
    tasks: tuple[TaskTimes, ...]  # the start time and the deadlines of each running task
    heartbeat_ns: int  # the time of the last heartbeat
    recycle_reason: RecycleReason = RecycleReason.NONE
    shortest_soft_ns: int = 0  # the shortest soft limit among recent tasks
    shortest_soft_met_ns: int = 0  # when a task with this shortest limit last ran
    has_worked: bool = False
    has_outcomes: bool = False
    stepping: int | None = None  # the index of the task whose coroutine is running now, if the worker is concurrent


class SlotsRead(NamedTuple):
    """The slots were read. Only the readings that differ from the previous ones are included."""

    readings: tuple[SlotReading, ...]


class Started(NamedTuple):
    """A zygote, a poller or the exporter was started, or could not be started."""

    slot: int
    nonce: int
    pid: int = 0
    error: str = ""  # why the kernel refused to start the child, or ""


class StackFileMade(NamedTuple):
    """A stack file was created for a child that is being started."""

    slot: int
    nonce: int


class ZygoteReported(NamedTuple):
    """A packet from the zygote of a generation, or from one of its intermediates. An intermediate is a short-lived
    process that forks one worker for the zygote and reports it.

    If an intermediate dies before it can report its worker, the master creates the report when it sees the worker's pid
    in the slot.
    """

    generation: int
    message: messages.Message


class ZygoteGone(NamedTuple):
    """The channel of a zygote was closed, because the zygote has ended, and so have its intermediates, which are the
    short-lived processes that fork workers for it."""

    slot: int
    nonce: int


class StopSeen(NamedTuple):
    """A child was suspended by a signal such as SIGSTOP, or runs again."""

    slot: int
    nonce: int
    stopped: bool


class ProcessEnd(NamedTuple):
    """The wait status and the resource usage of a process that ended."""

    wait_status: int
    oom_killed: bool = False  # whether the kernel counted an out-of-memory kill that no other death explains
    max_rss_kb: int = 0  # peak memory, including the pages that the process shared with its zygote
    cpu_seconds: float = 0.0  # the CPU time of the process itself, without its child processes

    @property
    def signal_name(self) -> str:
        """The name of the signal that ended the process, for example `SIGKILL`, or "" if it exited."""
        if not os.WIFSIGNALED(self.wait_status):
            return ""
        number = os.WTERMSIG(self.wait_status)
        try:
            return signal.Signals(number).name
        except ValueError:
            return f"SIGRTMIN+{number - signal.SIGRTMIN}" if number > signal.SIGRTMIN else f"signal {number}"

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None if a signal ended the process."""
        return os.WEXITSTATUS(self.wait_status) if os.WIFEXITED(self.wait_status) else None


class Died(NamedTuple):
    """A child's process was reaped."""

    slot: int
    nonce: int
    ending: ProcessEnd
    tasks: tuple[TaskInSlot, ...] = ()  # the tasks that the child's slot shows as running
    outcomes: Packed = NOTHING  # the outcomes in the child's slot that no reply from Redis has confirmed
    has_worked: bool = False  # whether the child had finished a task, according to its slot
    stack: str = ""  # the contents of the child's stack file
    wall: float = 0.0  # the time of the death in Unix seconds
    slot_is_intact: bool = True  # whether the child's slot is readable; a task may have overwritten it


# Redis


class OwnersRegistered(NamedTuple):
    """Owners were registered for workers that are about to start."""

    owners: tuple[tuple[int, int, str], ...]  # the slot, the nonce and the name of each owner
    lease_seconds: float
    sent_ns: int  # when the call to Redis was sent


class LeasesRenewed(NamedTuple):
    """A round of lease renewals has ended."""

    lost: tuple[str, ...] = ()  # the owners that have lost their leases
    failed: bool = False  # whether some leases could not be renewed


class ClosedSeen(NamedTuple):
    """The closed queues of the fleet were read. No worker can claim from a closed queue."""

    closed: tuple[ClosedQueue, ...]


class PoolSeen(NamedTuple):
    """The state of a pool whose number of workers is a range, after an exchange with Redis."""

    load: NodeLoad  # the load that this node has published
    leader: str  # the node that leads the pool
    decision: Decision | None  # the decision in force, or None until a leader publishes one
    inputs: PoolInputs | None  # the inputs of the next decision, or None if this node does not lead the pool


class ScalingSeen(NamedTuple):
    """An exchange of loads and decisions has ended."""

    pools: Mapping[str, PoolSeen]  # the pools by name; empty if the call failed
    failed: bool = False  # whether the call failed, so that the state of the pools is not known


class OwnerReaped(NamedTuple):
    """The owner of a dead worker was reaped, and its tasks were given back."""

    request: ReapOwner
    reply: Reaped


class ClaimHeldUp(NamedTuple):
    """A task runs for a long time, and other tasks of the same claim wait behind it."""

    slot: int
    nonce: int
    held_up: HeldUp


class CancelOrdered(NamedTuple):
    """A running task was cancelled."""

    slot: int
    nonce: int
    task_index: int  # the index of the task among the tasks that its worker runs at once
    number: int  # how many tasks the worker has run at this index, including the cancelled one
    task_id: str
    kill_after: float | None = None  # seconds from now until the worker is killed, or None if it is not killed


class RedisReplied(NamedTuple):
    """Redis replied, for the first time or after an outage."""


class RoundTripSeen(NamedTuple):
    """The current round-trip time of a call to Redis, in seconds."""

    seconds: float


class RedisFailed(NamedTuple):
    """A call to Redis failed."""

    reason: str
    error: str
    is_away: bool  # whether all calls will fail until Redis recovers, and not only this one
    is_reply: bool = False  # whether the server itself replied that it cannot serve calls for now


class EvictionPolicySeen(NamedTuple):
    """The eviction policy of the server was read."""

    policy: str


Event: TypeAlias = (
    "Ticked | Requested | ConfigurationRead | AddressPrepared | ListeningAt | SlotsRead | Started | StackFileMade"
    " | ZygoteReported | ZygoteGone | StopSeen | Died | OwnersRegistered | LeasesRenewed | ClosedSeen | OwnerReaped"
    " | ScalingSeen | ClaimHeldUp | CancelOrdered | RedisReplied | RoundTripSeen | RedisFailed | EvictionPolicySeen"
)
