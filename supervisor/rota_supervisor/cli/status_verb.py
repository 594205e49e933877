"""`rota status`: the state of the fleet as text, followed by tables of its pools, its processes, all consumers and the
next schedules. No table is wider than 100 characters.

This command measures the memory of each process itself, because measuring 500 processes would block the master's loop
for too long. If several processes share a page, the RSS of each process includes the whole page, but the PSS includes
only a fraction of it, so that the PSS of all children adds up to their total use. Private memory is the memory that
would be freed if the process ended. Shared memory is the rest.
"""

import dataclasses
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import click
import psutil

from rota.display_text import printable
from rota.durations import in_seconds, in_words
from rota.protocol.progress import progress_summary
from rota.protocol.schedule_store import ScheduleStore
from rota.protocol.store import Store
from rota.protocol.wire import text_of
from rota.schedules.schedule_status import rows_of
from rota.server.connection import Connection
from rota.server.server_errors import Refused, first_sentence
from rota_supervisor.cli import command, master_verbs, output
from rota_supervisor.exits import Failure
from rota_supervisor.fleet_snapshot import rows_by_task
from rota_supervisor.layout import Role
from rota_supervisor.master_snapshot import cause_of_death, dead_child, redis_warnings, sentence

COLUMNS: Final = 100
MEGABYTE: Final = 2**20
_LABEL: Final = 13
_GAP: Final = 2  # the number of characters between two columns of a table
_LEAST: Final = 8  # no name is cut to fewer characters than this
_MAX_NAME: Final = 18
_MAX_OWNER: Final = 60
_MAX_SOURCE: Final = 26
_NONE: Final = "-"
_KINDS: Final = {b"none": "empty", b"zset": "sorted set"}
_MEMORY: Final = ("rss", "pss", "shared", "private")
_MAX_SCHEDULES: Final = 100
_SHOWN_SCHEDULES: Final = 10
_NO_FLEET_DATA: Final = {"consumers": None, "adopts": None, "schedules": None}
_UNKNOWN: Final = dict.fromkeys(f"{name}_bytes" for name in _MEMORY)

Row = Mapping[str, Any]
Table = tuple[list[str], list[list[object]]]


@click.command(cls=command.RotaCommand)
def status() -> None:
    """Show the pools and processes of this node's master.

    Also show the items that wait in adopted legacy lists, and the consumers and next schedules of the whole fleet.
    """
    state = command.current_state()
    found = master_verbs.request("status")
    found["processes"] = with_memory(found["processes"], found["pid"])
    found |= _of_fleet(state, found) if found["redis_up"] else _NO_FLEET_DATA
    if state.json:
        output.put_json(found)
    else:
        found["processes"] = in_megabytes(found["processes"])
        put_status(found, no_color=state.no_color)


def _of_fleet(state: command.CliState, found: Row) -> Mapping[str, Any]:
    """Return the consumers of the whole fleet, the legacy lists with their waiting items, and the next schedules. Each
    of these is None if the server does not reply.
    """
    namespace = found["fleet"]
    try:
        with state.redis(state.load_usable().config) as (_, _, connection):
            consumers = connection.run(Store(namespace).consumers()).rows
            adopts = _with_what_waits(found["adopts"], connection)
            schedules = connection.run(ScheduleStore(namespace).page(0, _MAX_SCHEDULES))
    except Failure:
        return _NO_FLEET_DATA
    rows = [in_seconds(dataclasses.asdict(row)) for row in consumers]
    return {"consumers": rows, "adopts": adopts, "schedules": rows_of(schedules)}


def put_status(found: Row, *, no_color: bool) -> None:
    """Write the master's status."""
    for label, text in _facts(found):
        lines = textwrap.wrap(printable(text), COLUMNS - _LABEL, break_on_hyphens=False) or [""]
        output.put(f"{label:<{_LABEL}}{lines[0]}")
        for line in lines[1:]:
            output.put(" " * _LABEL + line)
    tables = [_pools(found["pools"]), _processes(found["processes"])]
    if found["adopts"]:
        tables.append(_adopts(found["adopts"]))
    if found["consumers"]:
        tables.append(_consumers(found["consumers"]))
    if found["schedules"]:
        tables.append(_schedules(found["schedules"]))
    for header, rows in tables:
        output.put("")
        output.put_table(header, rows, no_color=no_color)


def _redis(found: Row) -> str:
    if not found["redis_up"]:
        refusal = found["redis_refusal"]
        return f"refuses: {first_sentence(refusal)}" if refusal else "is not reachable"
    warnings = redis_warnings(found["redis_round_trip_seconds"], evicts_keys=found["evicts_keys"])
    return "; ".join(["is up", *warnings])


