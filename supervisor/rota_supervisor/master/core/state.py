"""The state of the master. Only the functions in this folder change the state, and only when they handle an event."""

import copy
import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, TypedDict

from rota.child.slots import Phase
from rota.protocol.entry import MICROSECONDS
from rota.protocol.views import ClosedQueue
from rota.telemetry.metrics import GaugeDefinition
from rota_supervisor.config.loader import Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import taken_queues
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, Children, PoolKey
from rota_supervisor.master.core.generations import Generation, Rollout
from rota_supervisor.master.core.process_settings import Surroundings, WorkersOfPool
from rota_supervisor.master.core.scaling_inputs import PoolInputs
from rota_supervisor.master.core.scaling_rule import Decision, PoolScaling
from rota_supervisor.master.core.start_backoff import CALM, StartBackoff
from rota_supervisor.master.core.targets import Stop, WantedFleet
from rota_supervisor.master_snapshot import Closed, FleetEvent, MasterSnapshot, PoolInBackoff, PoolState

MOST_EVENTS: Final = 100
MOST_CLOSED_SHOWN: Final = 20


@dataclass(slots=True)
class Code:
    """The result of loading the task modules once."""

    tasks: dict[str, str] = field(default_factory=dict)  # the queue of each task that the modules define
    schedules: dict[str, str] = field(default_factory=dict)  # the definition of each schedule, as text
    importing: str = ""  # the module that is being imported
    is_loaded: bool = False  # whether all modules have been imported


@dataclass(frozen=True, slots=True)
class Declarations:
    """The schedules and tasks that the generation in force declares."""

    generation: Generation | None = None
    texts: Mapping[str, bytes] = field(default_factory=dict)  # the encoded definition of each schedule
    since: Mapping[str, float] = field(default_factory=dict)  # when this node declared each definition of a schedule
    tasks: tuple[str, ...] | None = None  # the names of the tasks, or None until the modules are imported
    sign_with: str = ""  # the name of the key that signs the schedules


class Quiet(Enum):
    """The quiet state of the fleet: whether the fleet should not claim tasks, and how this was requested."""

    OFF = auto()
    BY_SIGNAL = auto()  # requested by SIGTSTP
    BY_PERSON = auto()

    @property
    def is_requested(self) -> bool:
        """Whether workers should not claim tasks."""
        return self is not Quiet.OFF


@dataclass(slots=True)
class Reload:
    """A requested reload whose outcome is not known yet."""

    ticket: int  # the number that connects the reply with the request
    fresh: bool = False  # whether the code is loaded again
    only_shown: bool = False  # whether the request is a preview
    loaded: Loaded | None = None  # the configuration that was read for the reload, or None before it is read
    differences: list[str] = field(default_factory=list)  # a line for each key whose value changes

    @property
    def read(self) -> Loaded:
        """The configuration that was read for the reload. Use this only after it has been read."""
        assert self.loaded is not None
        return self.loaded


class ReloadOutcome(TypedDict, total=False):
    """The outcome of a reload, as the status and replies show it in JSON."""

    result: str  # `success` or `failure`
    changes: list[str]  # the parts of the configuration that the reload changed
    faults: list[str]  # the reasons why the reload was refused
    at: float  # when the reload ended


@dataclass(slots=True)
class Loading:
    """The changes of the candidate generation, and the reloads that wait for its outcome."""

    changes: list[str] = field(default_factory=list)
    reloads: list[Reload] = field(default_factory=list)
    # The Loading of the first generation, if a reload replaced that generation before it worked. If the reload is
    # refused, the first generation becomes the candidate again.
    displaced: "Loading | None" = None

    @property
    def is_reload(self) -> bool:
        """Whether a reload is in progress. While the first generation starts, this is true only if a reload was
        requested in the meantime."""
        return bool(self.changes or self.reloads)

    @property
    def displaced_reloads(self) -> list[Reload]:
        """The reloads that waited for the first generation, if this candidate replaced that generation before it
        worked. Otherwise the list is empty."""
        return [] if self.displaced is None else self.displaced.reloads


@dataclass(slots=True)
class Leases:
    """The schedule of lease renewals."""

    due_at: float = -math.inf  # when the next round of renewals begins
    started_at: float = -math.inf  # when the last round of renewals began
    seconds: float = 0.0  # the time from one round to the next
    is_renewing: bool = False  # whether a round is running
    is_urgent: bool = False  # whether another round follows at once
    known_lost: set[str] = field(default_factory=set)  # the owners that are known to have lost their leases

    def hurry(self) -> None:
        """Make a round of renewals due at the next tick, or as soon as the running round has ended."""
        self.is_urgent = True
        self.due_at = 0.0


