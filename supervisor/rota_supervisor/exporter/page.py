"""The page that shows the state of the fleet: one HTML document without scripts or anything fetched, which reloads
itself."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rota.printable import printable
from rota.protocol.progress import progress_words
from rota_supervisor.exporter import libraries
from rota_supervisor.layout import Role
from rota_supervisor.notice import Json, PoolState

REFRESH_SECONDS: Final = 5
_DASH: Final = "–"  # noqa: RUF001 - an en dash is what stands for "none" in a table
# Columns of words.
_WORDS: Final = frozenset(
    {
        "queue",
        "schedule",
        "pool",
        "workers",
        "role",
        "state",
        "task",
        "when",
        "progress",
        "reason",
        "last error",
        "group",
    }
)
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #777; --bad: #c0392b; --good: #1e8449; --busy: #2471a3; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: .25rem 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.badge { padding: .1rem .6rem; border-radius: 1rem; color: #fff; font-size: .85rem; background: var(--good); }
.badge.bad { background: var(--bad); }
.soft { color: var(--soft); } .bad { color: var(--bad); font-weight: 600; } .busy { color: var(--busy); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; min-width: 50%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; font-size: .85rem; color: var(--soft); }
th.text, td.text { text-align: left; }
.badge.bad { font-weight: 400; color: #fff; }
footer { margin-top: 2.5rem; font-size: .85rem; }
""".strip()


