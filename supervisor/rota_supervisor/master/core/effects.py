"""The effects of the master's core. Each is a frozen value that describes one action. The core updates its state before
it returns an effect."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias

from rota.child.slot_record import TaskInSlot
from rota.protocol.nodes import Announced, NodeReport
from rota.protocol.outcome import Settlement
from rota.protocol.schedule_store import DeclaredSchedule
from rota.protocol.signatures import SigningSettings
from rota.protocol.store import FIRST_HELD, Blame
from rota.protocol.tiers import Domain
from rota.protocol.wire import Packed
from rota.telemetry.metrics import CounterDefinition, GaugeDefinition
from rota_supervisor.config.model import ConditionConfig, Config
from rota_supervisor.control.port import ControlReply
from rota_supervisor.exits import ExitCode
from rota_supervisor.master.core.children import ChildRef
from rota_supervisor.master.core.scaling_rule import Decision

# Children


class Spawn(NamedTuple):
    """Start a zygote, a poller or the exporter. The events Started and StackFileMade follow."""

    child: ChildRef
    settings: dict[str, Any]


class ForkWorker(NamedTuple):
    """Give a slot to a worker and request the worker from a zygote.

    The event StackFileMade and the zygote's messages follow.
    """

    zygote: ChildRef
    child: ChildRef
    owner: str
    pool: str
    settings: str  # the settings of its pool, as text
    renewed_ns: int  # when the worker's lease began
    quiet: bool  # whether it starts without claiming tasks
    concurrency: int = 1  # the number of tasks that it runs at once


class Order(Enum):
    """A request to a child, sent as a signal."""

    LEAVE = auto()  # leave after the current task
    INTERRUPT = auto()  # interrupt the tasks whose soft limit has expired
    WRITE_STACK = auto()  # write the stack to the stack file
    KILL = auto()  # send SIGKILL to the child and to its whole process group


class SignalChild(NamedTuple):
    """Send an order to a child as a signal."""

    child: ChildRef
    order: Order


class SetQuiet(NamedTuple):
    """Make workers stop claiming for now, or claim again."""

    children: tuple[ChildRef, ...]
    quiet: bool


class NotifyCancelled(NamedTuple):
    """Notify a worker that one of its tasks was cancelled.

    If another task has started with this index in the meantime, the notification does not affect it.
    """

    child: ChildRef
    task_index: int
    number: int  # the number of the cancelled task


class CloseChannels(NamedTuple):
    """Close the channel and the stack file of a child that no longer exists."""

    child: ChildRef


class FreeSlot(NamedTuple):
    """Free a slot for another child. A process of the old child that starts later finds another nonce and exits."""

    slot: int


# Redis


class Register(NamedTuple):
    """Register an owner for each of these slots and nonces. The event OwnersRegistered follows once Redis accepts the
    call."""

    slots: tuple[tuple[int, int], ...]
    lease_seconds: float


class HeldLease(NamedTuple):
    """The lease of a living worker."""

    owner: str
    lease_seconds: float  # the duration of the lease that the worker was given
    slot: int  # the slot from which the worker reads the time of the renewal
    nonce: int


class RenewLeases(NamedTuple):
    """Renew all leases, publish the declarations of this node, and read the closed queues.

    The event ClosedSeen follows if Redis replies, and LeasesRenewed follows in any case.
    """

    held: tuple[HeldLease, ...]
    queues: tuple[str, ...]  # the queues that this node serves
    pools: Mapping[str, tuple[Domain, ...]]  # the tiers of its pools
    lease_seconds: float  # how long the declarations are valid
    announced: Announced  # the settings that apply to the whole fleet
    conditions: Mapping[str, ConditionConfig]
    schedules: tuple[DeclaredSchedule, ...] = ()  # the schedules that this node declares
    is_settled: bool = False  # whether no candidate is pending, so that undeclared schedules can be removed
    report: NodeReport = NodeReport()  # the health of this node
    tasks: tuple[str, ...] | None = None  # the tasks that this node declares
    signing: SigningSettings = SigningSettings()  # the keys that sign the schedules


class ReapOwner(NamedTuple):
    """Requeue the tasks of a dead worker and reap its owner.

    The event OwnerReaped follows once Redis accepts the call.
    """

    slot: int
    nonce: int
    owner: str
    names: Mapping[str, str]  # the names of the tasks that were running, by id
    blame: Blame
    settlements: Packed  # the outcomes of tasks that the worker had finished
    tiers: Packed
    has_left: bool = False  # whether the worker left on request and did not die
    over_limit: tuple[Settlement, ...] = ()  # the outcomes of tasks that reached their hard time limit

    def name_of(self, task_id: str) -> str:
        """Return the name of a task that was running, or "" for any other task.

        If the slot could not be read, the result is the name that is stored for FIRST_HELD.
        """
        return self.names.get(task_id) or self.names.get(FIRST_HELD, "")


class ReturnPrefetched(NamedTuple):
    """Settle the finished tasks of a claim, and return the prefetched tasks that wait behind a long-running task."""

    child: ChildRef
    owner: str
    task: TaskInSlot
    finished: Packed
    tiers: Packed


# Scaling


class LagObjective(NamedTuple):
    """The lag objective of a queue, or of each queue that matches a pattern."""

    seconds: float
    target: float  # the share of starts that must meet the objective


class ScaledWorker(NamedTuple):
    """A worker of a pool with a range. Its counters are read even while it leaves, because its tasks still count."""

    slot: int
    nonce: int
    is_serving: bool  # whether it is ready and can claim; otherwise it is starting or leaving
    is_starting: bool
    start_seconds: float | None  # how long its start took, or None until it is ready


class ScaledPool(NamedTuple):
    """The part of a pool with a range that runs on this node."""

    pool: str
    tiers: tuple[Domain, ...]  # the queues that the pool serves, with their caps and rates
    objectives: Mapping[str, LagObjective]  # for each name and pattern of `tiers`
    concurrency: int  # the number of task slots of a worker
    least: int  # the smallest number of workers that the configuration permits
    most: int  # the largest number that the configuration permits
    granted: int  # the number that the node's budget leaves to the pool, or `most` without a budget
    operator: int | None  # the number that an operator set, or None for automatic scaling
    is_blocked: bool  # whether the event loop of a worker is blocked
    first_crashes: int  # number of first attempts that ended with the death of their worker since the master started
    workers: tuple[ScaledWorker, ...]
    publish: Decision | None = None  # the decision to publish, if this node leads the pool


class ExchangeScaling(NamedTuple):
    """Measure the load of each pool with a range, publish loads and decisions, and read the inputs for the next
    decisions.

    The event ScalingSeen follows.
    """

    pools: tuple[ScaledPool, ...]
    lease_seconds: float  # how long a load is valid, and how long a silent node remains leader
    max_cpu: float  # the share of the processors above which no pool grows; 1 for no limit


# Configuration


class ReadConfiguration(NamedTuple):
    """Read the configuration for a reload. The event ConfigurationRead follows."""

    ticket: int


class PrepareAddress(NamedTuple):
    """Bind the exporter's next listen address without using it yet. The event AddressPrepared follows."""

    ticket: int
    listen: str
    only_try: bool = False  # whether only to check the address, and release it at once