@dataclass(slots=True)
class ScaledPoolState:
    """The state of a pool with a range of workers, as this node knows it."""

    leader: str = ""  # the node that decides for the pool
    history: PoolScaling | None = None  # the pool's history if this node leads the pool, otherwise None
    inputs: PoolInputs | None = None  # the inputs of the last decision if this node leads the pool, otherwise None
    decision: Decision | None = None  # the decision in force
    granted: int | None = None  # how many workers the node's budget permits, or None without a budget


@dataclass(slots=True)
class ScalingRounds:
    """The state of the exchanges with other nodes about pools with a range of workers."""

    due_at: float = -math.inf  # when the next exchange begins
    is_exchanging: bool = False
    pools: dict[str, ScaledPoolState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The state of the fleet that a service manager needs."""

    works: bool = False  # whether the first generation has started successfully
    reloads: int = 0  # the number of reloads and restarts requested so far
    changing: bool = False  # whether a reload or restart is in progress
    stopping: bool = False


@dataclass(slots=True)
class FleetEvents:
    """The most recent log entries about the fleet, which the status lists."""

    count: int = 0  # the number of events so far
    last: deque[FleetEvent] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))


@dataclass(slots=True)
class Shown:
    """The output that people, probes and service managers have last received. New output is compared with it, so that
    only changes are sent."""

    master_snapshot: MasterSnapshot = field(default_factory=MasterSnapshot)
    # The state of each pool that was last logged.
    conditions: dict[tuple[Role, str], PoolState] = field(default_factory=dict)
    # The desired number of workers by pool and the actual number by pool and state, or None before the first tick
    workers: tuple[dict[str, int], Counter[tuple[str, str]]] | None = None
    gauges: dict[tuple[GaugeDefinition, tuple[str, ...]], float | None] = field(default_factory=dict)
    scaling_gauges: dict[tuple[GaugeDefinition, tuple[str, ...]], float | None] = field(default_factory=dict)
    service_state: ServiceState = field(default_factory=ServiceState)
    status: str = ""  # the last status line for the service manager
    status_at: float = -math.inf  # when `status` was last computed
    alive_at: float = -math.inf  # when the watchdog message was last sent
    extended_at: float = -math.inf  # when more time was last requested from the service manager


@dataclass(slots=True)
class MasterState:
    """The state of the master, for example its children, its requests, its stage of stopping, and what it knows about
    Redis."""

    surroundings: Surroundings
    wanted: WantedFleet
    content: bytes | None = None  # the contents of the configuration file when it was last read
    children: Children = field(default_factory=Children)
    backoffs: dict[PoolKey, StartBackoff] = field(default_factory=dict)
    stop: Stop = field(default_factory=Stop)

    # Claiming
    quiet: Quiet = Quiet.OFF
    quiet_since: float = math.inf  # when this node stopped claiming tasks, or `inf` if it claims
    closed: tuple[ClosedQueue, ...] = ()  # the queues that were closed at `closed_at`
    closed_at: float = 0.0
    # For each queue name or pattern, one queue that is closed because its condition fails
    closed_by_fault: Mapping[str, ClosedQueue] = field(default_factory=dict)

    # Generations and reloads

    # The code that each generation loaded, as long as a generation in use needs it
    codes: dict[int, Code] = field(default_factory=dict)
    loading: Loading = field(default_factory=Loading)
    # The reloads whose configuration is being read or checked, by ticket.
    reloads: dict[int, Reload] = field(default_factory=dict)
    reloads_requested: int = 0  # the number of reloads requested so far
    has_worked: bool = False  # whether the first generation has worked
    has_ended: bool = False  # whether the effect Leave has been returned

    # Redis
    leases: Leases = field(default_factory=Leases)
    declarations: Declarations = field(default_factory=Declarations)
    shown: Shown = field(default_factory=Shown)
    # For each slot, the nonce of its worker and the number of the long-running task for which prefetched tasks were
    # last returned
    returned_for: dict[int, tuple[int, int]] = field(default_factory=dict)
    redis_up: bool | None = None  # whether Redis replies, or None before the first call
    redis_refusal: str = ""  # the error with which the server refuses all calls, or "" if it accepts them
    redis_round_trip_seconds: float | None = None
    redis_silent_since: float = math.inf  # when the first call to Redis without a reply was sent, or `inf`
    eviction_policy: str = ""  # the server's eviction policy after its last change, or "" if it never changed

    # Scaling
    scaling_rounds: ScalingRounds = field(default_factory=ScalingRounds)
    # For each pool, the number of first attempts that ended with the death of their worker, for the scaling rule
    first_crashes: Counter[str] = field(default_factory=Counter)

    # The exporter and the clock
    listen_address: str = ""  # the address on which the exporter listens, or "" for none
    started_at: float = 0.0
    awake_since: float = 0.0  # when the master last noticed that it had been suspended or that the machine had slept
    ticked_at: float = 0.0  # the time of the last tick
    next_plan_at: float = 0.0  # the earliest time at which the next plan may contain an action

    # For people
    last_reload: ReloadOutcome | None = None
    last_death: Mapping[str, Any] | None = None  # the last death that was logged as a warning, with its time `at`
    held: tuple[PoolInBackoff, ...] = ()  # the pools in back-off
    events: FleetEvents = field(default_factory=FleetEvents)

    @classmethod
    def first(cls, surroundings: Surroundings, loaded: Loaded, now: float) -> "MasterState":
        """Return the state of a starting master, with the first generation as its candidate."""
        rollout = Rollout.first(loaded.config, loaded.origins)
        state = cls(surroundings, WantedFleet(rollout), loaded.content, started_at=now, awake_since=now, ticked_at=now)
        state.keep_codes(rollout.generations)
        return state

    def detached(self) -> "MasterState":
        """Return a copy that shares no mutable value with this state, so it can handle events independently."""
        # These values are large and immutable, so both states share them.
        frozen = (self.surroundings, *self.rollout.generations)
        return copy.deepcopy(self, {id(each): each for each in frozen})

    @property
    def rollout(self) -> Rollout:
        """The generations in use."""
        return self.wanted.rollout

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.rollout.in_force.config

    @property
    def phase(self) -> Phase:
        """The phase of the master, as its own slot shows it."""
        if self.stop.is_requested:
            return Phase.DRAINING
        if self.rollout.current is None:
            return Phase.BOOTING
        return Phase.QUIET if self.quiet.is_requested else Phase.IDLE

    def quiet_seconds(self, now: float) -> float:
        """Return how long this node has been quiet, or 0 if it is not quiet."""
        return now - self.quiet_since if self.quiet.is_requested else 0.0

    @property
    def shown_closed(self) -> tuple[Closed, ...]:
        """The closed queues to show. Queues whose condition could not be evaluated come first, then the queues that
        have been closed longest."""
        rows = sorted(self.closed, key=lambda row: (not row.error, -row.closed_age_us))[:MOST_CLOSED_SHOWN]
        at = self.closed_at
        return tuple(Closed(row.queue, row.closed_by, row.error, at - row.closed_age_us / MICROSECONDS) for row in rows)

    @property
    def taken_queues(self) -> list[str]:
        """The queues that this node's workers serve, given the current numbers of workers."""
        return taken_queues(self.config, self.wanted.counts)

    def label_of_queue(self, queue: str) -> str:
        """Return the metric label under which a queue is counted: its own name if the tiers in force list it, and
        otherwise the longest pattern that matches it."""
        return self.rollout.in_force.queue_labels.of(queue)

    def generation_of(self, number: int) -> Generation:
        """Return the generation with this number, or the generation in force if that one is no longer in use."""
        return self.rollout.of(number) or self.rollout.in_force

    def config_of(self, generation: int) -> Config:
        """Return the configuration of a generation."""
        return self.generation_of(generation).config

    def settings_of(self, child: Child) -> WorkersOfPool | None:
        """Return the settings of a worker, or None if its pool no longer exists."""
        return self.generation_of(child.generation).pools.get(child.pool)

    def backoff_of(self, key: PoolKey) -> StartBackoff:
        """Return the back-off of one generation of a pool."""
        return self.backoffs.get(key, CALM)

    def code_of(self, number: int) -> Code:
        """Return the record about the code that the generation with this number loaded.

        If no generation in use needs that code, the result is an empty record that is not stored.
        """
        return self.codes.get(number) or Code()

    def keep_codes(self, generations: Iterable[Generation]) -> None:
        """Forget all loaded code except that of these generations."""
        self.codes = {each.code: self.code_of(each.code) for each in generations}
