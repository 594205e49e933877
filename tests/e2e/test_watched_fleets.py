"""Healthy fleets that a real Prometheus watches. A large fleet has no more series than the documentation promises. No
alert fires for a fleet with many queues, even if processes are killed and pools are resized. WATCH_SECONDS sets the
duration, and `make watched` takes ten minutes.
"""

import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota import Call
from support.fleets import Fleets, Measure, RunningFleet
from support.masters import ON_ONE_SERVER
from support.prometheus import Prometheus, scrape_config
from support.waiting import repeating, until
from troubles.bench import DEPLOY, rule_files

WATCH_SECONDS = float(os.environ.get("WATCH_SECONDS", "24"))
MAX_SERIES = 20_000
GENEROUS_SCRAPE_SECONDS = 2.0
SLOTS, QUEUES, TASKS = 32, 200, 20
# Each queue has 233 series, however many tasks it has. The number of queues is within the default bound
# (docs/metrics.md).
HEALTHY_QUEUES = 60
MODULE = f"""
import rota

def run() -> None:
    pass

for number in range({TASKS}):
    rota.task(name=f"task{{number}}")(run)
"""

pytestmark = [ON_ONE_SERVER, pytest.mark.timeout(120 + 2 * WATCH_SECONDS)]

Watch = Callable[[RunningFleet], Prometheus]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Yield a function that starts a Prometheus for a fleet, with the project's unchanged rules."""
    started: list[Prometheus] = []

    def watched(fleet: RunningFleet) -> Prometheus:
        folder = tmp_path / "prometheus"
        folder.mkdir()
        rules = [str(DEPLOY / name) for name in rule_files()]
        started.append(Prometheus(folder, scrape_config(fleet.target(), interval="2s", rule_files=rules)))
        started[0].start().wait_for("up == 1")
        return started[0]

    yield watched
    for prometheus in started:
        prometheus.stop()


def test_a_scrape_of_a_large_fleet_is_fast_and_has_a_bounded_size(
    fleets: Fleets, watch: Watch, tmp_path: Path, measured: Measure
) -> None:
    (tmp_path / "many.py").write_text(MODULE)
    queues = [f"queue-{number}" for number in range(QUEUES)]
    fleet = fleets.start(workers=SLOTS, imports=["tasks", "many"], tiers=[queues, ["default"]])
    at_rest = fleet.metrics()
    measured("series at rest", len(at_rest.values))
    prometheus = watch(fleet)
    calls = [Call(f"task{number}", queue=queue) for queue in queues for number in range(TASKS)]
    until_seconds = time.monotonic() + WATCH_SECONDS / 4
    while time.monotonic() < until_seconds:
        fleet.client.enqueue_many(calls)
        fleet.wait_until_nothing_waits(120)
    # Queues beyond the bound are counted together under the name `_other`.
    prometheus.wait_for(f"sum(rota_tasks_processed_total) >= {len(calls)}")
    for name in ("scrape_duration_seconds", "scrape_samples_scraped", "rota_metrics_collect_seconds"):
        for share in (0.5, 1.0):
            found = prometheus.query(f"quantile_over_time({share}, {name}[10m])").value()
            measured(f"{name}, quantile {share}", found)
    assert prometheus.query("max_over_time(scrape_samples_scraped[10m])").value() <= MAX_SERIES
    assert prometheus.query("quantile_over_time(0.5, scrape_duration_seconds[10m])").value() < GENEROUS_SCRAPE_SECONDS
    assert prometheus.query('rota_workers{pool="_other"}').result == []
    assert prometheus.query('sum(rota_workers{state="running"})').value() == SLOTS


def test_no_alert_fires_for_a_healthy_fleet_through_kills_and_reloads(fleets: Fleets, watch: Watch) -> None:
    queues = [f"queue-{number}" for number in range(HEALTHY_QUEUES)]
    fleet = fleets.start(workers=4, pollers=2, tiers=[queues[:40], queues[40:], ["default"]])
    prometheus = watch(fleet)
    chance = random.Random(95)

    def enqueue() -> None:
        client = fleet.client
        client.enqueue_many(Call("rest", [1], queue=chance.choice(queues), delay=chance.random()) for _ in range(5))

    # Five deaths of children of one role in ten minutes are not a crash loop, and are too few for the alert.
    harm = itertools.cycle(("worker", "hup", "poller", "hup", "exporter", "hup", "zygote", "hup"))
    pause = max(3.0, WATCH_SECONDS / 16)
    with repeating(enqueue, 0.25):
        for what in itertools.islice(harm, int(WATCH_SECONDS / pause)):
            harmed_at = time.monotonic()
            _harm(fleet, what, chance)
            until(lambda: time.monotonic() - harmed_at > pause, seconds=pause + 1)  # noqa: B023 - called in here
    fired = prometheus.query(f'count_over_time(ALERTS{{alertstate="firing"}}[{int(WATCH_SECONDS) + 60}s])')
    assert fired.result == []
    assert prometheus.query("min(rota_redis_up)").value() == 1


def _harm(fleet: RunningFleet, what: str, chance: random.Random) -> None:
    if what == "hup":
        workers = chance.choice([2, 3, 4, 6])
        fleet.edit(workers=workers)
        fleet.hup()
        fleet.until_workers(workers)
    else:
        killed = chance.choice(sorted(fleet.pids(what, "ready")))
        os.kill(killed, signal.SIGKILL)
        until(lambda: fleet.is_whole_without(killed), fleet.status)
