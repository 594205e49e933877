"""What each master says of its node in a heartbeat: how it is, for people, and what its pools serve, for `explain`."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rota.protocol.command import Raw, reply
from rota.protocol.entry import MICROSECONDS, Kind
from rota.protocol.tiers import (
    DEFAULT_ENDED_KEEP,
    Domain,
    QueueShare,
    tier_words,
)
from rota.protocol.wire import Packed, pack, shown, text_of

MOST_TEXT: Final = 200  # characters
MOST_TASKS: Final = 500  # names in a heartbeat, some 16 kB; of a node with more, they are not known


class NodeReport(NamedTuple):
    """How a node is. `state`: of its master, in one word; `url`: of its status page. `workers` serve, and are to be
    `desired`; of `concurrency` tasks at once they run `busy`; `quiet` of them claim nothing. The rest is of the last
    minutes, None where no exporter tells: lags of starts; `late`: the share of those that missed their objective.
    `last_death`: the last that was not expected, in words."""

    state: str = "unknown"
    version: str = ""
    url: str | None = None
    workers: int = 0
    desired: int = 0
    busy: int = 0
    concurrency: int = 0
    quiet: int = 0
    done_per_second: float | None = None
    lag_p50_seconds: float | None = None
    lag_p99_seconds: float | None = None
    late: float | None = None
    last_death: str | None = None


class Node(NamedTuple):
    """A node, the tiers of each of its pools that have workers, packed for a turn, and its report. `left_seconds`: for
    how long its heartbeat holds; below 0 when its master has said nothing since. `tasks`: the names of the tasks that
    its modules declare; None if they are not known."""

    name: str
    pools: Mapping[str, Packed]
    report: NodeReport
    lease_seconds: float
    left_seconds: float
    tasks: frozenset[str] | None = None

    @property
    def is_alive(self) -> bool:
        return self.left_seconds > 0

    @property
    def silent_seconds(self) -> float:
        """How long ago it gave its last heartbeat."""
        return max(0.0, self.lease_seconds - self.left_seconds)


def heartbeat_of(
    pid: int,
    pools: Mapping[str, Sequence[Domain]],
    report: NodeReport | None = None,
    lease_seconds: float = 0.0,
    tasks: Collection[str] | None = None,
) -> bytes:
    """What a master says of itself, as JSON: with the kinds of entries that its scripts know. Of a report only what it
    says is told, and the names of `tasks` if there are not too many."""
    words = {pool: tier_words(tiers) for pool, tiers in pools.items()}
    told = {} if report is None else {name: value for name, value in report._asdict().items() if value is not None}
    kinds = "".join(Kind)
    said: dict[str, Any] = {"pid": pid, "kinds": kinds, "pools": words, "lease_seconds": lease_seconds, "report": told}
    if tasks is not None and len(tasks) <= MOST_TASKS:
        said["tasks"] = sorted(tasks)
    return json.dumps(said, separators=(",", ":")).encode()


def parse_nodes(raw: Raw) -> list[Node]:
    """`[node, heartbeat, microseconds until it is over, ...]`"""
    return [
        _node(shown(text_of(name)), _read_json(said), int(left) / MICROSECONDS)
        for name, said, left in zip(raw[::3], raw[1::3], raw[2::3], strict=True)
    ]


def _node(name: str, said: Mapping[str, Any], left_seconds: float) -> Node:
    lease_seconds = _number(said.get("lease_seconds")) or 0.0
    return Node(
        name,
        _read_pools(said),
        _read_report(said.get("report")),
        lease_seconds,
        left_seconds,
        _read_tasks(said.get("tasks")),
    )


def _read_tasks(names: Any) -> frozenset[str] | None:
    return frozenset(map(str, names)) if isinstance(names, list) else None


def _read_json(heartbeat: bytes) -> dict[str, Any]:
    try:
        said = json.loads(heartbeat)
    except (ValueError, RecursionError):  # not of a master
        return {}
    return said if isinstance(said, dict) else {}


def _read_pools(said: Mapping[str, Any]) -> dict[str, Packed]:
    try:
        return {str(pool): pack(words) for pool, words in said["pools"].items() if _are_tiers(words)}
    except (ValueError, TypeError, LookupError, AttributeError):  # not of a master of this version
        return {}


def _are_tiers(words: Any) -> bool:
    """Whether these are what `tier_words` makes: the script takes nothing else."""
    if not isinstance(words, list) or not all(isinstance(word, str | int) for word in words):
        return False
    domains, at = int(words[0]), 1
    for _ in range(domains):
        names = int(words[at + 2])
        at += 3 + max(names, 1)
    return at == len(words)


# What a report of another version says in another way is as if it was not said.


def _text(value: Any) -> str | None:
    return shown(value[:MOST_TEXT]) if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return value if type(value) in (int, float) and math.isfinite(value) else None  # True is an int, too


def _count(value: Any) -> int | None:
    return value if type(value) is int else None


_READERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    str: _text,
    str | None: _text,
    int: _count,
    float | None: _number,
}
_READ: Final = {name: _READERS[kind] for name, kind in NodeReport.__annotations__.items()}


def _read_report(said: Any) -> NodeReport:
    told = said if isinstance(said, dict) else {}
    found = {name: read(told[name]) for name, read in _READ.items() if name in told}
    return NodeReport(**{name: value for name, value in found.items() if value is not None})


class Announced(NamedTuple):
    """What a master says besides that it lives: how many `ends` of tasks the fleet is to remember, about how many task
    `events` it wants kept (0: none), the `shares` of queues, which consumers go by, and those `domains` of its pools
    that have patterns: by these is found whom a queue of a pattern wakes."""

    ends: int = DEFAULT_ENDED_KEEP
    events: int = 0
    shares: tuple[QueueShare, ...] = ()
    domains: tuple[Domain, ...] = ()


NOTHING_SAID = Announced()


class AnnounceReply(NamedTuple):
    """What a master learns at its heartbeat: how many `nodes` are alive, and whether queues may be closed to claims."""

    nodes: int
    any_closed: bool


parse_announce = reply(AnnounceReply, int, bool)