def _facts(found: Row) -> Iterator[tuple[str, str]]:
    yield "fleet", f"{found['fleet']} on {found['node']}, pid {found['pid']}"
    loading = ", another one is loading" if found["loading"] else ""
    age = in_words(found["at"] - found["started_at"])
    yield "state", f"{found['state']}, up for {age}, generation {found['generation']}{loading}"
    yield "redis", f"{found['redis']} {_redis(found)}"
    yield "http", found["listen"] or "off"
    if sizes := [row["pss_mb"] for row in found["processes"] if row.get("pss_mb") is not None]:
        yield "memory", f"{sum(sizes):.1f} MB for all children together"
    if reload := found["last_reload"]:
        results = reload.get("faults") or reload.get("changes") or ["nothing changed"]
        yield "last reload", f"{reload['result']} {_ago(reload)}: {'; '.join(map(str, results))}"
    if death := found["last_death"]:
        yield "last death", f"{dead_child(death)} {_ago(death)}: {cause_of_death(death)}"
    for row in found["held"]:
        yield "held back", sentence(row)
    if found["quiet_seconds"]:
        yield "quiet", f"for {in_words(found['quiet_seconds'])}"
    for row in found["closed"]:
        by = f"closed by its condition {row['condition']}" if row["condition"] else "paused"
        yield (
            "queue",
            f"{row['queue']} is {by}, for {in_words(row['seconds'])}{': ' * bool(row['error'])}{row['error']}",
        )


def _ago(event: Row) -> str:
    return f"{in_words(time.time() - event['at'])} ago"


def _pools(rows: Sequence[Row]) -> Table:
    header = ["POOL", "STATE", "WORKERS", "SET BY", "READY", "BUSY", "QUIET"]
    cells: list[list[object]] = []
    for row in rows:
        origin = row["origin"]
        if origin == "operator" and row["configured"] != row["desired"]:
            origin = f"operator (configured: {row['configured']})"
        if origin == "automatic":
            origin = f"automatic ({row['configured']})"
        counts = (_ready(row), _busy(row), row["workers"].get("quiet", 0))
        cells.append([_cut(row["name"], _MAX_NAME), row["state"], row["desired"], str(origin), *counts])
    return header, cells


def _ready(pool: Row) -> int:
    """Return the number of workers that have started and are not about to exit. Quiet workers count too."""
    return sum(pool["workers"].get(state, 0) for state in ("running", "quiet"))


def _busy(pool: Row) -> object:
    """Return the number of running tasks of a pool. If its workers run several tasks at once, also return how many
    tasks all of them could run.
    """
    busy = pool["busy"]
    concurrency = pool["concurrency"]
    return busy if concurrency == 1 else f"{busy} of {_ready(pool) * concurrency}"


def _processes(rows: Sequence[Row]) -> Table:
    """Return the table of the master's children. A child that runs several tasks has one row per task."""
    has_memory = any(row.get("private_mb") is not None for row in rows)
    memory = ["SHARED MB", "PRIVATE MB"] if has_memory else []
    header = ["SLOT", "PROCESS", "GEN", "PID", "STATE", "BEAT", *memory, "TASK", "FOR"]
    cells: list[list[object]] = []
    for row in rows_by_task(row for row in rows if row["role"] != Role.MASTER):
        sizes = [row.get("shared_mb"), row.get("private_mb")] if has_memory else []
        cells.append(
            [
                row["where"],
                _cut(f"{row['role']} {row['pool'] or ''}".strip(), _MAX_NAME),
                row["generation"],
                row["pid"] or _NONE,
                "quiet" if row["quiet"] and row["state"] == "ready" else row["state"],
                _NONE if row["beat_age_seconds"] is None else in_words(row["beat_age_seconds"], 1),
                *(_NONE if size is None else size for size in sizes),
                f"{task['name'] if (task := row['task']) else _NONE} {progress_summary(row['progress'])}".rstrip(),
                in_words(row["task_age_seconds"], 1) if row["task"] else _NONE,
            ]
        )
    return header, _narrowed(header, cells, header.index("TASK"))


def _consumers(rows: Sequence[Row]) -> Table:
    """Return the table of external programs that take tasks of this fleet, wherever they run."""
    header = ["CONSUMER", "HELD", "LEASE LEFT", "QUEUES"]
    cells: list[list[object]] = [
        [_cut(row["owner"], _MAX_OWNER), row["held"], in_words(row["lease_left_seconds"]), row["queues"]]
        for row in sorted(rows, key=itemgetter("owner"))
    ]
    return header, _narrowed(header, cells, header.index("QUEUES"))


