"""Periodic tasks, which the fleet enqueues according to their schedules."""

import json
from pathlib import Path

import rota

LINES = Path("occurrences.jsonl")


def note(what: str) -> None:
    """Append a line with a single write, so that the lines of several processes do not mix."""
    task = rota.current_task()
    line = {"what": what, "due_at": task.due_at.isoformat(), "lag_seconds": task.lag_seconds}
    with LINES.open("a") as file:
        file.write(json.dumps(line) + "\n")


@rota.task(every=1)
def count() -> None:
    """Run every second."""
    note("count")


@rota.task(schedules=[rota.Cron("0 9 * * MON-FRI", timezone="America/New_York", args=["week"], name="morning")])
def report(span: str) -> None:
    """Run on workdays at nine in New York, and at the times of other schedules, for example `nightly` in rota.toml."""
    note(f"report of the {span}")
