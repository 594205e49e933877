"""The lag in Prometheus agrees with the log and with the times that the tasks recorded themselves, even if processes
are killed. TRUTH_KILLS sets the number of kills. `make watched` uses 50.
"""

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import Call
from support.fleet_readings import Line
from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.prometheus import Prometheus, scrape_config
from support.servers import free_port
from support.waiting import until

KILLS = int(os.environ.get("TRUTH_KILLS", "15"))
ROLES = ("worker", "poller", "worker", "zygote", "worker", "exporter")
SIZES = itertools.cycle((3, 5, 2, 4))
TASKS_A_KILL = 40
LATE_SECONDS = 1.2
WITHIN = 0.01
COUNTERS = 'count by (__name__) ({__name__=~"rota_.+_(total|count|sum|bucket)"})'

pytestmark = [ON_ONE_SERVER, pytest.mark.timeout(60 + 20 * KILLS)]


class Life:
    """The lifetime of one master. The fleet's metrics cover all attempts that started in this time."""

    def __init__(self, fleet: RunningFleet, prometheus: Prometheus) -> None:
        self.fleet = fleet
        self.prometheus = prometheus
        self.killed: list[Line] = []
        self._starts_before = len(fleet.journal("start"))
        self._lines_before = len(fleet.log("task.done"))
        self._began_at = time.time()
        fleet.start()

    def kill(self, role: str, label: str) -> None:
        """Enqueue tasks into a paused queue, half of them with a delay, and kill a process with this role. Then resume
        the queue, and wait until all tasks have run. All of them start late.
        """
        client = self.fleet.client
        client.pause("default")
        paused_at = time.monotonic()
        calls = [Call("note", [label], queue="default", delay=n % 2 * n / 100) for n in range(TASKS_A_KILL)]
        client.enqueue_many(calls)
        if role == "worker":
            self._kill_worker(f"held {label}")
        else:
            self.fleet.kill_child(role)
        until(lambda: time.monotonic() - paused_at > LATE_SECONDS)
        client.resume("default")
        self.fleet.wait_for("end", TASKS_A_KILL, label=label)

    def _kill_worker(self, label: str) -> None:
        held = self.fleet.hold(label, "held")
        os.kill(held.pid, signal.SIGKILL)
        self.killed.append(held)
        self.fleet.wait_for("start", 2, label=label)
        self.fleet.release(label)
        self.fleet.wait_for("end", label=label)

    def resize(self, workers: int) -> None:
        """Change the number of workers by SIGHUP."""
        self.fleet.edit(workers=workers)
        self.fleet.hup()
        self.fleet.until_workers(workers)

    def check(self) -> None:
        """Check that the histogram, the tasks' own journal and the log agree about all attempts of this life, and that
        no counter decreased.
        """
        starts = self.fleet.journal("start")[self._starts_before :]
        self._await_total("rota_task_lag_seconds_count", len(starts))
        self._await_total('rota_task_lag_seconds_count{kind="recovered"}', len(self.killed))
        lines = self.fleet.log("task.done")[self._lines_before :]
        assert len(lines) + len(self.killed) == len(starts)
        seen = sum(line.at - line.due_at for line in starts)
        logged = sum(line["lag_seconds"] for line in lines) + sum(line.at - line.due_at for line in self.killed)
        exported = self.prometheus.query("sum(rota_task_lag_seconds_sum)").value()
        assert exported == pytest.approx(seen, rel=WITHIN)
        assert logged == pytest.approx(seen, rel=WITHIN)
        lived = max(2, int(time.time() - self._began_at))
        names = [series["metric"]["__name__"] for series in self.prometheus.query(COUNTERS).result]
        assert len(names) > 30
        fell = {name for name in names if self.prometheus.query(f"resets({name}[{lived}s]) > 0").result}
        assert fell == set()

    def _await_total(self, series: str, count: int) -> None:
        def total() -> list[float]:
            return self.prometheus.query(f"sum({series})").values()

        until(lambda: total() == [count], lambda: (total(), count))


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    running = Prometheus(folder, "")
    yield running
    running.stop()


def test_the_lag_in_prometheus_agrees_with_log_and_journal_despite_kills(
    fleets: Fleets, prometheus: Prometheus
) -> None:
    port = free_port()
    prometheus.config = scrape_config(f"127.0.0.1:{port}")
    prometheus.start()
    tiers = [["held"], ["default"]]
    fleet = fleets.make(workers=3, pollers=1, tiers=tiers, http={"listen": f"127.0.0.1:{port}"})
    kills = list(zip(range(KILLS), itertools.cycle(ROLES), strict=False))
    for part in (kills[: KILLS // 2], kills[KILLS // 2 :]):
        life = Life(fleet, prometheus)
        for number, role in part:
            life.kill(role, f"{number}")
            if number % 4 == 3:
                life.resize(next(SIZES))
        life.check()
        fleet.kill_all()
