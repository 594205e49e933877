"""What waits in the classic queues that a fleet adopts from, as plain commands tell it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rota.protocol.wire import text_of
from rota.server.server_errors import Refused

if TYPE_CHECKING:
    from rota.server.connection import Connection

Row = Mapping[str, Any]
HEADER: Final = ("ADOPTS FROM", "IS A", "WAITING", "GOES TO", "NEXT DUE")
_WORDS: Final = {b"none": "empty", b"zset": "sorted set"}
_NONE: Final = "-"


def with_what_waits(sources: Sequence[Row], connection: "Connection") -> list[dict[str, Any]]:
    """The master's rows of sources with `type`, `waiting` and `next_due_at` (Unix seconds, None when nothing waits for
    its time); `error` where the server does not tell. Raises ServerError."""
    return [{**source, **_found(source["key"], connection)} for source in sources]


def _found(key: str, connection: "Connection") -> dict[str, Any]:
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


def cells_of(rows: Sequence[Row], now: float) -> Iterator[list[object]]:
    """The cells of a table for people."""
    for row in rows:
        goes_to = row["queue"] or "as each item says"
        if row["task"]:
            goes_to = f"{goes_to}, to {row['task']}"
        due_at = row["next_due_at"]
        due = _NONE if due_at is None else f"in {max(0.0, due_at - now):.1f} s"
        waiting = row.get("error") or row["waiting"]
        yield [row["key"], row["type"] or _NONE, waiting, goes_to, due]
