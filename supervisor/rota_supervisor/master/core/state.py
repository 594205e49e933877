"""All that the master knows. Only the functions of this folder move it, and only as an event has them do."""

import copy
import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

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
from rota_supervisor.master.core.start_backoff import CALM, StartBackoff
from rota_supervisor.master.core.targets import Stop, WantedFleet
from rota_supervisor.notice import Closed, FleetEvent, Held, Notice, PoolState

MOST_EVENTS: Final = 100
MOST_CLOSED_SHOWN: Final = 20


@dataclass(slots=True)
class Code:
    """One loading of the task modules: the `tasks` they define with their queues, what their `schedules` say, and the
    module being imported."""

    tasks: dict[str, str] = field(default_factory=dict)
    schedules: dict[str, str] = field(default_factory=dict)
    importing: str = ""
    is_loaded: bool = False


@dataclass(frozen=True, slots=True)
class Declarations:
    """What the `generation` in force declares: what each schedule says, `since` when this node has said so, and the
    names of its `tasks`, None until its modules were imported."""

    generation: Generation | None = None
    texts: Mapping[str, bytes] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)
    tasks: tuple[str, ...] | None = None


class Quiet(Enum):
    """Whether the fleet claims nothing for now, though it stays; and who asked for that, TSTP or a person."""

    OFF = auto()
    BY_SIGNAL = auto()
    BY_PERSON = auto()

    @property
    def is_asked(self) -> bool:
        """Whether workers are to be quiet."""
        return self is not Quiet.OFF


@dataclass(slots=True)
class Reload:
    """One reload that was asked for, until it is known what becomes of it. `fresh`: the code is to be loaded again.
    `only_shown`: a person wants to see what it would do. `loaded`: what was read for it, None before. `differences`: a
    line for each key that it gives another value."""

    ticket: int
    fresh: bool = False
    only_shown: bool = False
    loaded: Loaded | None = None
    differences: list[str] = field(default_factory=list)

    @property
    def read(self) -> Loaded:
        """What was read for it, which has happened."""
        assert self.loaded is not None
        return self.loaded


@dataclass(slots=True)
class Loading:
    """What the candidate generation changes, and the tickets of those who wait to hear what becomes of it. `displaced`:
    the same of the first generation, which comes back when the candidate that took its place is refused."""

    changes: list[str] = field(default_factory=list)
    reloads: list[Reload] = field(default_factory=list)
    displaced: "Loading | None" = None

    @property
    def is_asked_for(self) -> bool:
        """Whether it is a reload: the first generation is none, unless something was changed while it loaded."""
        return bool(self.changes or self.reloads)

    @property
    def displaced_reloads(self) -> list[Reload]:
        """The reloads of the first generation, when this candidate took its place."""
        return [] if self.displaced is None else self.displaced.reloads


@dataclass(slots=True)
class Leases:
    """When leases are renewed. `due_at`: the next time. `begun_at`: the last time. `seconds`: from one renewal to the
    next. `is_renewing`: a call is on its way. `is_urgent`: another is to follow at once. `known_lost`: owners whose
    lease is known to be lost."""

    due_at: float = -math.inf
    begun_at: float = -math.inf
    seconds: float = 0.0
    is_renewing: bool = False
    is_urgent: bool = False
    known_lost: set[str] = field(default_factory=set)

    def hurry(self) -> None:
        """Renew at the next tick."""
        self.is_urgent = True
        self.due_at = 0.0


@dataclass(frozen=True, slots=True)
class Picture:
    """What of a fleet's life concerns its service manager. `works`: the first generation is in service. `reloads`:
    how many reloads and restarts were asked for so far. `changing`: one of them is not over."""

    works: bool = False
    reloads: int = 0
    changing: bool = False
    stopping: bool = False


@dataclass(slots=True)
class FleetEvents:
    """The last MOST_EVENTS lines of the log that people look for, and how many there were."""

    count: int = 0
    last: deque[FleetEvent] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))


@dataclass(slots=True)
class Shown:
    """What people, probes and service managers were shown last, so that they are shown what changed only."""

    notice: Notice = field(default_factory=Notice)
    conditions: dict[tuple[Role, str], PoolState] = field(default_factory=dict)
    workers: tuple[dict[str, int], Counter[tuple[str, str]]] | None = None
    gauges: dict[tuple[GaugeDefinition, tuple[str, ...]], float | None] = field(default_factory=dict)
    picture: Picture = field(default_factory=Picture)
    status: str = ""
    status_at: float = -math.inf
    alive_at: float = -math.inf
    patience_at: float = -math.inf