def _adopts(rows: Sequence[Row]) -> Table:
    """Return the table of legacy lists whose items become tasks of this fleet."""
    header = ["ADOPTS FROM", "IS A", "WAITING", "QUEUE", "NEXT DUE"]
    cells: list[list[object]] = []
    for row in rows:
        goes_to = (row["queue"] or "named by each item") + (f", to {row['task']}" if row["task"] else "")
        due_at = row["next_due_at"]
        waiting = str(row.get("error") or row["waiting"])
        due = _NONE if due_at is None else f"in {max(0.0, due_at - time.time()):.1f} s"
        kind = row["type"] or _NONE
        cells.append([row["key"], kind, _cut(waiting, _MAX_SOURCE), _cut(goes_to, _MAX_SOURCE), due])
    return header, _narrowed(header, cells, 0)


def _schedules(rows: Sequence[Row]) -> Table:
    """Return the table of the schedules that are due next, in order. `rota cron ls` shows all schedules."""
    header = ["SCHEDULE", "WHEN", "NEXT IN", "TASK"]
    cells: list[list[object]] = [
        [_cut(row["name"], _MAX_OWNER // 2), _cut(row["when"], _MAX_OWNER // 2), _next_in(row), row["task"]]
        for row in rows[:_SHOWN_SCHEDULES]
    ]
    return header, _narrowed(header, cells, header.index("TASK"))


def _next_in(row: Row) -> str:
    return str(row["state"]) if row["next_in_seconds"] is None else in_words(row["next_in_seconds"])


def _narrowed(header: list[str], rows: list[list[object]], column: int) -> list[list[object]]:
    """Return the rows, with the texts in one column cut so that no line is longer than COLUMNS characters."""
    widths = [max(len(name), *(len(str(row[at])) for row in rows)) for at, name in enumerate(header)]
    room = max(_LEAST, COLUMNS - sum(widths) + widths[column] - _GAP * (len(widths) - 1))
    for row in rows:
        row[column] = _cut(str(row[column]), room)
    return rows


def _cut(text: str, most: int) -> str:
    return output.cut(printable(text), most)


# Legacy lists


def _with_what_waits(sources: Sequence[Row], connection: Connection) -> list[dict[str, Any]]:
    """Return the master's rows about legacy lists, with data from the server added: the fields `type`, `waiting` and
    `next_due_at` (Unix seconds, or None if no item has a due time), or else the field `error` if the server refuses the
    commands. Raises ServerError.
    """
    return [{**source, **_source_found(source["key"], connection)} for source in sources]


def _source_found(key: str, connection: Connection) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "", "waiting": None, "next_due_at": None}
    try:
        kind = connection.execute("TYPE", key)
        found["type"] = _KINDS.get(kind, text_of(kind))
        if kind == b"zset":
            found["waiting"] = connection.execute("ZCARD", key)
            found["next_due_at"] = float(connection.execute("ZRANGE", key, 0, 0, "WITHSCORES")[1])
        elif kind in (b"none", b"list"):
            found["waiting"] = connection.execute("LLEN", key)
        else:
            found["error"] = "neither a list nor a sorted set"
    except (Refused, IndexError) as error:  # IndexError means that the only item has just been taken.
        found["error"] = str(error)
    return found


# Memory


def with_memory(rows: Iterable[Row], master_pid: int) -> list[dict[str, Any]]:
    """Return the master's rows about processes, with the fields `rss_bytes`, `pss_bytes`, `shared_bytes` and
    `private_bytes` added. The fields are None if the process has ended, belongs to another user, or is in another PID
    namespace."""
    return [{**row, **_memory_of(row["pid"], master_pid)} for row in rows]


def in_megabytes(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return these rows with additional fields in megabytes, for example `rss_mb`, which are easier to read."""
    sizes = {f"{name}_mb": f"{name}_bytes" for name in _MEMORY}
    return [{**row, **{key: _megabytes(row[size]) for key, size in sizes.items()}} for row in rows]


def _megabytes(size: int | None) -> float | None:
    return None if size is None else round(size / MEGABYTE, 1)


def _memory_of(pid: int, parent: int) -> Mapping[str, int | None]:
    try:
        if not pid or (process := psutil.Process(pid)).ppid() != parent:
            return _UNKNOWN
        found = process.memory_full_info()
    except (psutil.Error, OSError):
        return _UNKNOWN
    sizes = (found.rss, found.pss, found.rss - found.uss, found.uss)
    return {f"{name}_bytes": size for name, size in zip(_MEMORY, sizes, strict=True)}
