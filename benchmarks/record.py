"""The raw numbers of a run, as a file: what was run, where, with which versions, and every number of every round."""

import dataclasses
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.contender import Contender
from benchmarks.effort import Effort
from benchmarks.numbers import Result
from benchmarks.rounds import Failure

_VERSIONS = (
    "import json,sys,importlib.metadata as m;"
    "print(json.dumps({d.name.lower(): d.version for d in m.distributions() if d.name.lower() in sys.argv[1:]}))"
)


def machine() -> dict[str, Any]:
    """What it was measured on."""
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


def versions(contenders: Iterable[Contender]) -> dict[str, dict[str, str]]:
    """By contender, the versions of what its interpreter has of it."""
    return {one.name: _versions_in(one.python, one.name.partition("+")[0]) for one in contenders}


def _versions_in(python: Path, name: str) -> dict[str, str]:
    wanted = [name, "redis", "hiredis", "kombu", "taskiq-redis"]
    asked = subprocess.run([str(python), "-c", _VERSIONS, *wanted], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(asked.stdout)
    return found


def record(
    results: Sequence[Result],
    failures: Sequence[Failure],
    contenders: Sequence[Contender],
    effort: Effort,
    server: str,
) -> dict[str, Any]:
    """The whole run as one value."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        "machine": machine(),
        "server": server,
        "effort": dataclasses.asdict(effort),
        "rota": version("rota"),
        "contenders": {one.name: {"settings": one.settings, "at_least_once": one.at_least_once} for one in contenders},
        "versions": versions(contenders),
        "results": [dataclasses.asdict(one) for one in results],
        "failures": [dataclasses.asdict(one) for one in failures],
    }
