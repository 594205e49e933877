"""Queues and keys that are not the fleet's own: a name that nobody knows, as it is misspelt more often than new; lists
that look like queues; and the classic queues that a fleet adopts from."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from rota.protocol.command import follow
from rota.protocol.keys import Keys, fault_of_lane, is_pattern, served_as
from rota.protocol.store import Store
from rota.protocol.views import QueueState
from rota.protocol.walks import look_further
from rota.protocol.wire import shown, text_of
from rota.server.connection import Connection
from rota.server.server_errors import Refused
from rota_supervisor.cli import output
from rota_supervisor.config.faults import suggestion
from rota_supervisor.config.model import Config
from rota_supervisor.config.rules import served_queues

if TYPE_CHECKING:
    from rota.server.connection import Connection


SCAN_COUNT: Final = 1000
_LAST_CURSOR: Final = b"0"
_TRACES = ("served", "accepted", "ready", "scheduled", "inflight", "dead")
SOURCES_HEADER: Final = ("ADOPTS FROM", "IS A", "WAITING", "GOES TO", "NEXT DUE")
_WORDS: Final = {b"none": "empty", b"zset": "sorted set"}
_NONE: Final = "-"


def warn_of_unknown(names: Iterable[str], config: Config, store: Store, connection: Connection) -> None:
    """Say which of these queues no tier of the configuration has, no fleet serves, and no task was ever put into."""
    tiers = served_queues(config)
    unsure = [name for name in names if not is_pattern(name) and served_as(name, tiers) is None]
    if not unsure:
        return
    seen = {each.queue: each for each in connection.run(store.overview(tuple(unsure))).queues}
    unknown = [name for name in unsure if not _is_known(seen.get(name))]
    known = [*tiers, *_known_ones(store, connection)] if unknown else []
    for name in unknown:
        near = suggestion(name, (each for each in known if each != name and not is_pattern(each))) or ":"
        output.say_warning(f'nobody knows a queue "{name}"{near} no tier has it, and no task was ever put into it')


def _known_ones(store: Store, connection: Connection) -> Iterator[str]:
    overview = follow(connection.run, look_further(store, connection.run(store.overview(()))))
    return (each.queue for each in overview.queues if _is_known(each))


def _is_known(state: QueueState | None) -> bool:
    return state is not None and any(getattr(state, trace) for trace in _TRACES)


# Keys that look like queues


@dataclass(frozen=True, slots=True)
class StrayKey:
    """A list that was meant as a queue of the fleet and is none, so that nobody takes what was pushed to it. `items` is
    None if the ACL forbids `LLEN` on its key."""

    key: str
    items: int | None
    fault: str


def find_strays(config: Config, connection: Connection, most_scans: float = math.inf) -> list[StrayKey]:
    """Return the lists whose keys look like lanes of this namespace and are not.

    A client looks for them by SCAN, as no script scans keys; after `most_scans` calls of SCAN_COUNT keys it has
    looked at enough. Raises ServerError.
    """
    found: dict[str, StrayKey] = {}
    cursor, scans = b"", 0
    while cursor != _LAST_CURSOR and scans < most_scans:
        options = "MATCH", f"*{config.namespace}*queue*", "COUNT", SCAN_COUNT, "TYPE", "list"
        cursor, keys = connection.execute("SCAN", cursor or _LAST_CURSOR, *options)
        scans += 1
        for raw in keys:
            key = text_of(raw)
            fault = "" if key in config.adopt else fault_of_lane(Keys(config.namespace), key)
            if fault:
                found[key] = StrayKey(shown(key), _length(connection, raw), fault)
    return sorted(found.values(), key=attrgetter("key"))


def _length(connection: Connection, key: bytes) -> int | None:
    try:
        return int(connection.execute("LLEN", key))
    except Refused:  # an ACL may allow only the keys of the namespace
        return None


def warn_of_strays(strays: Iterable[StrayKey]) -> None:
    """Say of each what waits there, and how it becomes a queue."""
    for stray in strays:
        waiting = "an unknown number of items" if stray.items is None else output.counted(stray.items, "item")
        output.say_warning(
            f'nobody takes {waiting} from the list "{stray.key}": {stray.fault}; nothing there is lost: rename it '
            "(RENAMENX) to the key of a queue"
        )


# Classic queues that are adopted from

SourceRow = Mapping[str, Any]


def with_what_waits(sources: Sequence[SourceRow], connection: "Connection") -> list[dict[str, Any]]:
    """The master's rows of sources with `type`, `waiting` and `next_due_at` (Unix seconds, None when nothing waits for
    its time); `error` where the server does not tell. Raises ServerError."""
    return [{**source, **_source_found(source["key"], connection)} for source in sources]


def _source_found(key: str, connection: "Connection") -> dict[str, Any]:
    found: dict[str, Any] = {"type": "", "waiting": None, "next_due_at": None}
    try:
        kind = connection.execute("TYPE", key)
        found["type"] = _WORDS.get(kind, text_of(kind))
        if kind == b"zset":
            found["waiting"] = connection.execute("ZCARD", key)
            found["next_due_at"] = float(connection.execute("ZRANGE", key, 0, 0, "WITHSCORES")[1])
        elif kind in (b"none", b"list"):
            found["waiting"] = connection.execute("LLEN", key)
        else:
            found["error"] = "neither a list nor a sorted set"
    except (Refused, IndexError) as error:  # the last: somebody took the only member in between
        found["error"] = str(error)
    return found


def cells_of_sources(rows: Sequence[SourceRow], now: float) -> Iterator[list[object]]:
    """The cells of a table for people."""
    for row in rows:
        goes_to = row["queue"] or "as each item says"
        if row["task"]:
            goes_to = f"{goes_to}, to {row['task']}"
        due_at = row["next_due_at"]
        due = _NONE if due_at is None else f"in {max(0.0, due_at - now):.1f} s"
        waiting = row.get("error") or row["waiting"]
        yield [row["key"], row["type"] or _NONE, waiting, goes_to, due]
