"""The record of a run that is stored in a file: the command, the machine, the versions, and all numbers of all
rounds.
"""

import dataclasses
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.contender import Contender
from benchmarks.effort import Effort
from benchmarks.numbers import Result
from benchmarks.rounds import Failure


def machine() -> dict[str, Any]:
    """Return a description of this machine."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def record(
    results: Sequence[Result],
    failures: Sequence[Failure],
    contenders: Sequence[Contender],
    effort: Effort,
    server: str,
) -> dict[str, Any]:
    """Return the record of a run as a value that can be stored as JSON."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        "machine": machine(),
        "server": server,
        "effort": dataclasses.asdict(effort),
        "rota": version("rota"),
        "contenders": {one.name: {"settings": one.settings, "at_least_once": one.at_least_once} for one in contenders},
        "versions": {one.name: one.versions() for one in contenders},
        "results": [dataclasses.asdict(one) for one in results],
        "failures": [dataclasses.asdict(one) for one in failures],
    }
