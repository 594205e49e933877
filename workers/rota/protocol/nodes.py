"""The heartbeat that each master publishes. It contains a report on the node, which is shown to people, and the tiers
of the node's pools, which `explain` uses."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rota.protocol.entry import MICROSECONDS, Kind
from rota.protocol.scripts import Raw, reply
from rota.protocol.tiers import (
    DEFAULT_ENDED_KEEP,
    Domain,
    QueueShare,
    tier_args,
)
from rota.protocol.wire import Packed, pack, shown, text_of

MOST_TEXT: Final = 200  # characters
# Maximum number of task names in a heartbeat. This many names take some 16 kB. A node with more tasks sends no names.
MOST_TASKS: Final = 500


class NodeReport(NamedTuple):
    """A master's report on its node. The values from `done_per_second` to `late` cover the last few minutes. They are
    None if the node has no exporter, which computes them."""

    state: str = "unknown"  # the state of the master, in one word
    version: str = ""
    url: str | None = None  # URL of the status page
    workers: int = 0  # number of workers that are in service
    desired: int = 0  # number of workers that the node should have
    busy: int = 0  # number of running tasks
    concurrency: int = 0  # number of tasks that can run at once
    quiet: int = 0  # number of workers that claim nothing
    done_per_second: float | None = None
    lag_p50_seconds: float | None = None  # median of the lag of task starts
    lag_p99_seconds: float | None = None  # 99th percentile of the lag of task starts
    late: float | None = None  # share of the task starts that missed their lag objective
    last_death: str | None = None  # the last unexpected death of a process, as a sentence


class Node(NamedTuple):
    """A node, as its latest heartbeat describes it."""

    name: str
    pools: Mapping[str, Packed]  # the tiers of each pool that has workers, in the packed form that `explain` takes
    report: NodeReport
    lease_seconds: float
    left_seconds: float  # time until the heartbeat expires; negative if it has expired
    tasks: frozenset[str] | None = None  # names of the tasks that the node's modules declare; None if not known

    @property
    def is_alive(self) -> bool:
        return self.left_seconds > 0

    @property
    def silent_seconds(self) -> float:
        """The time since the node's last heartbeat."""
        return max(0.0, self.lease_seconds - self.left_seconds)


def heartbeat_of(
    pid: int,
    pools: Mapping[str, Sequence[Domain]],
    report: NodeReport | None = None,
    lease_seconds: float = 0.0,
    tasks: Collection[str] | None = None,
) -> bytes:
    """Return the heartbeat of a master as JSON. It also lists the kinds of entries (`Kind`) that the scripts of this
    version know. Values of the report that are None are left out. The names of `tasks` are left out if there are more
    than MOST_TASKS."""
    tiers_of = {pool: tier_args(tiers) for pool, tiers in pools.items()}
    known = {} if report is None else {name: value for name, value in report._asdict().items() if value is not None}
    kinds = "".join(Kind)
    heartbeat: dict[str, Any] = {
        "pid": pid,
        "kinds": kinds,
        "pools": tiers_of,
        "lease_seconds": lease_seconds,
        "report": known,
    }
    if tasks is not None and len(tasks) <= MOST_TASKS:
        heartbeat["tasks"] = sorted(tasks)
    return json.dumps(heartbeat, separators=(",", ":")).encode()


def parse_nodes(raw: Raw) -> list[Node]:
    """Parse the reply to `nodes`, which has three items for each node: its name, its heartbeat, and the microseconds
    until the heartbeat expires."""
    return [
        _node(shown(text_of(name)), _read_json(heartbeat), int(left) / MICROSECONDS)
        for name, heartbeat, left in zip(raw[::3], raw[1::3], raw[2::3], strict=True)
    ]


def _node(name: str, heartbeat: Mapping[str, Any], left_seconds: float) -> Node:
    lease_seconds = _number(heartbeat.get("lease_seconds")) or 0.0
    return Node(
        name,
        _read_pools(heartbeat),
        _read_report(heartbeat.get("report")),
        lease_seconds,
        left_seconds,
        _read_tasks(heartbeat.get("tasks")),
    )


def _read_tasks(names: Any) -> frozenset[str] | None:
    return frozenset(map(str, names)) if isinstance(names, list) else None


def _read_json(raw: bytes) -> dict[str, Any]:
    try:
        heartbeat = json.loads(raw)
    except (ValueError, RecursionError):  # not the heartbeat of a master
        return {}
    return heartbeat if isinstance(heartbeat, dict) else {}


def _read_pools(heartbeat: Mapping[str, Any]) -> dict[str, Packed]:
    try:
        return {str(pool): pack(args) for pool, args in heartbeat["pools"].items() if _are_tiers(args)}
    except (ValueError, TypeError, LookupError, AttributeError):  # not the heartbeat of a master of this version
        return {}


def _are_tiers(args: Any) -> bool:
    """Whether these arguments have the form that `tier_args` produces, which is the only form that the script `explain`
    accepts."""
    if not isinstance(args, list) or not all(isinstance(arg, str | int) for arg in args):
        return False
    at = 1
    for _ in range(int(args[0])):
        names = int(args[at + 2])
        at += 3 + max(names, 1)
    return at == len(args)


# A report from another version of Rota may have a value of a different type. Such a value counts as missing.


def _text(value: Any) -> str | None:
    return shown(value[:MOST_TEXT]) if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    # Compare with `type` instead of `isinstance`, because True is also an int.
    return value if type(value) in (int, float) and math.isfinite(value) else None


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
    """The settings of the fleet that a master publishes with its heartbeat."""

    ends: int = DEFAULT_ENDED_KEEP  # number of ended tasks that the namespace remembers
    events: int = 0  # approximate number of task events to keep; 0 to write no events
    shares: tuple[QueueShare, ...] = ()  # how each queue is served, for consumers to read
    # The tiers with patterns, so that a new queue wakes the workers whose patterns match its name.
    domains: tuple[Domain, ...] = ()


NOTHING_ANNOUNCED = Announced()


class AnnounceReply(NamedTuple):
    """The reply to a master's heartbeat."""

    nodes: int  # number of nodes that are alive
    any_closed: bool  # whether any queue may be closed by a condition


parse_announce = reply(AnnounceReply, int, bool)
