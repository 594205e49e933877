"""`rota status` for people: the fleet in words, then its pools and its children in tables of at most 100 columns."""

import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rota.printable import printable
from rota_supervisor.cli.output import put, put_table
from rota_supervisor.notice import sentence

COLUMNS: Final = 100
_LABEL: Final = 13
_GAP: Final = 2  # between two columns of a table
_LEAST: Final = 8  # a name is cut no shorter
_MOST_NAME: Final = 18
_NONE: Final = "-"
_UNITS: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))

Row = Mapping[str, Any]
Table = tuple[list[str], list[list[object]]]


def put_status(found: Row, *, no_color: bool) -> None:
    """Write what the master said of itself."""
    for label, text in _facts(found):
        lines = textwrap.wrap(printable(text), COLUMNS - _LABEL, break_on_hyphens=False) or [""]
        put(f"{label:<{_LABEL}}{lines[0]}")
        for line in lines[1:]:
            put(" " * _LABEL + line)
    for header, rows in (_pools(found["pools"]), _children(found["children"])):
        put("")
        put_table(header, rows, no_color=no_color)


def duration(seconds: float, units: int = 2) -> str:
    """A time in its greatest units: `4.2 s`, `3 m 5 s`, `2 d 1 h`."""
    if seconds < 10:  # noqa: PLR2004 - where a tenth says something
        return f"{max(0.0, seconds):.1f} s"
    left, parts = int(seconds), []
    for unit, size in _UNITS:
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:units])


# In words


def _facts(found: Row) -> Iterator[tuple[str, str]]:
    yield "fleet", f"{found['namespace']} on {found['node']}, pid {found['pid']}"
    loading = ", another one is loading" if found["loading"] else ""
    age = duration(found["uptime_seconds"])
    yield "state", f"{found['state']}, up for {age}, generation {found['generation']}{loading}"
    yield "redis", f"{found['redis']} {'is up' if found['redis_up'] else 'is not reachable'}"
    yield "http", found["listen"] or "off"
    if sizes := [row["pss_mb"] for row in found["children"] if row.get("pss_mb") is not None]:
        yield "memory", f"{sum(sizes):.1f} MB of all children together"
    if reload := found["last_reload"]:
        said = reload.get("faults") or reload.get("changes") or ["nothing changed"]
        yield "last reload", f"{reload['result']} {_ago(reload)}: {'; '.join(map(str, said))}"
    if death := found["last_death"]:
        yield "last death", f"{_who(death)} {_ago(death)}: {death.get('words') or death.get('reason')}"
    for row in found["held"]:
        yield "held back", sentence(dict(row))


def _ago(event: Row) -> str:
    return f"{duration(time.time() - event['at'])} ago"


def _who(death: Row) -> str:
    of_pool = f" of pool {death['pool']}" if death.get("pool") else ""
    return f"{death.get('child', 'a child')} in slot {death.get('slot')}{of_pool}"


# In tables


def _pools(rows: Sequence[Row]) -> Table:
    header = ["POOL", "STATE", "WORKERS", "SAYS", "READY", "BUSY", "QUIET"]
    keys = ("ready", "busy", "quiet")
    return header, [
        [_cut(row["pool"], _MOST_NAME), row["state"], row["desired"], _says(row), *(row[key] for key in keys)]
        for row in rows
    ]


def _says(row: Row) -> str:
    """Who gave the number, and what it took the place of."""
    is_operators = row["origin"] == "operator" and row["configured"] != row["desired"]
    return f"operator (configured: {row['configured']})" if is_operators else str(row["origin"])


def _children(rows: Sequence[Row]) -> Table:
    header = ["SLOT", "CHILD", "GEN", "PID", "STATE", "BEAT", "TASK", "FOR"]
    at = header.index("TASK")
    cells = [_child(row) for row in rows]
    if any(row.get("private_mb") is not None for row in rows):
        header[at:at] = ["SHARED MB", "PRIVATE MB"]
        for row, line in zip(rows, cells, strict=True):
            line[at:at] = [_megabytes(row.get("shared_mb")), _megabytes(row.get("private_mb"))]
    return header, _narrowed(header, cells, header.index("TASK"))


def _child(row: Row) -> list[object]:
    state = "quiet" if row["quiet"] and row["state"] == "ready" else row["state"]
    return [
        row["slot"],
        _cut(f"{row['role']} {row['pool']}".strip(), _MOST_NAME),
        row["generation"],
        row["pid"] or _NONE,
        state,
        duration(row["beat_age_seconds"], 1),
        row["task"] or _NONE,
        duration(row["task_seconds"], 1) if row["task"] else _NONE,
    ]


def _megabytes(value: float | None) -> object:
    return _NONE if value is None else value


def _narrowed(header: list[str], rows: list[list[object]], column: int) -> list[list[object]]:
    """The rows with one column cut so that lines fit."""
    widths = [max(len(name), *(len(str(row[at])) for row in rows)) for at, name in enumerate(header)]
    room = max(_LEAST, COLUMNS - sum(widths) + widths[column] - _GAP * (len(widths) - 1))
    for row in rows:
        row[column] = _cut(str(row[column]), room)
    return rows


def _cut(text: str, most: int) -> str:
    text = printable(text)
    return text if len(text) <= most else f"{text[: most - 3]}..."
