"""Due times: tasks start on time and never early, although an idle fleet sends hardly any commands to the server."""

import random
import socket
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import redis

from rota import Call
from rota.protocol.entry import parse_entry
from rota.protocol.keys import Keys
from support.fleets import Fleets, Measure, RunningFleet
from support.slow_calls import calls_over_a_millisecond
from support.waiting import until

TASKS = 300
SPREAD_SECONDS = 15.0
GENEROUS_LAG_SECONDS = 2.0
MONITORED_SECONDS = 10.0
MICROSECONDS = 1_000_000
BURST = 20_000
STARTED_BURST = 2_000
GENEROUS_CALL_SECONDS = 0.25  # generous, because any script seems slow while the server gets no processor time


def test_300_due_tasks_start_on_time_and_never_early(fleets: Fleets, measured: Measure) -> None:
    fleet = fleets.start(workers=4)
    delays = random.Random(300)
    for number in range(TASKS):
        delay = 0.5 + delays.uniform(0, SPREAD_SECONDS)
        fleet.client.enqueue("tell_time", args=[str(number)], queue="default", delay=delay)
    fleet.wait_for("end", TASKS)
    lines = fleet.journal("time")
    lags = sorted(int(line.label) / MICROSECONDS - line.due_at for line in lines)
    assert len({line.id for line in lines}) == len(lines) == TASKS
    assert lags[0] >= 0
    assert fleet.metrics().total("rota_task_early_starts_total") == 0
    measured("lag in ms, median", lags[TASKS // 2] * 1000)
    measured("lag in ms, p99", lags[round(TASKS * 0.99) - 1] * 1000)
    measured("lag in ms, most", lags[-1] * 1000)
    assert lags[round(TASKS * 0.99) - 1] < GENEROUS_LAG_SECONDS


def test_a_burst_of_due_tasks_is_promoted_in_order_and_in_short_calls(
    fleets: Fleets, redis_client: redis.Redis, measured: Measure
) -> None:
    fleet = fleets.start()
    fleet.client.pause("default")
    begins = datetime.now(UTC) + timedelta(seconds=6)
    # The due times are one microsecond apart, and the tasks are enqueued in random order.
    places = random.Random(BURST).sample(range(BURST), BURST)
    calls = [
        Call("note", args=[""], queue="default", at=begins + timedelta(microseconds=place), id=f"burst-{place}")
        for place in places
    ]
    lane = Keys(fleet.namespace).delayed_lane("default")
    fleet.client.enqueue_many(calls)
    with calls_over_a_millisecond(redis_client) as slow:
        assert not redis_client.llen(lane), "enqueueing took too long"
        until(lambda: redis_client.llen(lane) == BURST, "the burst in its lane")
    promoted = [parse_entry(text) for text in redis_client.lrange(lane, 0, -1) if isinstance(text, bytes)]
    assert [entry.id for entry in promoted] == [f"burst-{place}" for place in range(BURST)]
    assert all(entry.ready_us >= entry.due_us for entry in promoted)
    assert fleet.books_balance()
    measured("last of 20,000 ready in ms", (promoted[-1].ready_us - promoted[-1].due_us) / 1000)
    longest_seconds = max((call.seconds for call in slow), default=0.0)
    measured("longest script call in ms", longest_seconds * 1000)
    assert longest_seconds < GENEROUS_CALL_SECONDS


def test_2_000_tasks_due_at_one_instant_never_start_early(fleets: Fleets, measured: Measure) -> None:
    fleet = fleets.start(workers=4)
    due = datetime.now(UTC) + timedelta(seconds=2)
    calls = [Call("note", args=[str(number)], queue="default", at=due) for number in range(STARTED_BURST)]
    fleet.client.enqueue_many(calls)
    started = [line.at for line in fleet.wait_for("start", STARTED_BURST)]
    assert len({line.id for line in fleet.journal("start")}) == len(started) == STARTED_BURST
    assert min(started) >= due.timestamp()
    measured("last of 2,000 started in ms", (max(started) - due.timestamp()) * 1000)


def test_an_idle_fleet_of_8_sends_under_10_commands_a_second(fleets: Fleets, measured: Measure) -> None:
    fleet = fleets.start(workers=8)
    commands = commands_of_clients(fleet, MONITORED_SECONDS)
    measured("commands a second of an idle fleet of 8", len(commands) / MONITORED_SECONDS)
    assert len(commands) / MONITORED_SECONDS < 10, "\n".join(commands)


def commands_of_clients(fleet: RunningFleet, seconds: float) -> list[str]:
    """Watch the server for this many seconds, and return MONITOR's lines about the commands that clients sent. Commands
    that were called by scripts are left out.
    """
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
