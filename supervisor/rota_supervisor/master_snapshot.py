"""The data that the master and the exporter store for each other in their slots. The master stores a snapshot of the
fleet. The exporter stores the node's throughput, which the master sends to Redis with its heartbeats. This module also
contains the texts with which both describe the state of a fleet and its pools."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypedDict

from rota.child.slots import Phase
from rota.protocol.nodes import NodeReport
from rota_supervisor.layout import Role

Json = dict[str, Any]

_MAX_CHARACTERS: Final = 300  # longer error texts are truncated
_THROUGHPUT_SECONDS: Final = 15.0

# The state of a fleet in each phase of its master.
FLEET_STATES: Final = {
    Phase.BOOTING: "starting",
    Phase.IDLE: "running",
    Phase.QUIET: "quiet",
    Phase.DRAINING: "draining",
}


class PoolState(StrEnum):
    """The state of a pool."""

    RUNNING = "running"
    BACKOFF = "backoff"  # several starts have failed in a row, and the next start is delayed
    FATAL = "fatal"  # so many starts failed that a person is needed; a start is still tried after each pause


class BackoffRow(TypedDict):
    """A pool in back-off, as the control socket and `/status.json` show it."""

    role: str
    pool: str
    state: str
    failures_in_a_row: int
    next_try_seconds: float
    last_error: str


class PoolInBackoff(NamedTuple):
    """A pool of workers, or a role without pools such as the poller, whose next child is started only after a pause."""

    role: str
    pool: str
    state: str  # "backoff" or "fatal"
    failures: int  # the number of failures in a row
    next_try_at: float  # the time of the next start, in seconds of CLOCK_BOOTTIME
    last_error: str  # how the pool's last child ended

    def row(self, now: float) -> BackoffRow:
        """Return the back-off of the pool as a row for the control socket and `/status.json`."""
        return BackoffRow(
            role=self.role,
            pool=self.pool,
            state=self.state,
            failures_in_a_row=self.failures,
            next_try_seconds=round(max(0.0, self.next_try_at - now), 1),
            last_error=self.last_error,
        )


SLOW_SECONDS: Final = 0.04  # round trips within one site take less; the alert RotaRedisSlow has the same limit
EVICTS_KEYS: Final = "Redis is configured to drop keys when its memory is full"


def is_slow(round_trip_seconds: float) -> bool:
    """Whether Redis replies so slowly that tasks are delayed."""
    return round_trip_seconds >= SLOW_SECONDS


def slow_text(round_trip_seconds: float) -> str:
    return f"Redis is slow: {round_trip_seconds * 1000:,.0f} ms per round trip"


def redis_warnings(round_trip_seconds: float | None, *, evicts_keys: bool) -> list[str]:
    """Return warnings about a Redis server that replies, for example that it is slow."""
    found = [slow_text(round_trip_seconds)] if round_trip_seconds and is_slow(round_trip_seconds) else []
    return [*found, EVICTS_KEYS] if evicts_keys else found


def sentence(row: Mapping[str, Any]) -> str:
    """Convert a BackoffRow to a sentence."""
    what = f"pool {row['pool']}" if row["role"] == Role.WORKER else f"the {row['role']}"
    failed = f"{row['failures_in_a_row']} failures in a row"
    next_try = f"next try in {row['next_try_seconds']:g} s"
    return f"{what} is in {row['state']}: {failed}, {next_try}; last error: {row['last_error'] or 'unknown'}"


class ClosedRow(TypedDict):
    """A closed queue, as the control socket and `/status.json` show it."""

    queue: str
    condition: str
    error: str
    seconds: float


class Closed(NamedTuple):
    """A queue from which no worker can claim."""

    queue: str
    condition: str  # the name of the condition that closes the queue, or "" if the queue is paused
    error: str  # the error of the condition, or "" if there is none
    since: float  # the time at which the queue was closed, in seconds of CLOCK_BOOTTIME

    def row(self, now: float) -> ClosedRow:
        """Return the queue as a row, which the control socket and `/status.json` show to people."""
        seconds = round(now - self.since, 1)
        return ClosedRow(queue=self.queue, condition=self.condition, error=self.error, seconds=seconds)


class FleetEvent(NamedTuple):
    """A log line that is shown in the list of events on the status page."""

    n: int  # the sequence number of the event
    at: float  # the time of the event, in seconds of CLOCK_BOOTTIME
    level: str
    event: str  # the name of the event
    text: str  # the event as text for people
    fields: Mapping[str, Any]  # the fields of the log line


def dated(happened: Mapping[str, Any] | None, now: float, wall: float) -> Json | None:
    """Return an event whose time has been converted from CLOCK_BOOTTIME to the wall clock. `now` and `wall` are the
    current times of these two clocks."""
    return None if happened is None else {**happened, "at": round(wall - (now - happened["at"]), 3)}


def dead_child(death: Mapping[str, Any]) -> str:
    """Return a short description of a child that died, for example `worker in slot 12 of pool default`."""
    of_pool = f" of pool {death['pool']}" if death.get("pool") else ""
    return f"{death.get('child', 'a child')} in slot {death.get('slot')}{of_pool}"


def cause_of_death(death: Mapping[str, Any]) -> str:
    """Return the cause of a child's death, as text for people if the death has such a text."""
    return str(death.get("words") or death.get("reason"))


