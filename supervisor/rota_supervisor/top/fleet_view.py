"""The content of `rota top`, computed by pure functions from the reply of `/status.json`: the lines at the top, the
tables, and both as plain text for `--once`."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from rota.client.queues import QueuedTask
from rota.display_text import printable
from rota.durations import in_words
from rota.protocol.keys import is_pattern
from rota.protocol.progress import progress_summary
from rota.protocol.task_states import State
from rota_supervisor.exporter.queue_headlines import lateness, workers_of
from rota_supervisor.fleet_snapshot import rows_by_task
from rota_supervisor.layout import Role
from rota_supervisor.top.tables import (
    NONE,
    Cell,
    Column,
    Row,
    Table,
    count_cell,
    rate_cell,
    spark,
    table_of,
    text_cell,
    time_cell,
)

_LATELY_SECONDS: Final = 10.0

# Each problem begins with a mark, because a terminal may have no colors.
MARKS: Final = {"bad": "!!", "warn": " !", "good": "ok"}
_NARROW: Final = 78


def queues(status: Row) -> Table:
    """Return the table of queues, by tier."""
    tiers = {name: tier["number"] for tier in status.get("tiers") or () for name in tier["queues"]}
    step = step_of(status)
    rows = [{"tier": tiers.get(row["name"]), **row, "step_seconds": step} for row in status["queues"]]
    rows.sort(key=lambda row: (row["tier"] is None, row["tier"]))
    return table_of("queues", _QUEUES, rows, "name")


def step_of(status: Row) -> float:
    """Return how many seconds each value covers in the histories of throughput and lag in the status."""
    return float((status.get("history") or {"step_seconds": 1.0})["step_seconds"])


def marks_of(queue: Row) -> Iterator[Cell]:
    """Yield the marks of a queue, for example `paused`, the most serious one first."""
    state = queue["state"]
    if state is not None and not state["served"]:
        yield Cell("unserved", 0, "bad" if state["ready"] else "warn")
    if state is not None and (state["paused"] or state["closed_by"]):
        mark = "paused" if state["paused"] else "closed"
        yield Cell(mark, 2, "bad" if state["condition_error"] else "warn")
    is_now, seconds = lateness(queue)
    if seconds:
        yield Cell("LATE", 1, "bad") if is_now else Cell("was late", 3, "warn")
    elif state is None and not is_pattern(queue["name"]):
        yield Cell("unknown", 4, "warn")


def _mark(queue: Row) -> Cell:
    marks = list(marks_of(queue))
    return marks[0]._replace(text=", ".join(mark.text for mark in marks)) if marks else Cell("ok", 9, "soft")


def _of_state(key: str, level: str = "") -> Callable[[Row], Cell]:
    return lambda queue: count_cell(None if queue["state"] is None else queue["state"][key], level)


def _oldest(queue: Row) -> Cell:
    state = queue["state"]
    return time_cell(state["oldest_ready_age_seconds"]) if state and state["ready"] else Cell(NONE)


def _lag(key: str) -> Callable[[Row], Cell]:
    def cell(queue: Row) -> Cell:
        value = (queue["lag"] or {}).get(key)
        objective = queue["lag_objective_seconds"]
        return time_cell(value, "bad" if value and objective is not None and value > objective else "")

    return cell


def _done_rate(queue: Row) -> Cell:
    return rate_cell(rate_of(queue.get("history"), queue["step_seconds"], "done"))


def rate_of(history: Row | None, step_seconds: float, what: str) -> float | None:
    """Return how many tasks per second were started or done recently, or None if this is not known. `what` is `started`
    or `done`."""
    if not history or not history[what]:
        return None
    steps = history[what][-max(1, round(_LATELY_SECONDS / step_seconds)) :]
    return float(sum(steps) / (len(steps) * step_seconds))


def _share(queue: Row) -> Cell:
    share = queue.get("share")
    due = queue.get("due_share")
    return Cell(NONE) if share is None or due is None else Cell(f"{share:.0%} of {due:.0%}", share)


def _p99_spark(queue: Row) -> Cell:
    history = queue.get("history")
    return Cell(spark(history["p99"], top=None) if history else "")


_QUEUES: Final = (
    Column("TIER", lambda row: count_cell(row["tier"]), 3),
    Column("QUEUE", lambda row: text_cell(row["name"], 32), right=False),
    Column("STATE", _mark, right=False),
    Column("READY", _of_state("ready")),
    Column("SCHED", _of_state("scheduled"), 5),
    Column("OVERDUE", _of_state("overdue", "warn"), 6),
    Column("RUN", _of_state("inflight"), 4),
    Column("DEAD", _of_state("dead", "warn"), 2),
    Column("OLDEST", _oldest),
    Column("DONE/S", _done_rate, 1),
    Column("P50", _lag("p50_seconds"), 4),
    Column("P99", _lag("p99_seconds")),
    Column("OBJECTIVE", lambda row: time_cell(row["lag_objective_seconds"], "soft"), 7),
    Column("SHARE", _share, 8),
    Column("RECENT P99", _p99_spark, 9, right=False),
)


# Processes


def workers(status: Row) -> Table:
    """Return the table of workers, followed by the other processes. A worker that runs several tasks has one row for
    each task."""
    processes = sorted(status["processes"], key=lambda row: row["role"] != Role.WORKER)
    return table_of("workers", _WORKERS, rows_by_task(processes), "where")


def _process_name(process: Row) -> Cell:
    pool = process.get("pool") or ""
    return text_cell(f"{process['role']} {pool}".rstrip() if process["role"] == Role.WORKER else process["role"], 24)


def _phase(process: Row) -> Cell:
    return Cell("quiet", "quiet", "warn") if process.get("quiet") else text_cell(process["phase"] or process["state"])


def _task(process: Row) -> Cell:
    return text_cell(process["task"]["name"], 40) if process["task"] else Cell(NONE)


def _runs_for(process: Row) -> Cell:
    age = process["task_age_seconds"]
    limit = process.get("limit_seconds")
    if age is None:
        return Cell(NONE)
    of = f" of {in_words(limit, 1)}" if limit else ""
    return Cell(f"{in_words(age, 1)}{of}", age, "bad" if limit and age > limit else "")


_WORKERS: Final = (
    Column("SLOT", lambda row: Cell(str(row["where"]), row["slot"])),
    Column("PROCESS", _process_name, right=False),
    Column("PID", lambda row: Cell(str(row["pid"]), row["pid"]), 1),
    Column("STATE", _phase, right=False),
    Column("TASK", _task, right=False),
    Column("FOR", _runs_for),
    Column("QUEUE", lambda row: text_cell((row["task"] or {}).get("queue"), 24), 5, right=False),
    Column("ID", lambda row: text_cell((row["task"] or {}).get("id"), 36), 9, right=False),
    Column("LAG", lambda row: time_cell(row.get("lag_seconds")), 5),
    Column("BEAT", lambda row: time_cell(row["beat_age_seconds"]), 5),
    Column("GEN", lambda row: count_cell(row.get("generation")), 5),
    Column("PROGRESS", lambda row: text_cell(progress_summary(row.get("progress")), 30), 5, right=False),
)


# Pools, nodes, events


def pools(status: Row) -> Table:
    """Return the table of this node's pools. If a pool's next start is delayed, the table shows the reason."""
    held = {row["pool"]: row for row in status["held"] if row["role"] == Role.WORKER}
    rows = [{**row, "held": held.get(row["name"])} for row in status["pools"]]
    others = [row for row in status["held"] if row["role"] != Role.WORKER]
    rows += [{"name": row["role"], "state": row["state"], **_NO_POOL, "held": row} for row in others]
    return table_of("pools", _POOLS, rows, "name")


def _backoff_reason(pool: Row) -> Cell:
    held = pool["held"]
    if held is None:
        return Cell("")
    failures = held["failures_in_a_row"]
    seconds = in_words(held["next_try_seconds"], 1)
    return text_cell(f"{failures} failures, next try in {seconds}: {held['last_error']}", level="bad")


def _range(pool: Row) -> Cell:
    scaling = pool.get("scaling")
    return text_cell(f"{scaling['min']} to {scaling['max']}") if scaling else Cell(NONE)


def _scaling_reason(pool: Row) -> Cell:
    scaling = pool.get("scaling") or {}
    return text_cell(scaling.get("reason", ""), 100, level="warn" if scaling.get("limited_by") else "")


_NO_POOL: Final[Row] = {"desired": None, "workers": {}}  # stands for the pool of processes that are not workers
_POOLS: Final = (
    Column("POOL", lambda row: text_cell(row["name"], 24), right=False),
    Column("STATE", lambda row: text_cell(row["state"], level="bad" if row["held"] else ""), right=False),
    Column("DESIRED", lambda row: count_cell(row["desired"])),
    Column("RANGE", _range, 5),
    Column("HAS", lambda row: text_cell(", ".join(f"{n} {state}" for state, n in row["workers"].items())), right=False),
    Column("BACK-OFF", _backoff_reason, right=False),
    Column("SCALING", _scaling_reason, 3, right=False),
)


def nodes(status: Row) -> Table:
    """Return the table of all nodes of the fleet, based on their heartbeats."""
    return table_of("nodes", _NODES, status.get("nodes") or (), "node")


def _node_state(node: Row) -> Cell:
    return text_cell(node["state"], level=_OF_NODE.get(node["state"], "warn"))


def _of(node: Row, part: str, whole: str) -> Cell:
    if node.get(part) is None:
        return Cell(NONE)
    return Cell(f"{node[part]} of {node[whole]}", node[part])


_OF_NODE: Final = {"running": "", "lost": "bad"}
_NODES: Final = (
    Column("NODE", lambda row: text_cell(f"{row['node']}{' *' if row.get('is_this') else ''}", 24), right=False),
    Column("STATE", _node_state, right=False),
    Column("WORKERS", lambda row: _of(row, "workers", "desired")),
    Column("BUSY", lambda row: _of(row, "busy", "concurrency"), 1),
    Column("DONE/S", lambda row: rate_cell(row.get("done_per_second"))),
    Column("P99", lambda row: time_cell(row.get("lag_p99_seconds"))),
    Column("SEEN", lambda row: time_cell(row.get("seen_seconds_ago"))),
    Column("VERSION", lambda row: text_cell(row.get("version"), 16), 5, right=False),
    Column("LAST DEATH", lambda row: text_cell(row.get("last_death"), 60), 1, right=False),
)


def events(status: Row) -> Table:
    """Return the table of events, the newest first."""
    return table_of("events", _EVENTS, reversed(status.get("events") or ()), "n")


_OF_EVENT: Final = {"error": "bad", "critical": "bad", "warning": "warn"}


def _event_at(row: Row) -> Cell:
    return Cell(datetime.fromtimestamp(row["at"]).astimezone().strftime("%H:%M:%S"), row["at"], "soft")


_EVENTS: Final = (
    Column("AT", _event_at, right=False),
    Column("LEVEL", lambda row: text_cell(row["level"], level=_OF_EVENT.get(row["level"], "soft")), 1, right=False),
    Column("EVENT", lambda row: text_cell(row["event"], 24), 5, right=False),
    Column("WHAT", lambda row: text_cell(row["text"]), right=False),
)


# The tasks of a queue


def tasks(found: Iterable[QueuedTask]) -> Table:
    """Return the table of a queue's tasks by state. Running tasks come first. Within a state, the tasks keep their
    order."""
    order = (State.RUNNING, State.DEAD, State.READY, State.SCHEDULED)
    shown = sorted(found, key=lambda task: order.index(task.state))
    rows = [{"id": task.id, "state": str(task.state), "task": task} for task in shown]
    return table_of("tasks", _TASKS, rows, "id")


def _age_of(row: Row) -> Cell:
    task: QueuedTask = row["task"]
    if task.state is State.SCHEDULED and task.due_in_seconds is not None:
        return Cell(f"due in {in_words(task.due_in_seconds, 1)}", task.due_in_seconds)
    return time_cell(task.age_seconds)


def _why(row: Row) -> Cell:
    death = row["task"].death
    return text_cell(": ".join(filter(None, (death.reason, death.error))) if death else "", level="warn")


_TASKS: Final = (
    Column("STATE", lambda row: text_cell(row["state"], level="warn" if row["state"] == "dead" else ""), right=False),
    Column("TASK", lambda row: text_cell(row["task"].name, 30), right=False),
    Column("AGE", _age_of),
    Column("ATTEMPT", lambda row: count_cell(row["task"].attempt), 1),
    Column("ID", lambda row: text_cell(row["id"], 36), 1, right=False),
    Column("WHY", _why, right=False),
)


TABLES: Final = {"queues": queues, "workers": workers, "pools": pools, "nodes": nodes, "events": events}


def title(status: Row) -> list[Cell]:
    """Return the first line: the fleet, the node, the number of its workers, and how many tasks they are running."""
    workers = workers_of(status)
    busy = sum(len(row["tasks"]) for row in workers)
    slots = sum(row.get("concurrency") or 1 for row in workers)
    node = f" on {printable(status['node'])}" if status.get("node") else ""
    up = f", up {in_words(status['at'] - status['started_at'])}" if status.get("at") and status["started_at"] else ""
    count = f"{len(workers)} worker{'' if len(workers) == 1 else 's'}"
    return [Cell(printable(status["fleet"]), level="strong"), Cell(f"{node}{up}  {count}, {busy} of {slots} busy")]


def headlines(status: Row, width: int, most: int) -> list[Cell]:
    """Return at most `most` problems, the worst first. Each problem takes at most two lines of `width` characters."""
    rows = status["headlines"]
    numbers = [f" {at} of {len(rows)}:" if len(rows) > 1 else "" for at in range(1, most + 1)]
    texts = [f"{MARKS[row['level']]}{at} {printable(row['text'])}" for row, at in zip(rows, numbers, strict=False)]
    room = 2 * width - 8  # two lines minus 8 characters, because wrapped lines are rarely full
    shown = [text if len(text) <= room else f"{text[: room - 1]}…" for text in texts]
    return [Cell(text, level=row["level"]) for row, text in zip(rows, shown, strict=False)]


def charts(status: Row, width: int) -> list[list[Cell]]:
    """Return the charts of throughput and lag over the last few minutes, in two lines. In a narrow terminal, each line
    has only one chart."""
    overall = status.get("overall")
    step = step_of(status)
    if not overall:
        return []
    is_narrow = width < _NARROW
    bars = max(8, width - 26 if is_narrow else (width - 6) // 2 - 20)
    done = _rates(overall, step, "done", bars)
    p99 = _lags(overall, "p99", bars)
    if is_narrow:
        return [done, p99]
    return [[*done, *_rates(overall, step, "started", bars)], [*p99, *_lags(overall, "p50", bars)]]


def queue_chart(queue: Row, step: float, width: int) -> list[list[Cell]]:
    """Return charts of a queue's throughput and lag over the last few minutes, and a line that states in how many steps
    of these charts the lag exceeded the objective."""
    history = queue.get("history")
    objective = queue["lag_objective_seconds"]
    if not history:
        return []
    bars = max(8, width - 26)
    lines = [_rates(history, step, "done", bars)]
    lines += [_lags(history, name, bars) for name in ("p50", "p99")]
    if objective is not None:
        over = sum(value is not None and value > objective for value in history["p99"])
        text = f"objective {in_words(objective)}: p99 exceeded it in {over} of {len(history['p99'])} steps"
        lines.append([Cell(text, level="bad" if over else "soft")])
    return lines


def _rates(history: Row, step: float, what: str, bars: int) -> list[Cell]:
    now = rate_of(history, step, what)
    return _chart(f"{what}/s", [count / step for count in history[what]], f"{now or 0.0:,.1f}", bars)


def _lags(history: Row, name: str, bars: int) -> list[Cell]:
    last = next((value for value in reversed(history[name]) if value is not None), None)
    return _chart(f"lag {name}", history[name], "-" if last is None else in_words(last, 1), bars)


def _chart(name: str, values: Sequence[float | None], now: str, bars: int) -> list[Cell]:
    return [Cell(f"{name:<10}", level="soft"), Cell(spark(values, bars), level="chart"), Cell(f" {now:<9}")]


def lines(status: Row, width: int, most_headlines: int) -> Iterator[list[Cell]]:
    """Yield the lines that `rota top` shows above its tables: the title, the worst problems, and the charts."""
    yield title(status)
    yield from ([line] for line in headlines(status, width, most_headlines))
    yield from charts(status, width)


_MAX_HEADLINES = 20
_MAX_EVENTS = 10


def plain(status: Row, width: int) -> str:
    """Return the content of `rota top`, including its tables, as plain text in lines of about `width` characters."""
    text = ("".join(cell.text for cell in line) for line in lines(status, width, _MAX_HEADLINES))
    head = [line for each in text for line in textwrap.wrap(each, width, drop_whitespace=False)]
    tables = [make(status).fitted(width) for make in TABLES.values()]
    return "\n".join([*head, *(line for table in tables if table.lines for line in ("", *_table(table, width)))])


def _table(table: Table, width: int) -> Iterator[str]:
    lines = table.lines[:_MAX_EVENTS] if table.name == "events" else table.lines
    for row in (table.heads, *([cell.text for cell in line.cells] for line in lines)):
        cells = zip(row, table.widths, table.right, strict=True)
        yield "  ".join(text.rjust(most) if right else text.ljust(most) for text, most, right in cells)[:width].rstrip()
