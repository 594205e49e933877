"""Tasks that a fleet enqueues by itself."""

import json
from pathlib import Path

import rota

LINES = Path("occurrences.jsonl")


def note(what: str) -> None:
    """Add a line, whole, whatever else writes there."""
    task = rota.current_task()
    line = {"what": what, "due_at": task.due_at.isoformat(), "lag_seconds": task.lag_seconds}
    with LINES.open("a") as file:
        file.write(json.dumps(line) + "\n")


@rota.task(every=1)
def count() -> None:
    """Every second."""
    note("count")


@rota.task(schedules=[rota.Cron("0 9 * * MON-FRI", timezone="America/New_York", args=["week"], name="morning")])
def report(span: str) -> None:
    """On workdays at nine in New York, and whenever else a schedule says so, as `nightly` in rota.toml does."""
    note(f"report of the {span}")
