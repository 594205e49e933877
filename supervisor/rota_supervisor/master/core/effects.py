"""The effects of the master's core. Each effect is a frozen value that describes one action. The core updates its state
before it returns an effect."""

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
    """Assign a slot to a worker and request the worker from a zygote. The event StackFileMade and the zygote's messages
    follow."""

    zygote: ChildRef
    child: ChildRef
    owner: str
    pool: str
    settings: str  # the settings of the worker's pool, as JSON
    renewed_ns: int  # when the worker's lease began
    quiet: bool  # whether the worker starts without claiming tasks
    concurrency: int = 1  # the number of tasks that the worker runs at once


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
    """Notify a worker that one of its tasks was cancelled. If another task has started at the same task index in the
    meantime, the notification does not affect that task."""

    child: ChildRef
    task_index: int
    number: int  # the number of the cancelled task, which distinguishes it from later tasks at the same index


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
    """Renew all leases, publish the declarations of this node, and find out which queues are closed.

    The event ClosedSeen follows if Redis replies, and LeasesRenewed follows in any case.
    """

    held: tuple[HeldLease, ...]
    queues: tuple[str, ...]  # the queues that this node serves
    pools: Mapping[str, tuple[Domain, ...]]  # the tiers of each pool of this node
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
        """Return the name of the task with this id if the worker was running it, or "" if it was not.

        If the worker's slot could not be read, it is not known which tasks were running, and the result is a
        placeholder.
        """
        return self.names.get(task_id) or self.names.get(FIRST_HELD, "")


class ReturnPrefetched(NamedTuple):
    """Give the prefetched tasks of a worker back to their lanes, because they wait behind a long-running task. The
    tasks that the worker has finished are settled first."""

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
    """A worker of a pool whose number of workers is a range. Its counters are read even while it is draining, because
    the tasks that it finishes still count."""

    slot: int
    nonce: int
    is_serving: bool  # whether the worker is ready and can claim; if not, it is starting or leaving
    is_starting: bool
    start_seconds: float | None  # how long the worker took to start, or None until it is ready


class ScaledPool(NamedTuple):
    """This node's share of a pool whose number of workers is a range."""

    pool: str
    tiers: tuple[Domain, ...]  # the queues that the pool serves, with their caps and rates
    objectives: Mapping[str, LagObjective]  # the lag objective of each queue and each pattern in `tiers`
    concurrency: int  # how many tasks a worker runs at once
    least: int  # the smallest number of workers that the configuration permits
    most: int  # the largest number of workers that the configuration permits
    granted: int  # how many workers the node's budget permits, or `most` without a budget
    operator: int | None  # the number of workers that an operator has set, or None for automatic scaling
    is_blocked: bool  # whether the event loop of any worker is blocked
    first_crashes: int  # number of first attempts that ended with the death of their worker, since the master started
    workers: tuple[ScaledWorker, ...]
    publish: Decision | None = None  # the decision to publish, if this node leads the pool


class ExchangeScaling(NamedTuple):
    """Measure the load of each pool whose number of workers is a range, publish loads and decisions, and read the
    inputs for the next decisions.

    The event ScalingSeen follows.
    """

    pools: tuple[ScaledPool, ...]
    lease_seconds: float  # how long a load is valid, and how long a silent node remains leader
    max_cpu: float  # the CPU utilization from which no pool grows; 1 for no limit


# Configuration


class ReadConfiguration(NamedTuple):
    """Read the configuration for a reload. The event ConfigurationRead follows."""

    ticket: int


class PrepareAddress(NamedTuple):
    """Bind the exporter's next listen address without using it yet. The event AddressPrepared follows."""

    ticket: int
    listen: str
    only_try: bool = False  # whether the address is only checked, and then released at once


class ListenAt(NamedTuple):
    """Listen on this address from now on, on behalf of the exporter. The event ListeningAt follows."""

    listen: str


class DropPreparedAddress(NamedTuple):
    """Release an address that was prepared and will not be used, because clients that connect to it would wait
    forever."""


class ConfigureLog(NamedTuple):
    """Apply the log settings of this configuration, for example the format and the level."""

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
    can_wait: bool = False  # whether the message may be dropped if earlier messages are still unsent


class WriteReport(NamedTuple):
    """Write the status of the fleet and the stack of every child to the log."""


class ReportBlocked(NamedTuple):
    """Log the stack of a worker whose event loop is blocked, and the task that blocks it."""

    child: ChildRef
    pool: str
    seconds: float


class Leave(NamedTuple):
    """End the master. The exit code is CLEAN if all children have left, or another code if the first generation cannot
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
    """Return the effect that logs, at level info, an event that people may want to know about."""
    return WriteLog("info", event, fields)


def warning(event: str, **fields: Any) -> WriteLog:
    """Return the effect that logs, at level warning, a problem that was repaired or can wait."""
    return WriteLog("warning", event, fields)


def error(event: str, **fields: Any) -> WriteLog:
    """Return the effect that logs, at level error, a problem that a person has to solve."""
    return WriteLog("error", event, fields)
