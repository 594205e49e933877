"""The metrics endpoint of a real fleet. Counters never decrease, and Prometheus's own tools find no fault in the
output.
"""

import functools
import os
import random
import signal
import time
from pathlib import Path

from rota import Call
from rota.telemetry.metrics import PROCESS_RESTARTS, RESTART_REASONS
from support.fleet_readings import Scrape
from support.fleets import Fleets, RunningFleet, running_fleet
from support.prometheus import Prometheus, promtool, scrape_config
from support.servers import Server
from support.waiting import repeating, until

KILLS = 20
TASKS_A_KILL = 25
PAUSE_SECONDS = 0.02
CLOCK_TICK_SECONDS = 0.01  # the kernel's unit for the times at which processes started


class Watch:
    """A reader of a fleet's metrics. `fallen` describes each counter or histogram that decreased between two reads:
    when, in which read, and after how many kills.
    """

    def __init__(self, fleet: RunningFleet) -> None:
        self.fallen: list[str] = []
        self.scrapes = 0
        self.kills = 0
        self._fleet = fleet
        self._last = fleet.metrics()

    def look(self) -> Scrape:
        found = self._fleet.metrics()
        when = f"{time.time():.3f}, scrape {self.scrapes}, after kill {self.kills}"
        self.fallen += [f"{when}: {fall}" for fall in found.fallen_since(self._last)]
        self.scrapes += 1
        self._last = found
        return found


def restarts_of_workers(scrape: Scrape) -> dict[str, float]:
    """Return how often workers were restarted, by reason. Reasons without restarts are left out."""
    counts = {reason: scrape.total(PROCESS_RESTARTS.name, role="worker", reason=reason) for reason in RESTART_REASONS}
    return {reason: count for reason, count in counts.items() if count}


def test_counters_and_histograms_never_decrease_although_workers_are_killed(fleets: Fleets) -> None:
    fleet = fleets.start(workers=4)
    chance = random.Random(20)
    notes = [Call("note", args=[str(number)], queue="default", delay=number / 500) for number in range(TASKS_A_KILL)]
    ids: set[str] = set()

    def unfinished() -> set[str]:
        return ids - {line.id for line in fleet.journal("end")}

    watch = Watch(fleet)
    with repeating(watch.look, PAUSE_SECONDS):
        for _ in range(KILLS):
            ids |= {handle.id for handle in fleet.client.enqueue_many(notes)}
            killed = chance.choice(sorted(fleet.workers()))
            watch.kills += 1
            os.kill(killed, signal.SIGKILL)
            until(functools.partial(fleet.is_whole_without, killed), fleet.status)
        until(lambda: not unfinished(), lambda: {each: fleet.client.status(each) for each in unfinished()})
        until(fleet.books_balance, lambda: fleet.rota("audit", "--json").stdout)
    until(lambda: watch.look().total("rota_tasks_enqueued_total") == KILLS * TASKS_A_KILL, lambda: watch.look().text)
    last = watch.look()
    assert watch.fallen == []
    assert watch.scrapes >= KILLS
    assert restarts_of_workers(last) == {"signal": KILLS}
    assert last.total("rota_task_lag_seconds_count") >= KILLS * TASKS_A_KILL - KILLS


def test_no_counter_decreases_although_processes_of_every_role_are_killed(fleets: Fleets) -> None:
    began = time.time()
    fleet = fleets.start()
    # The task runs for 0.2 s, because the kernel counts processor time in steps of 10 ms.
    fleet.client.enqueue("spin", args=["first", 0.2], queue="default")
    fleet.wait_for("end", label="first")
    until(lambda: fleet.metrics().total("rota_tasks_processed_total") == 1)
    fallen: list[str] = []
    last = fleet.metrics()
    for role in ("exporter", "poller", "exporter", "zygote", "worker", "exporter"):
        killed = min(fleet.pids(role, "ready"))
        os.kill(killed, signal.SIGKILL)
        fleet.until_replaced(role, killed)
        until(fleet.is_whole)
        found = fleet.metrics()
        fallen += [f"after a kill of the {role}: {fall}" for fall in found.fallen_since(last)]
        last = found
    assert fallen == []
    used = {role: last.total("rota_process_cpu_seconds_total", role=role) for role in ("exporter", "zygote", "worker")}
    assert min(used.values()) > 0, used
    assert began - CLOCK_TICK_SECONDS <= last.total("rota_start_time_seconds") < time.time()


def test_a_fleet_is_not_ready_after_the_loss_of_its_server(server: Server, namespace: str, tmp_path: Path) -> None:
    for folder in ("server", "fleet"):
        (tmp_path / folder).mkdir()
    private = Server(server.binary, tmp_path / "server").start()
    # The interval between renewals is longer than every deadline in this test, so the loss must be noticed without a
    # renewal.
    rare = {"seconds": 1200.0, "renew_seconds": 300.0}
    try:
        with running_fleet(private.url, namespace, tmp_path / "fleet", lease=rare) as fleet:
            assert fleet.get("/readyz")[0] == 200
            private.kill()
            until(lambda: fleet.get("/readyz")[0] == 503)
            private.start()
            until(lambda: fleet.get("/readyz")[0] == 200)
    finally:
        private.stop()


def test_prometheus_accepts_and_scrapes_the_metrics(fleets: Fleets, tmp_path: Path) -> None:
    fleet = fleets.start()
    for number in range(10):
        fleet.client.enqueue("note", args=[str(number)], queue="default", delay=number / 100)
    fleet.wait_for("end", 10)
    checked = promtool("check", "metrics", text=fleet.metrics().text)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")

    folder = tmp_path / "prometheus"
    folder.mkdir()
    prometheus = Prometheus(folder, scrape_config(fleet.target()))
    prometheus.start()
    try:
        prometheus.wait_for("up == 1")
        prometheus.wait_for('sum(rota_tasks_processed_total{outcome="done"}) == 10')
        prometheus.wait_for('sum(rota_task_lag_seconds_count{kind="delayed"}) == 9')
        prometheus.wait_for('sum(rota_workers{state="running"}) == 2')
    finally:
        prometheus.stop()
