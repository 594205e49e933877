"""Due tasks start on time and never early, and a fleet with nothing to do leaves the server in peace."""

import random
import socket
import time
from urllib.parse import urlsplit

from fleets import Fleets, Measure, RunningFleet

TASKS = 300
SPREAD_SECONDS = 15.0
GENEROUS_LAG_SECONDS = 2.0
MONITORED_SECONDS = 10.0
MICROSECONDS = 1_000_000


def test_300_due_tasks_start_on_time_and_none_early_by_the_servers_clock(fleets: Fleets, measured: Measure) -> None:
    fleet = fleets.start(workers=4)
    delays = random.Random(300)
    for number in range(TASKS):
        delay = 0.5 + delays.uniform(0, SPREAD_SECONDS)
        fleet.client.enqueue("tell_time", args=[str(number)], queue="default", delay=delay)
    fleet.wait_for("end", TASKS)
    told = fleet.journal("time")
    lags = sorted(int(line.label) / MICROSECONDS - line.due_at for line in told)
    assert len({line.id for line in told}) == len(told) == TASKS
    assert lags[0] >= 0
    assert fleet.metrics().total("rota_task_early_starts_total") == 0
    measured("lag in ms, median", lags[TASKS // 2] * 1000)
    measured("lag in ms, p99", lags[round(TASKS * 0.99) - 1] * 1000)
    measured("lag in ms, most", lags[-1] * 1000)
    assert lags[round(TASKS * 0.99) - 1] < GENEROUS_LAG_SECONDS


def test_an_idle_fleet_of_8_sends_under_10_commands_a_second(fleets: Fleets, measured: Measure) -> None:
    fleet = fleets.start(workers=8)
    commands = commands_of_clients(fleet, MONITORED_SECONDS)
    measured("commands a second of an idle fleet of 8", len(commands) / MONITORED_SECONDS)
    assert len(commands) / MONITORED_SECONDS < 10, "\n".join(commands)


def commands_of_clients(fleet: RunningFleet, seconds: float) -> list[str]:
    """What clients sent meanwhile: MONITOR's lines without the commands that scripts call inside the server."""
    place = urlsplit(fleet.url)
    deadline = time.monotonic() + seconds
    seen = b""
    with socket.create_connection((place.hostname, place.port)) as watching:
        watching.sendall(b"MONITOR\r\n")
        while (left := deadline - time.monotonic()) > 0:
            watching.settimeout(left)
            try:
                seen += watching.recv(65_536)
            except TimeoutError:
                break
    lines = seen.decode(errors="replace").splitlines()[1:]
    return [line for line in lines if " lua] " not in line]
