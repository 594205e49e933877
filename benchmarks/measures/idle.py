"""What a fleet of eight costs while there is nothing to do: commands at the server, and processor time."""

import time

from benchmarks.effort import Effort
from benchmarks.measures.monitor import commands_at
from benchmarks.numbers import Values
from benchmarks.processes import cpu_seconds
from benchmarks.running import Running

WORKERS = 8
_REST_SECONDS = 3.0  # for what still happens after a start


def measure(running: Running, effort: Effort) -> Values:
    """Commands a second, of clients alone and with those of scripts, and per cent of one processor: all processes of
    the fleet together, not the server."""
    commands_at(running.place.url, _REST_SECONDS)
    processes = running.processes()
    cpu, started = cpu_seconds(processes), time.monotonic()
    commands = commands_at(running.place.url, effort.idle_seconds)
    seconds = time.monotonic() - started
    used = cpu_seconds(processes) - cpu
    return {
        "commands": commands.of_clients / seconds,
        "inside": sum(commands) / seconds,
        "cpu_percent": used / seconds * 100,
        "processes": len(processes),
    }
