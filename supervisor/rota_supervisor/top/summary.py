"""The lines at the top of `rota top`: which fleet this is, what is wrong with it, and how it went lately; and `rota top
--once`, which writes them and all tables as text, for a pipe, a ticket, or a terminal without Textual. Pure."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from rota.display_text import printable
from rota.durations import in_words
from rota_supervisor.exporter.queue_headlines import workers_of
from rota_supervisor.top.fleet_tables import TABLES, rate_of, step_of
from rota_supervisor.top.tables import Cell, Row, Table, spark

# Read without color too: what is wrong has a mark before it.
MARKS: Final = {"bad": "!!", "warn": " !", "good": "ok"}
_NARROW: Final = 78


def title(status: Row) -> list[Cell]:
    """Which fleet, which node, and how many of its workers run something."""
    workers = workers_of(status)
    busy = sum(len(row["tasks"]) for row in workers)
    places = sum(row.get("concurrency") or 1 for row in workers)
    node = f" on {printable(status['node'])}" if status.get("node") else ""
    up = f", up {in_words(status['at'] - status['started_at'])}" if status.get("at") and status["started_at"] else ""
    count = f"{len(workers)} worker{'' if len(workers) == 1 else 's'}"
    return [Cell(printable(status["fleet"]), level="strong"), Cell(f"{node}{up}  {count}, {busy} of {places} busy")]


def headlines(status: Row, width: int, most: int) -> list[Cell]:
    """What is wrong, the worst first: so many of it at most, each in two lines of `width` at most."""
    rows = status["headlines"]
    numbers = [f" {at} of {len(rows)}:" if len(rows) > 1 else "" for at in range(1, most + 1)]
    texts = [f"{MARKS[row['level']]}{at} {printable(row['text'])}" for row, at in zip(rows, numbers, strict=False)]
    room = 2 * width - 8  # words do not fill a line
    shown = [text if len(text) <= room else f"{text[: room - 1]}…" for text in texts]
    return [Cell(text, level=row["level"]) for row, text in zip(rows, shown, strict=False)]


def charts(status: Row, width: int) -> list[list[Cell]]:
    """Throughput and lag over the last minutes, as two lines; as one of each where there is no room beside them."""
    overall, step = status.get("overall"), step_of(status)
    if not overall:
        return []
    is_narrow = width < _NARROW
    bars = max(8, width - 26 if is_narrow else (width - 6) // 2 - 20)
    done, p99 = _rates(overall, step, "done", bars), _lags(overall, "p99", bars)
    if is_narrow:
        return [done, p99]
    return [[*done, *_rates(overall, step, "started", bars)], [*p99, *_lags(overall, "p50", bars)]]


def queue_chart(queue: Row, step: float, width: int) -> list[list[Cell]]:
    """The same of one queue, with its objective: how often the lag was over it is said in words."""
    history, objective = queue.get("history"), queue["lag_objective_seconds"]
    if not history:
        return []
    bars = max(8, width - 26)
    lines = [_rates(history, step, "done", bars)]
    lines += [_lags(history, name, bars) for name in ("p50", "p99")]
    if objective is not None:
        over = sum(value is not None and value > objective for value in history["p99"])
        said = f"objective {in_words(objective)}: p99 was over it in {over} of {len(history['p99'])} steps"
        lines.append([Cell(said, level="bad" if over else "soft")])
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
    """All of it, line by line."""
    yield title(status)
    yield from ([line] for line in headlines(status, width, most_headlines))
    yield from charts(status, width)


_MOST_HEADLINES = 20
_MOST_EVENTS = 10


def plain(status: Row, width: int) -> str:
    """Return all that is known, as text of lines of about `width` columns."""
    said = ("".join(cell.text for cell in line) for line in lines(status, width, _MOST_HEADLINES))
    head = [line for each in said for line in textwrap.wrap(each, width, drop_whitespace=False)]
    tables = [make(status).fitted(width) for make in TABLES.values()]
    return "\n".join([*head, *(line for table in tables if table.lines for line in ("", *_table(table, width)))])


def _table(table: Table, width: int) -> Iterator[str]:
    lines = table.lines[:_MOST_EVENTS] if table.name == "events" else table.lines
    for row in (table.heads, *([cell.text for cell in line.cells] for line in lines)):
        cells = zip(row, table.widths, table.right, strict=True)
        yield "  ".join(text.rjust(most) if right else text.ljust(most) for text, most, right in cells)[:width].rstrip()
