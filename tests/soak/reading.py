"""A reader of a soak's evidence from its folder."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from soak.evidence import (
    LOGS,
    NEMESIS_FILE,
    PRODUCERS,
    QUIET_FILE,
    RUNS_FILE,
    SETUP_FILE,
    CallEvent,
    Edge,
    Evidence,
    Logged,
    Quiet,
    Ran,
    Record,
    RunEvent,
    Sent,
    Setup,
    Strike,
)
from soak.faults import Fault
from support.growing_files import logged, whole_lines

R = TypeVar("R", Sent, Ran, Strike)


def read_evidence(folder: Path) -> Evidence:
    """Return all evidence in a folder. Raises FileNotFoundError if there is no setup, and ValueError if a line is not
    valid. The folder may be read during the soak. The runs are read first. Their causes are therefore already recorded
    when the other files are read.
    """
    ran = sorted(_all(folder, RUNS_FILE, ran_of), key=lambda each: each.boot)
    sent = sorted(_all(folder, PRODUCERS, sent_of), key=lambda each: each.boot)
    strikes = sorted(_all(folder, NEMESIS_FILE, strike_of), key=lambda each: each.boot)
    records: list[Record] = [*sent, *strikes, *ran]
    offset = next((each.at - each.boot for each in records), 0.0)
    logged = sorted(_logged(folder, offset), key=lambda each: each.boot)
    return Evidence(read_setup(folder), sent, ran, strikes, logged, read_quiet(folder))


def _all(folder: Path, pattern: str, parse: Callable[[bytes], R]) -> Iterator[R]:
    for path in sorted(folder.glob(pattern)):
        for line in whole_lines(path):
            yield parse(line)


def sent_of(line: bytes) -> Sent:
    """Return the record of a line of a producer's journal."""
    fields = json.loads(line)
    return Sent(**(fields | {"what": CallEvent(fields["what"])}))


def ran_of(line: bytes) -> Ran:
    """Return the record of a line of the tasks' journal."""
    fields = {"owner": "", "name": "", "queue": ""} | json.loads(line)
    return Ran(**(fields | {"what": RunEvent(fields["what"])}))


def strike_of(line: bytes) -> Strike:
    """Return the record of a line of the nemesis's journal."""
    fields = json.loads(line)
    fields |= {"what": Edge(fields["what"]), "fault": Fault(fields["fault"]), "pids": tuple(fields.get("pids", ()))}
    return Strike(**fields)


def _logged(folder: Path, offset: float) -> Iterator[Logged]:
    for path in sorted(folder.glob(LOGS)):
        for fields in logged(path):
            at = datetime.fromisoformat(fields["timestamp"]).timestamp()
            yield Logged(path.parent.name, fields["event"], at, at - offset, fields)


def read_setup(folder: Path) -> Setup:
    """Return the setup of the run."""
    fields = json.loads((folder / SETUP_FILE).read_text())
    tiers = tuple(tuple(tier) for tier in fields["tiers"])
    lists = {name: tuple(fields[name]) for name in ("apart", "fair")}
    return Setup(**(fields | lists | {"tiers": tiers}))


def read_quiet(folder: Path) -> Quiet | None:
    """Return the record of the quiet window, or None if the run did not reach its end."""
    path = folder / QUIET_FILE
    if not path.exists():
        return None
    fields = json.loads(path.read_text())
    return Quiet(**(fields | {"dead_ids": tuple(fields["dead_ids"])}))
