"""What a master does to the world: one frozen value for each thing. The record has moved when it is returned."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias

from rota.child.slot_record import TaskInSlot
from rota.protocol.nodes import Announced, NodeReport
from rota.protocol.outcome import Settlement
from rota.protocol.schedule_store import Declared
from rota.protocol.store import FIRST_HELD, Blame
from rota.protocol.tiers import Domain
from rota.protocol.wire import Packed
from rota.telemetry.metrics import CounterDefinition, GaugeDefinition
from rota_supervisor.config.model import ConditionConfig, Config
from rota_supervisor.control.port import Answer
from rota_supervisor.exits import ExitCode
from rota_supervisor.master.core.children import ChildRef

# Children


class Spawn(NamedTuple):
    """Start a zygote, a poller or the exporter. Followed by Started and StackFileMade."""

    child: ChildRef
    settings: dict[str, Any]


class ForkWorker(NamedTuple):
    """Give a slot to a worker and ask a zygote for it. `settings`: of its pool. `renewed_ns`: since when its lease
    runs. `quiet`: it is to claim nothing for now; `places`: how many tasks it runs at once. Followed by StackFileMade
    and what the zygote says."""

    zygote: ChildRef
    child: ChildRef
    owner: str
    pool: str
    settings: str
    renewed_ns: int
    quiet: bool
    places: int = 1


class Order(Enum):
    """What a child is told by a signal. LEAVE: when it has finished. INTERRUPT: a task of it is over its soft limit.
    WRITE_STACK: to its stack file. KILL: it, and all of its group."""

    LEAVE = auto()
    INTERRUPT = auto()
    WRITE_STACK = auto()
    KILL = auto()


class Tell(NamedTuple):
    """Tell a child something."""

    child: ChildRef
    order: Order


class SetQuiet(NamedTuple):
    """Have workers claim nothing for now, or claim again."""

    children: tuple[ChildRef, ...]
    quiet: bool


class TellCancelled(NamedTuple):
    """Tell a worker that the task of this number in that place was cancelled. If another runs there by then, that hears
    nothing of it."""

    child: ChildRef
    place: int
    number: int


class CloseChannels(NamedTuple):
    """Let go of the channel and the stack file of a child that is no more."""

    child: ChildRef


class FreeSlot(NamedTuple):
    """Let a slot be used again; a late process of this life finds that it is not its own."""

    slot: int


# Redis


class Register(NamedTuple):
    """Register an owner for each of these slots and nonces. Followed by OwnersRegistered, when Redis takes it."""

    places: tuple[tuple[int, int], ...]
    lease_seconds: float


class HeldLease(NamedTuple):
    """The lease of a living worker: its owner, for how long the worker was told, and where it reads of renewals."""

    owner: str
    lease_seconds: float
    slot: int
    nonce: int


class RenewLeases(NamedTuple):
    """Renew all leases, announce for `lease_seconds` which queues this node serves, the tiers of its pools, what holds
    for the whole fleet, which schedules and `tasks` this node declares, and how it is (`report`), and look at what is
    closed. `is_settled`: no reload may be refused any more, so schedules that are no longer declared are not wanted.
    Followed by ClosedSeen, when Redis answers, and LeasesRenewed."""

    held: tuple[HeldLease, ...]
    queues: tuple[str, ...]
    pools: Mapping[str, tuple[Domain, ...]]
    lease_seconds: float
    announced: Announced
    conditions: Mapping[str, ConditionConfig]
    schedules: tuple[Declared, ...] = ()
    is_settled: bool = False
    report: NodeReport = NodeReport()
    tasks: tuple[str, ...] | None = None


class Retire(NamedTuple):
    """Give back what a dead worker held. `names`: by id the names of the tasks that ran. `settlements`: outcomes it had
    finished, and `over_limit`, what becomes of tasks that were ended by their time limit. `has_left`: it did not die.
    Followed by OwnerRetired, when Redis takes it."""

    slot: int
    nonce: int
    owner: str
    names: Mapping[str, str]
    blame: Blame
    settlements: Packed
    tiers: Packed
    has_left: bool = False
    over_limit: tuple[Settlement, ...] = ()

    def name_of(self, task_id: str) -> str:
        """The name of a task that ran; if nobody could read which did, that is not known; of one that did not, ""."""
        return self.names.get(task_id) or self.names.get(FIRST_HELD, "")


class Recall(NamedTuple):
    """Settle what was finished of a claim, and give back what waits behind the task, which takes long."""

    child: ChildRef
    owner: str
    task: TaskInSlot
    finished: Packed
    tiers: Packed


# Configuration


class ReadConfiguration(NamedTuple):
    """Read it for a reload. Followed by ConfigurationRead."""

    ticket: int


class PreparePlace(NamedTuple):
    """Bind the place where the exporter is to listen, without using it yet; `only_try`: and let go of it at once.
    Followed by PlacePrepared."""

    ticket: int
    listen: str
    only_try: bool = False


class ListenAt(NamedTuple):
    """Listen there from now on, for the exporter. Followed by PlaceTaken."""

    listen: str


class DropPreparedPlace(NamedTuple):
    """Let go of a place that was prepared and will not be used: who comes there would wait for ever."""


class ConfigureLog(NamedTuple):
    """Write the log as this configuration says."""

    config: Config


# People


class Respond(NamedTuple):
    """Answer a request, or refuse it, and say why."""

    ticket: int
    answer: Answer | None = None
    refused: str = ""


class WriteLog(NamedTuple):
    """Write an event to the log. `level`: debug, info, warning or error."""

    level: str
    event: str
    fields: Mapping[str, Any]


class AddToCounter(NamedTuple):
    """Count something, so much of it."""

    counter: CounterDefinition
    labels: tuple[str, ...] = ()
    amount: float = 1.0


class SetGauge(NamedTuple):
    """Show a number; None when it does not exist any more."""

    gauge: GaugeDefinition
    labels: tuple[str, ...] = ()
    value: float | None = None


class SetGaugeToNow(NamedTuple):
    """Show the time by the wall clock."""

    gauge: GaugeDefinition


class PutUpNotice(NamedTuple):
    """Tell the exporter what is new of the fleet."""


class NotifyManager(NamedTuple):
    """Tell the service manager something. `can_wait`: it is left out when earlier messages have not been taken."""

    message: str
    can_wait: bool = False


class WriteReport(NamedTuple):
    """Write the status of the fleet and the stack of every child to the log."""


class ReportBlocked(NamedTuple):
    """Write to the log where a worker stands whose loop does not come round, and which task holds it up."""

    child: ChildRef
    pool: str
    seconds: float


class Leave(NamedTuple):
    """End the master: the fleet has left, or, with another code, the first generation will never work."""

    code: ExitCode = ExitCode.CLEAN
    messages: tuple[str, ...] = ()


Effect: TypeAlias = (
    "Spawn | ForkWorker | Tell | SetQuiet | TellCancelled | CloseChannels | FreeSlot | Register | RenewLeases | Retire"
    " | Recall | ReadConfiguration | PreparePlace | ListenAt | DropPreparedPlace | ConfigureLog | Respond"
    " | WriteLog | AddToCounter | SetGauge | SetGaugeToNow | PutUpNotice | NotifyManager | WriteReport | ReportBlocked"
    " | Leave"
)


def info(event: str, **fields: Any) -> WriteLog:
    """Something that people may want to know."""
    return WriteLog("info", event, fields)


def warning(event: str, **fields: Any) -> WriteLog:
    """Something that was mended, or can wait."""
    return WriteLog("warning", event, fields)


def error(event: str, **fields: Any) -> WriteLog:
    """Something that needs a person."""
    return WriteLog("error", event, fields)
