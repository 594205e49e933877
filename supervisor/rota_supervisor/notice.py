"""What the master and the exporter leave in their slots for each other: the master's notice of the fleet, and the
exporter's pace of the node, which a heartbeat carries on; and the words in which both show the state of a fleet and of
its pools.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from rota.child.slots import Phase
from rota.protocol.nodes import NodeReport
from rota_supervisor.layout import Role

Json = dict[str, Any]

_MOST_WORDS: Final = 300  # characters of an error
_PACE_SECONDS: Final = 15.0

# What the master's phase says of its fleet.
FLEET_STATES: Final = {
    Phase.BOOTING: "starting",
    Phase.IDLE: "running",
    Phase.QUIET: "quiet",
    Phase.DRAINING: "draining",
}


class PoolState(StrEnum):
    """The state of a pool. BACKOFF: starts fail in a row, the next one waits. FATAL: the budget is spent, a person is
    needed; one probe goes on after each pause, so that it mends itself when the cause is gone."""

    RUNNING = "running"
    BACKOFF = "backoff"
    FATAL = "fatal"


class Held(NamedTuple):
    """A pool in back-off. `state`: backoff or fatal; `failures`: how many in a row; `next_try_at`: seconds of
    CLOCK_BOOTTIME; `words`: how its last child ended."""

    role: str
    pool: str
    state: str
    failures: int
    next_try_at: float
    words: str

    def row(self, now: float) -> Json:
        """For people: the control socket and `/status.json` show it so."""
        return {
            "role": self.role,
            "pool": self.pool,
            "state": self.state,
            "failures_in_a_row": self.failures,
            "next_try_seconds": round(max(0.0, self.next_try_at - now), 1),
            "last_error": self.words,
        }


SLOW_SECONDS: Final = 0.04  # a round trip that is no longer of one place; RotaRedisSlow says the same
EVICTS_KEYS: Final = "Redis is set to drop keys when its memory is full"


def is_slow(round_trip_seconds: float) -> bool:
    """Whether Redis takes so long to answer that tasks are late by it."""
    return round_trip_seconds >= SLOW_SECONDS


def slow_words(round_trip_seconds: float) -> str:
    return f"Redis answers slowly: {round_trip_seconds * 1000:,.0f} ms a round trip"


def redis_warnings(round_trip_seconds: float | None, *, evicts_keys: bool) -> list[str]:
    """Return what is wrong with a Redis that answers."""
    found = [slow_words(round_trip_seconds)] if round_trip_seconds and is_slow(round_trip_seconds) else []
    return [*found, EVICTS_KEYS] if evicts_keys else found


def sentence(row: Json) -> str:
    """Such a row in words."""
    what = f"pool {row['pool']}" if row["role"] == Role.WORKER else f"the {row['role']}"
    failed = f"{row['failures_in_a_row']} failures in a row"
    next_try = f"next try in {row['next_try_seconds']:g} s"
    return f"{what} is in {row['state']}: {failed}, {next_try}; last: {row['last_error'] or 'unknown'}"


class Closed(NamedTuple):
    """A queue from which nobody may claim, by its `condition` ("" for paused) and the `error` of that, `since` so many
    seconds of CLOCK_BOOTTIME."""

    queue: str
    condition: str
    error: str
    since: float

    def row(self, now: float) -> Json:
        """For people."""
        return {
            "queue": self.queue,
            "condition": self.condition,
            "error": self.error,
            "seconds": round(now - self.since, 1),
        }


class FleetEvent(NamedTuple):
    """A line of the log that people look for. `n`: its number, one more than that of the one before; `at`: seconds of
    CLOCK_BOOTTIME; `text`: what it says, for people."""

    n: int
    at: float
    level: str
    event: str
    text: str
    fields: Mapping[str, Any]


def dated(happened: Mapping[str, Any] | None, now: float, wall: float) -> Json | None:
    """Return what happened `at` a time of CLOCK_BOOTTIME with that of the wall clock, by what both show now."""
    return None if happened is None else {**happened, "at": round(wall - (now - happened["at"]), 3)}


def who_died(death: Mapping[str, Any]) -> str:
    """Name the child by the fields of its death."""
    of_pool = f" of pool {death['pool']}" if death.get("pool") else ""
    return f"{death.get('child', 'a child')} in slot {death.get('slot')}{of_pool}"


def how_it_died(death: Mapping[str, Any]) -> str:
    """Say what ended it."""
    return str(death.get("words") or death.get("reason"))


def death_in_words(death: Mapping[str, Any]) -> str:
    """Both in one line."""
    return f"{who_died(death)}: {how_it_died(death)}"


class ChildNotice(NamedTuple):
    """What the master alone knows of the child in a slot; `pool` is "" except for workers. `state`: see `ChildState`;
    "" and None where the master says nothing. `ready_at`: when it said so. Its process stands in its slot."""

    slot: int
    pool: str | None = None
    generation: int | None = None
    state: str = ""
    ready_at: float | None = None


class PoolNotice(NamedTuple):
    """What the master alone knows of a pool of workers: how many it is to have (`desired`), by whose word (`origin`),
    how many the configuration says; how many tasks a worker runs at once, and how many workers there are by their
    state."""

    name: str
    desired: int
    origin: str
    configured: int
    concurrency: int
    workers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Notice:
    """What the master says of its fleet. Times are seconds of CLOCK_BOOTTIME.

    `fleet`: the namespace; `node`: its name; `url`: where others find the status page, None for nowhere. `generation`:
    the one in force; `loading`: whether another is on its way. `redis_refusal`: what a Redis answers that does nothing
    for now. `redis_round_trip_seconds`: None while Redis is away. `quiet_since`: None when it is not quiet.
    `last_reload`, `last_death`: what became of them, and `at` which time. `events`: the last ones.
    """

    fleet: str = ""
    node: str = ""
    pid: int = 0
    url: str | None = None
    started_at: float | None = None
    generation: int = 0
    loading: bool = False
    redis_up: bool = False
    redis_refusal: str = ""
    redis_round_trip_seconds: float | None = None
    evicts_keys: bool = False
    pools: tuple[PoolNotice, ...] = ()
    held: tuple[Held, ...] = ()
    quiet_since: float | None = None
    closed: tuple[Closed, ...] = ()
    last_reload: Mapping[str, Any] | None = None
    last_death: Mapping[str, Any] | None = None
    children: tuple[ChildNotice, ...] = ()
    events: tuple[FleetEvent, ...] = ()

    def to_json(self, room: int) -> bytes:
        """Return it as JSON of at most so many bytes: for want of room the oldest events and the last of the rest are
        left out."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values["held"] = [each._replace(words=each.words[:_MOST_WORDS]) for each in self.held]
        raw = json.dumps(values).encode()
        return raw if len(raw) <= room else self._halved().to_json(room)

    def _halved(self) -> "Notice":
        held, children = self.held[: len(self.held) // 2], self.children[: len(self.children) // 2]
        return replace(self, held=held, children=children, events=self.events[(len(self.events) + 1) // 2 :])

    @classmethod
    def from_json(cls, raw: bytes) -> "Notice":
        """Read what `to_json` made; of nothing, a notice that says nothing."""
        if not raw:
            return cls()
        values = json.loads(raw)
        for name, kind in _ROWS.items():
            values[name] = tuple(kind(*row) for row in values[name])
        return cls(**values)


_ROWS: Final[Mapping[str, type[Held | Closed | ChildNotice | PoolNotice | FleetEvent]]] = {
    "held": Held,
    "closed": Closed,
    "pools": PoolNotice,
    "children": ChildNotice,
    "events": FleetEvent,
}


class Pace(NamedTuple):
    """How fast and how late a node is, as its exporter saw it `at` a time of CLOCK_BOOTTIME. Lags are of the starts of
    the last minutes, None without any; `late`: the share of those that missed their objective."""

    at: float
    done_per_second: float
    lag_p50_seconds: float | None
    lag_p99_seconds: float | None
    late: float | None

    def to_json(self) -> bytes:
        return json.dumps(self).encode()

    def added_to(self, report: NodeReport) -> NodeReport:
        """Return a report that says this too."""
        told = self._asdict()
        del told["at"]
        return report._replace(**told)


def read_pace(raw: bytes, now: float) -> Pace | None:
    """Read what `to_json` made; None of anything else, and of what is no longer true."""
    try:
        pace = Pace(*json.loads(raw))
        return pace if now - pace.at < _PACE_SECONDS else None
    except (ValueError, TypeError):
        return None