class ListenAt(NamedTuple):
    """Listen on this address for the exporter from now on. The event ListeningAt follows."""

    listen: str


class DropPreparedAddress(NamedTuple):
    """Release an address that was prepared and will not be used, because clients that connect to it would wait
    forever."""


class ConfigureLog(NamedTuple):
    """Change the format, the level and the other settings of the log to those of this configuration."""

    config: Config


# Output for people and machines


class Respond(NamedTuple):
    """Reply to a request, or refuse it with a reason."""

    ticket: int
    reply: ControlReply | None = None
    refused: str = ""


class WriteLog(NamedTuple):
    """Write an event to the log."""

    level: str  # debug, info, warning or error
    event: str
    fields: Mapping[str, Any]


class AddToCounter(NamedTuple):
    """Add an amount to a counter."""

    counter: CounterDefinition
    labels: tuple[str, ...] = ()
    amount: float = 1.0


class SetGauge(NamedTuple):
    """Set a gauge, or remove it with None."""

    gauge: GaugeDefinition
    labels: tuple[str, ...] = ()
    value: float | None = None


class SetGaugeToNow(NamedTuple):
    """Set a gauge to the current wall-clock time."""

    gauge: GaugeDefinition


class PublishSnapshot(NamedTuple):
    """Publish the current state of the fleet for the exporter."""


class NotifyManager(NamedTuple):
    """Send a message to the service manager."""

    message: str
    can_wait: bool = False  # whether to drop the message if earlier messages are still unsent


class WriteReport(NamedTuple):
    """Write the status of the fleet and the stack of every child to the log."""


class ReportBlocked(NamedTuple):
    """Log the stack of a worker whose event loop is blocked, and the task that blocks it."""

    child: ChildRef
    pool: str
    seconds: float


class Leave(NamedTuple):
    """End the master, with code CLEAN if the fleet has left, or with another code if the first generation cannot
    work."""

    code: ExitCode = ExitCode.CLEAN
    messages: tuple[str, ...] = ()


Effect: TypeAlias = (
    "Spawn | ForkWorker | SignalChild | SetQuiet | NotifyCancelled | CloseChannels | FreeSlot | Register | RenewLeases"
    " | ReapOwner | ReturnPrefetched | ExchangeScaling | ReadConfiguration | PrepareAddress | ListenAt"
    " | DropPreparedAddress | ConfigureLog | Respond | WriteLog | AddToCounter | SetGauge | SetGaugeToNow"
    " | PublishSnapshot | NotifyManager | WriteReport | ReportBlocked | Leave"
)


def info(event: str, **fields: Any) -> WriteLog:
    """Return the effect that logs, with level info, an event that people may want to know about."""
    return WriteLog("info", event, fields)


def warning(event: str, **fields: Any) -> WriteLog:
    """Return the effect that logs, with level warning, a problem that was repaired or can wait."""
    return WriteLog("warning", event, fields)


def error(event: str, **fields: Any) -> WriteLog:
    """Return the effect that logs, with level error, a problem that a person has to solve."""
    return WriteLog("error", event, fields)
