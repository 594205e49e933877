"""The cost of an idle fleet of eight workers: the commands that the server receives, and processor time."""

import time

from benchmarks.effort import Effort
from benchmarks.measures.monitor import commands_at
from benchmarks.numbers import Values
from benchmarks.processes import cpu_seconds
from benchmarks.running import Running

WORKERS = 8
_REST_SECONDS = 3.0  # time for the work that follows a start


def measure(running: Running, effort: Effort) -> Values:
    """Measure the commands per second, without and with the commands that scripts call. Also measure the processor time
    of all processes of the fleet, without the server, in percent of one processor."""
    commands_at(running.testbed.url, _REST_SECONDS)
    processes = running.processes()
    cpu = cpu_seconds(processes)
    started = time.monotonic()
    commands = commands_at(running.testbed.url, effort.idle_seconds)
    seconds = time.monotonic() - started
    used = cpu_seconds(processes) - cpu
    return {
        "commands": commands.of_clients / seconds,
        "inside": sum(commands) / seconds,
        "cpu_percent": used / seconds * 100,
        "processes": len(processes),
    }