def page(state: Json) -> str:
    """Return the page for what `status` returned."""
    fleet = escape(state["fleet"])
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="{REFRESH_SECONDS}">
<title>{fleet} - Rota</title>
<style>
{_STYLE}
</style>
</head>
<body>
<header><h1>{fleet}</h1>
{_badge(state["ready"]["ok"], "ready", "not ready")} {_badge(state["redis"], "Redis", "Redis is away")}</header>
{_faults(state["ready"]["checks"])}
{_missing(state["missing_tasks"])}
<h2>Queues</h2>
{_table(_QUEUES, state["queues"], "No queue is configured.")}
{_next_schedules(state["schedules"])}
{_open_groups(state["groups"])}
<h2>Pools</h2>
{_table(_POOLS, state["pools"], "The master has not said how many workers it wants.")}
{_held(state["held"])}
<h2>Processes</h2>
{_table(_PROCESSES, [row for each in state["processes"] for row in _rows_of(each)], "No process lives.")}
<h2>Restarts</h2>
{_table(_RESTARTS, state["restarts"], "None.")}
<footer class="soft">Reloads every {REFRESH_SECONDS} s. Lag and done: of this node; lag of the last minutes.
<a href="/metrics">metrics</a> <a href="/status.json">status.json</a> <a href="/readyz?verbose">readyz</a></footer>
</body>
</html>
"""


def escape(text: str) -> str:
    """Return text as HTML: no markup, and nothing that puts what stands beside it into another order."""
    return libraries.escape(printable(text))


def _badge(good: bool, text: str, otherwise: str) -> str:
    return f'<span class="badge">{text}</span>' if good else f'<span class="badge bad">{otherwise}</span>'


def _faults(checks: Iterable[Json]) -> str:
    items = "".join(f"<li>{escape(check['seen'])}</li>" for check in checks if not check["ok"])
    return f'<ul class="bad">{items}</ul>' if items else ""


def _missing(tasks: int | None) -> str:
    return f'<p class="bad">{tasks} accepted tasks are missing from the books.</p>' if tasks else ""


def _held(held: Sequence[Json]) -> str:
    """Why starts are held back; nothing at all while none are."""
    return f"<h2>Starts held back</h2>\n{_table(_HELD, held, '')}" if held else ""


def _next_schedules(rows: Sequence[Json] | None) -> str:
    """What is enqueued periodically, the next first; nothing at all where nothing is."""
    return f"<h2>Schedules</h2>\n{_table(_SCHEDULES, rows, '')}" if rows else ""


def _open_groups(rows: Sequence[Json] | None) -> str:
    """Groups that have not ended, the longest open first; nothing at all where none is."""
    return f"<h2>Groups</h2>\n{_table(_GROUPS, rows, '')}" if rows else ""


# Tables: a column has a head, and makes its cell of a row of the dictionary, in HTML

_Columns = Mapping[str, Callable[[Any], str]]


def _table(columns: _Columns, rows: Iterable[Json], empty: str) -> str:
    kinds = {head: ' class="text"' if head in _WORDS else "" for head in columns}
    cells = ("".join(f"<td{kinds[head]}>{cell(row)}</td>" for head, cell in columns.items()) for row in rows)
    body = "".join(f"<tr>{row}</tr>\n" for row in cells)
    if not body:
        return f'<p class="soft">{empty}</p>'
    heads = "".join(f'<th scope="col"{kind}>{escape(head)}</th>' for head, kind in kinds.items())
    return f'<div class="scroll"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody></table></div>'


def _name(queue: Json) -> str:
    state = queue["state"]
    remarks = [] if state is None else list(_remarks(state))
    return escape(queue["name"]) + "".join(f' <span class="bad">{escape(remark)}</span>' for remark in remarks)


def _remarks(state: Json) -> Iterator[str]:
    age = f" for {seconds(state['closed_age_seconds'])}" if state["closed_age_seconds"] else ""
    if state["paused"]:
        yield f"paused{age}"
    elif state["closed_by"]:
        fault = f": {state['condition_error']}" if state["condition_error"] else ""
        yield f"closed by {state['closed_by']}{age}{fault}"
    if not state["served"]:
        yield "not served"


def _next_of(row: Json) -> str:
    is_waiting = row["next_in_seconds"] is not None
    return seconds(max(0.0, row["next_in_seconds"])) if is_waiting else f'<span class="bad">{row["state"]}</span>'


def _count_in(key: str) -> Callable[[Json], str]:
    return lambda queue: _DASH if queue["state"] is None else f"{queue['state'][key]:,}"


def _oldest_ready(queue: Json) -> str:
    state = queue["state"]
    return seconds(state["oldest_ready_age_seconds"]) if state and state["ready"] else _DASH


def _p99(queue: Json) -> str:
    late, objective = queue["lag"] and queue["lag"]["p99_seconds"], queue["lag_objective_seconds"]
    misses = late is not None and objective is not None and late > objective
    return f'<span class="bad">{seconds(late)}</span>' if misses else seconds(late)


def _condition(row: Json) -> str:
    state = row["state"]
    return state if state == PoolState.RUNNING else f'<span class="bad">{escape(state)}</span>'


def _rows_of(process: Json) -> list[Json]:
    """A row for each task of a process that runs several, numbered by slot and place; else one for the process."""
    tasks = process["tasks"]
    if len(tasks) < 2:  # noqa: PLR2004 - several
        return [{**process, "where": str(process["slot"])}]
    return [{**process, **task, "where": f"{process['slot']}.{task['place']}"} for task in tasks]


def _workers(pool: Json) -> str:
    return escape(", ".join(f"{count} {state}" for state, count in pool["workers"].items())) or _DASH


def seconds(value: float | None) -> str:
    """Return a duration for people: `4.2 ms`, `3.1 s`, `2 h 05 min`."""
    if value is None:
        return _DASH
    if value < 1:
        return f"{value * 1000:.1f} ms"
    if value < 120:  # noqa: PLR2004 - two minutes are still seconds to people
        return f"{value:.1f} s"
    hours, minutes = divmod(round(value / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


_QUEUES: Final[_Columns] = {
    "queue": _name,
    "ready": _count_in("ready"),
    "scheduled": _count_in("scheduled"),
    "overdue": _count_in("overdue"),
    "in flight": _count_in("inflight"),
    "dead": _count_in("dead"),
    "done": lambda queue: _DASH if queue["pattern"] else f"{queue['processed'].get('done', 0):,}",
    "oldest ready": _oldest_ready,
    "lag p50": lambda queue: seconds(queue["lag"] and queue["lag"]["p50_seconds"]),
    "lag p99": _p99,
}
_SCHEDULES: Final[_Columns] = {
    "schedule": lambda row: escape(row["name"]),
    "task": lambda row: escape(row["task"]),
    "when": lambda row: escape(row["when"]),
    "last": lambda row: escape(row["last_at"] or _DASH),
    "next in": _next_of,
}
_GROUPS: Final[_Columns] = {
    "group": lambda row: escape(row["id"]),
    "state": lambda row: escape(row["state"]),
    "ended": lambda row: progress_words({"done": row["total"] - row["left"], "total": row["total"], "note": ""}),
    "left": lambda row: f"{row['left']:,}",
    "dead": lambda row: f"{row['dead']:,}",
    "open since": lambda row: escape(row["opened_at"]),
}
_POOLS: Final[_Columns] = {
    "pool": lambda pool: escape(pool["name"]),
    "state": _condition,
    "desired": lambda pool: f"{pool['desired']:,}",
    "workers": _workers,
}
_HELD: Final[_Columns] = {
    "role": lambda row: escape(row["role"]),
    "pool": lambda row: escape(row["pool"]),
    "state": _condition,
    "failures in a row": lambda row: f"{row['failures_in_a_row']:,}",
    "next try": lambda row: seconds(row["next_try_seconds"]),
    "last error": lambda row: escape(row["last_error"]),
}
_PROCESSES: Final[_Columns] = {
    "role": lambda process: escape(process["role"]),
    "slot": lambda process: process["where"],
    "pid": lambda process: str(process["pid"]),
    "state": lambda process: f'<span class="{escape(process["phase"])}">{escape(process["phase"])}</span>',
    "last beat": lambda process: _DASH if process["role"] == Role.ZYGOTE else seconds(process["beat_age_seconds"]),
    "task": lambda process: escape("{name} {id}".format(**process["task"])) if process["task"] else _DASH,
    "progress": lambda process: escape(progress_words(process["progress"])) or _DASH,
    "running for": lambda process: seconds(process["task_age_seconds"]),
}
_RESTARTS: Final[_Columns] = {
    "role": lambda row: escape(row["role"]),
    "reason": lambda row: escape(row["reason"]),
    "count": lambda row: f"{row['count']:,}",
}
