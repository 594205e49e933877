"""The status page: one HTML document without scripts or anything fetched, which reloads itself."""

from collections.abc import Iterable, Sequence
from typing import Final

from rota.printable import printable
from rota_supervisor.exporter.libraries import escape as escape_markup
from rota_supervisor.notice import Json

REFRESH_SECONDS: Final = 5
_DASH: Final = "–"  # noqa: RUF001 - an en dash is what stands for "none" in a table
# Columns of words.
_TEXT: Final = frozenset({"queue", "pool", "workers", "role", "state", "task", "reason", "last error"})
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
    """The page for a `status.status` dictionary."""
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
{_queues(state["queues"])}
<h2>Pools</h2>
{_pools(state["pools"])}
{_held(state["held"])}
<h2>Processes</h2>
{_processes(state["processes"])}
<h2>Restarts</h2>
{_restarts(state["restarts"])}
<footer class="soft">Reloads every {REFRESH_SECONDS} s. Lag and done: of this node; lag of the last minutes.
<a href="/metrics">metrics</a> <a href="/status.json">status.json</a> <a href="/readyz?verbose">readyz</a></footer>
</body>
</html>
"""


def escape(text: str) -> str:
    """Text as HTML: no markup, and nothing that puts what stands beside it into another order."""
    return escape_markup(printable(text))


def _badge(good: bool, text: str, otherwise: str) -> str:
    return f'<span class="badge">{text}</span>' if good else f'<span class="badge bad">{otherwise}</span>'


def _faults(checks: Iterable[Json]) -> str:
    items = "".join(f"<li>{escape(check['seen'])}</li>" for check in checks if not check["ok"])
    return f'<ul class="bad">{items}</ul>' if items else ""


def _missing(tasks: int | None) -> str:
    return f'<p class="bad">{tasks} accepted tasks are missing from the books.</p>' if tasks else ""


def _table(heads: Sequence[str], rows: Iterable[Iterable[str]], empty: str) -> str:
    """A table; cells are HTML already, and are text or numbers as their column's head says."""
    kinds = [' class="text"' if head in _TEXT else "" for head in heads]
    body = "".join(_row(kinds, row) for row in rows)
    if not body:
        return f'<p class="soft">{empty}</p>'
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(heads, kinds, strict=True))
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>'


def _row(kinds: Sequence[str], cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<td{kind}>{cell}</td>' for kind, cell in zip(kinds, cells, strict=True))}</tr>\n"


def _queues(queues: Iterable[Json]) -> str:
    heads = (
        "queue",
        "ready",
        "scheduled",
        "overdue",
        "in flight",
        "dead",
        "done",
        "oldest ready",
        "lag p50",
        "lag p99",
    )
    return _table(heads, map(_queue, queues), "No queue is configured.")


def _queue(queue: Json) -> list[str]:
    state = queue["state"]
    counts = ("ready", "scheduled", "overdue", "inflight", "dead")
    numbers = [_DASH] * len(counts) if state is None else [f"{state[name]:,}" for name in counts]
    lag = queue["lag"] or {"p50_seconds": None, "p99_seconds": None}
    late, objective = lag["p99_seconds"], queue["lag_objective_seconds"]
    misses = late is not None and objective is not None and late > objective
    return [
        escape(queue["name"]) + _remarks(queue),
        *numbers,
        f"{queue['processed'].get('done', 0):,}",
        seconds(state["oldest_ready_age_seconds"]) if state and state["ready"] else _DASH,
        seconds(lag["p50_seconds"]),
        f'<span class="bad">{seconds(late)}</span>' if misses else seconds(late),
    ]


def _remarks(queue: Json) -> str:
    state = queue["state"]
    remarks = ["paused"] if state and state["paused"] else []
    remarks += ["not served"] if state and not state["served"] else []
    return "".join(f' <span class="bad">{remark}</span>' for remark in remarks)


def _pools(pools: Iterable[Json]) -> str:
    rows = (
        [escape(pool["name"]), _standing(pool["state"]), f"{pool['desired']:,}", _states(pool["workers"])]
        for pool in pools
    )
    return _table(("pool", "state", "desired", "workers"), rows, "The master has not said how many workers it wants.")


def _standing(state: str) -> str:
    return state if state == "running" else f'<span class="bad">{escape(state)}</span>'


def _held(held: Sequence[Json]) -> str:
    """Why starts are held back; nothing at all while none are."""
    if not held:
        return ""
    heads = ("role", "pool", "state", "failures in a row", "next try", "last error")
    return "<h2>Starts held back</h2>\n" + _table(heads, map(_held_back, held), "")


def _held_back(row: Json) -> list[str]:
    return [
        escape(row["role"]),
        escape(row["pool"]),
        _standing(row["state"]),
        f"{row['failures_in_a_row']:,}",
        seconds(row["next_try_seconds"]),
        escape(row["last_error"]),
    ]


def _states(workers: dict[str, int]) -> str:
    return escape(", ".join(f"{count} {state}" for state, count in workers.items())) or _DASH


def _processes(processes: Iterable[Json]) -> str:
    heads = ("role", "slot", "pid", "state", "last beat", "task", "running for")
    return _table(heads, map(_process, processes), "No process lives.")


def _process(process: Json) -> list[str]:
    task = process["task"]
    return [
        escape(process["role"]),
        str(process["slot"]),
        str(process["pid"]),
        f'<span class="{escape(process["phase"])}">{escape(process["phase"])}</span>',
        _DASH if process["role"] == "zygote" else seconds(process["beat_age_seconds"]),
        _DASH if task is None else escape(f"{task['name']} {task['id']}"),
        _DASH if task is None else seconds(process["task_age_seconds"]),
    ]


def _restarts(restarts: Iterable[Json]) -> str:
    rows = ([escape(row["role"]), escape(row["reason"]), f"{row['count']:,}"] for row in restarts)
    return _table(("role", "reason", "count"), rows, "None.")


def seconds(value: float | None) -> str:
    """A duration for people: `4.2 ms`, `3.1 s`, `2 h 05 min`."""
    if value is None:
        return _DASH
    if value < 1:
        return f"{value * 1000:.1f} ms"
    if value < 120:  # noqa: PLR2004 - two minutes are still seconds to people
        return f"{value:.1f} s"
    hours, minutes = divmod(round(value / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"