@dataclass(slots=True)
class MasterState:
    """The children, what was asked for, the stage of stopping, and what was heard of Redis.

    `codes`: what is known of each code that a wanted generation forks from, by the generation that brought it.
    `reloads`: those whose configuration is being read, by number; `reloads_asked`: how many there were so far.
    `content`: what stood in the configuration's file when it was last read. `has_worked`: the first generation is in.
    `awake_since`: when the master last found that it had been stopped, or that the machine had slept.
    `ticked_at`, `next_look`: when it last looked what is to be done, and when it has to look again. `has_ended`: the
    master was told to end. `last_reload`, `last_death`: what became of the last one, `at` which second, for people.
    `recalled`: by slot the life and the task for whose sake a claim was recalled last. `closed`: the queues from which
    nobody could claim at `closed_at`. `closed_by_fault`: one whose condition fails, by name or pattern.
    `quiet_since`: since when nothing is claimed here. `held`: the pools in back-off. `events`: what
    people look for.
    """

    surroundings: Surroundings
    wanted: WantedFleet
    content: bytes | None = None
    children: Children = field(default_factory=Children)
    backoffs: dict[PoolKey, StartBackoff] = field(default_factory=dict)
    stop: Stop = field(default_factory=Stop)
    quiet: Quiet = Quiet.OFF
    quiet_since: float = math.inf
    closed: tuple[ClosedQueue, ...] = ()
    closed_at: float = 0.0
    closed_by_fault: Mapping[str, ClosedQueue] = field(default_factory=dict)
    codes: dict[int, Code] = field(default_factory=dict)
    loading: Loading = field(default_factory=Loading)
    reloads: dict[int, Reload] = field(default_factory=dict)
    reloads_asked: int = 0
    has_worked: bool = False
    has_ended: bool = False
    leases: Leases = field(default_factory=Leases)
    declarations: Declarations = field(default_factory=Declarations)
    shown: Shown = field(default_factory=Shown)
    recalled: dict[int, tuple[int, int]] = field(default_factory=dict)
    redis_up: bool | None = None
    redis_refusal: str = ""
    redis_round_trip_seconds: float | None = None
    redis_silent_since: float = math.inf
    eviction_policy: str = ""
    place: str = ""
    started_at: float = 0.0
    awake_since: float = 0.0
    ticked_at: float = 0.0
    next_look: float = 0.0
    last_reload: Mapping[str, Any] | None = None
    last_death: Mapping[str, Any] | None = None
    held: tuple[Held, ...] = ()
    events: FleetEvents = field(default_factory=FleetEvents)

    @classmethod
    def first(cls, surroundings: Surroundings, loaded: Loaded, now: float) -> "MasterState":
        """At the start: the first generation is on its way."""
        rollout = Rollout.first(loaded.config, loaded.origins)
        state = cls(surroundings, WantedFleet(rollout), loaded.content, started_at=now, awake_since=now, ticked_at=now)
        state.keep_codes(rollout.generations)
        return state

    def detached(self) -> "MasterState":
        """Return a copy that shares nothing that can change: events that it takes leave this state as it is."""
        frozen = (self.surroundings, *self.rollout.generations)  # large, and cannot change
        return copy.deepcopy(self, {id(each): each for each in frozen})

    @property
    def rollout(self) -> Rollout:
        """The generations."""
        return self.wanted.rollout

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.rollout.in_force.config

    @property
    def phase(self) -> Phase:
        """What the master does, as its own slot shows it."""
        if self.stop.is_asked:
            return Phase.DRAINING
        if self.rollout.current is None:
            return Phase.BOOTING
        return Phase.QUIET if self.quiet.is_asked else Phase.IDLE

    def quiet_seconds(self, now: float) -> float:
        """For how long this node has been quiet, 0 when it is not."""
        return now - self.quiet_since if self.quiet.is_asked else 0.0

    @property
    def shown_closed(self) -> tuple[Closed, ...]:
        """The closed queues, for people: those with a fault first, then the longest."""
        rows = sorted(self.closed, key=lambda row: (not row.error, -row.closed_age_us))[:MOST_CLOSED_SHOWN]
        at = self.closed_at
        return tuple(Closed(row.queue, row.closed_by, row.error, at - row.closed_age_us / MICROSECONDS) for row in rows)

    @property
    def taken_queues(self) -> list[str]:
        """The queues that this node's workers take, as many as there are to be of them now."""
        return taken_queues(self.config, self.wanted.counts)

    def label_of_queue(self, queue: str) -> str:
        """Under which name a queue is counted, by the patterns that are in force."""
        return self.rollout.in_force.queue_labels.of(queue)

    def generation_of(self, number: int) -> Generation:
        """A generation; the one in force when that one is over."""
        return self.rollout.of(number) or self.rollout.in_force

    def config_of(self, generation: int) -> Config:
        """A generation's configuration."""
        return self.generation_of(generation).config

    def settings_of(self, child: Child) -> WorkersOfPool | None:
        """What a worker is told, None when its pool is no more."""
        return self.generation_of(child.generation).pools.get(child.pool)

    def backoff_of(self, key: PoolKey) -> StartBackoff:
        """The back-off of one generation of a pool."""
        return self.backoffs.get(key, CALM)

    def code_of(self, number: int) -> Code:
        """The code that the generation of this number brought. A code that no wanted generation needs is an empty one,
        kept nowhere."""
        return self.codes.get(number) or Code()

    def keep_codes(self, generations: Iterable[Generation]) -> None:
        """Forget the codes of all other generations."""
        self.codes = {each.code: self.code_of(each.code) for each in generations}