def death_text(death: Mapping[str, Any]) -> str:
    """Describe a child and the cause of its death in one line."""
    return f"{dead_child(death)}: {cause_of_death(death)}"


class ChildFacts(NamedTuple):
    """The facts about a child that only the master knows. All other facts about the child are in its slot."""

    slot: int
    pool: str | None = None  # "" for a role other than worker; None if the master reports nothing about the child
    generation: int | None = None  # None if the master reports nothing about the child
    state: str = ""  # a `ChildState`; "" if the master reports nothing about the child
    ready_at: float | None = None  # the time at which the child reported that it is ready


class PoolFacts(NamedTuple):
    """The facts about a pool of workers that only the master knows."""

    name: str
    desired: int  # how many workers the pool should have
    origin: str  # what determines `desired`, for example the file or an operator
    configured: int | str  # the configured number or range of workers
    concurrency: int  # how many tasks a worker runs at once
    workers: Mapping[str, int]  # the number of workers in each state
    scaling: Mapping[str, Any] | None = None  # the range and the decision in force, or None if the number is fixed


@dataclass(frozen=True, slots=True)
class MasterSnapshot:
    """The master's report about its fleet. Times are in seconds of CLOCK_BOOTTIME."""

    fleet: str = ""  # the namespace
    node: str = ""  # the name of the node
    pid: int = 0
    url: str | None = None  # the URL of the status page for other machines, or None if it is not reachable from there
    started_at: float | None = None
    generation: int = 0  # the generation in force
    loading: bool = False  # whether the master is loading a new generation
    redis_up: bool = False
    redis_refusal: str = ""  # the error with which Redis currently refuses commands, or ""
    redis_round_trip_seconds: float | None = None  # None while Redis is unreachable
    evicts_keys: bool = False  # whether Redis drops keys when its memory is full
    pools: tuple[PoolFacts, ...] = ()
    held: tuple[PoolInBackoff, ...] = ()  # the pools whose next start is delayed by a back-off
    quiet_since: float | None = None  # the time at which the fleet became quiet, or None if it is not quiet
    closed: tuple[Closed, ...] = ()  # the queues from which no worker can claim
    last_reload: Mapping[str, Any] | None = None  # the outcome of the last reload; `at` is its time
    last_death: Mapping[str, Any] | None = None  # the facts about the last death of a child; `at` is its time
    children: tuple[ChildFacts, ...] = ()
    events: tuple[FleetEvent, ...] = ()  # the latest events

    def to_json(self, room: int) -> bytes:
        """Return the snapshot as JSON of at most `room` bytes. If the snapshot does not fit, the oldest events and the
        last rows of other lists are omitted."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values["held"] = [each._replace(last_error=each.last_error[:_MAX_CHARACTERS]) for each in self.held]
        raw = json.dumps(values).encode()
        return raw if len(raw) <= room else self._halved().to_json(room)

    def _halved(self) -> "MasterSnapshot":
        held = self.held[: len(self.held) // 2]
        children = self.children[: len(self.children) // 2]
        return replace(self, held=held, children=children, events=self.events[(len(self.events) + 1) // 2 :])

    @classmethod
    def from_json(cls, raw: bytes) -> "MasterSnapshot":
        """Return the snapshot that `to_json` wrote. If there are no bytes, return an empty snapshot."""
        if not raw:
            return cls()
        values = json.loads(raw)
        for name, kind in _ROWS.items():
            values[name] = tuple(kind(*row) for row in values[name])
        return cls(**values)


_ROWS: Final[Mapping[str, type[PoolInBackoff | Closed | ChildFacts | PoolFacts | FleetEvent]]] = {
    "held": PoolInBackoff,
    "closed": Closed,
    "pools": PoolFacts,
    "children": ChildFacts,
    "events": FleetEvent,
}


class NodeThroughput(NamedTuple):
    """The throughput and the lag of a node, as its exporter measured them."""

    at: float  # the time of the observation, in seconds of CLOCK_BOOTTIME
    done_per_second: float
    lag_p50_seconds: float | None  # the median lag of starts over the last few minutes, or None if there were none
    lag_p99_seconds: float | None  # the 99th percentile of the lag of these starts, or None if there were none
    late: float | None  # the share of these starts that missed their lag objective

    def to_json(self) -> bytes:
        return json.dumps(self).encode()

    def added_to(self, report: NodeReport) -> NodeReport:
        """Return a copy of the node's report to which the throughput and the lag are added."""
        added = self._asdict()
        del added["at"]
        return report._replace(**added)


def read_throughput(raw: bytes, now: float) -> NodeThroughput | None:
    """Return the values that `to_json` wrote. Return None if the bytes are not valid or the values are outdated."""
    try:
        throughput = NodeThroughput(*json.loads(raw))
        return throughput if now - throughput.at < _THROUGHPUT_SECONDS else None
    except (ValueError, TypeError):
        return None
