"""The limits of the server, measured with redis-benchmark, which comes with Redis, if this program is installed."""

import csv
import shutil
import subprocess
from collections.abc import Iterator
from urllib.parse import urlsplit

from benchmarks.effort import Effort
from benchmarks.numbers import Result
from benchmarks.rounds import Failure, say
from benchmarks.testbed import Testbed

NAME = "limits"
TITLE = "limits: redis-benchmark"
_REQUESTS = "50000"
_SETTINGS = {
    "1 client": ["-c", "1"],
    "2 clients": ["-c", "2"],
    "50 clients": ["-c", "50"],
    "1 client, pipelines of 500": ["-c", "1", "-P", "500"],
}


def run_limits(testbed: Testbed, effort: Effort) -> Iterator[Result | Failure]:
    """Measure RPUSH and LPOP per second, with few and many clients."""
    program = shutil.which("redis-benchmark")
    if program is None:
        say("  left out, because redis-benchmark is not installed")
        return
    port = str(urlsplit(testbed.url).port)
    for turn in range(effort.rounds_of(NAME)):
        testbed.clear()
        values: dict[str, float] = {}
        for name, options in _SETTINGS.items():
            argv = [program, "-p", port, "-t", "rpush,lpop", "-n", _REQUESTS, "-d", "64", "--csv", *options]
            shown = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout
            values |= {f"{command}, {name}": rate for command, rate in parse(shown).items()}
        yield Result(NAME, turn, "redis-benchmark", values)


def parse(shown: str) -> dict[str, float]:
    """Return the requests per second by command, from the CSV of redis-benchmark."""
    rows = csv.reader(line for line in shown.splitlines() if line.startswith('"'))
    return {row[0]: float(row[1]) for row in rows if row[0] in ("RPUSH", "LPOP")}


def table(results: list[Result]) -> str:
    """Return a title, and a line with the rate for each command and number of clients."""
    values = next((one.values for one in results if one.measure == NAME), {})
    return "\n".join([TITLE, *(f"  {name:40}{rate:>12,.0f} 1/s" for name, rate in values.items())])
