"""Every query of every dashboard, and every rule, asked of a real Prometheus that scrapes a real fleet.

The fleet has something to show in each panel: tasks on time and delayed, one that fails until it is dead, one
that kills its worker until it is dead, and a reload.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dashboards import TOP, PanelQuery, boards, queries
from fleet_process import FleetProcess
from prometheus import Answer, Prometheus, scrape_config
from rota import Client
from servers import Server, free_port, server_binaries
from waiting import until

QUERIES = [pytest.param(query, id=query.panel) for board in boards().values() for query in queries(board)]
WORKERS = 3
PUNCTUAL = 40
DEADLINE_SECONDS = 60.0
RULES = TOP / "deploy" / "prometheus"

TASKS = """
import os, signal, time
import rota

@rota.task(queue="quick")
def quick(n: int) -> None:
    time.sleep(0.005)

@rota.task(queue="failing", retries=1, base=0.2, jitter=False)
def fail() -> None:
    raise ValueError("as it was told")

@rota.task(queue="deadly")
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
"""

CONFIG = """
namespace = "panels"
redis_url = "{url}"
imports = ["panel_tasks"]
workers = {workers}
tiers = [["quick"], ["failing", "deadly"]]
[http]
listen = "127.0.0.1:{port}"
[control]
socket = "{folder}/control"
[metrics]
lag_objective_seconds = 10
"""


@dataclass(frozen=True, slots=True)
class WatchedFleet:
    """The fleet's master, and the Prometheus that watches it."""

    master: FleetProcess
    prometheus: Prometheus
    client: Client

    def ask(self, query: PanelQuery) -> Answer:
        """The query as the panel sends it, over the last two minutes."""
        expr = query.filled_in(job=".+", queue=".+", window="10s", time_range="2m")
        return self.prometheus.query_range(expr, seconds=120)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedFleet]:
    folder = tmp_path_factory.mktemp("panels")
    server = Server(server_binaries()["valkey"], folder).start()
    port = free_port()
    (folder / "panel_tasks.py").write_text(TASKS)
    (folder / "rota.toml").write_text(CONFIG.format(url=server.url, port=port, folder=folder, workers=WORKERS))
    rules = tuple(str(RULES / name) for name in ("recording.yml", "alerts.yml"))
    prometheus = Prometheus(folder, scrape_config(f"127.0.0.1:{port}", rule_files=rules))
    master = FleetProcess(folder).launch()
    client = Client(server.url, namespace="panels")
    try:
        prometheus.start()
        made = WatchedFleet(master, prometheus, client)
        act(made)
        yield made
    finally:
        client.close()
        prometheus.stop()
        try:
            master.signal(signal.SIGQUIT)
            master.exit_code()
        finally:
            if not master.has_ended():
                master.signal(signal.SIGKILL)
                master.exit_code()
            server.stop()


def act(watched: WatchedFleet) -> None:
    """Have everything happen once that a panel shows, after Prometheus has seen the fleet before it."""
    prometheus, client = watched.prometheus, watched.client
    try:
        prometheus.wait_for(f'sum(rota_workers{{state="running"}}) == {WORKERS}', deadline_seconds=DEADLINE_SECONDS)
    except TimeoutError as error:
        raise RuntimeError(watched.master.log_text()) from error
    prometheus.wait_for("count_over_time(rota_redis_up[1m]) >= 3")
    for number in range(PUNCTUAL):
        client.enqueue("quick", args=[number], queue="quick", delay=number % 4 / 2)
    client.enqueue("fail", queue="failing")
    client.enqueue("die", queue="deadly")
    prometheus.wait_for('rota_queue_dead_tasks{queue="deadly"} == 1')
    prometheus.wait_for('rota_queue_dead_tasks{queue="failing"} == 1')
    prometheus.wait_for(f'sum(rota_tasks_processed_total{{queue="quick", outcome="done"}}) == {PUNCTUAL}')
    watched.master.hup()
    prometheus.wait_for("changes(rota_config_last_reload_success_timestamp_seconds[1m]) > 0")


@pytest.mark.parametrize("query", QUERIES)
def test_a_panel_has_an_answer_from_a_running_fleet(watched: WatchedFleet, query: PanelQuery) -> None:
    until(lambda: watched.ask(query).result, query.expr, DEADLINE_SECONDS)
    assert watched.ask(query).warnings == []


@pytest.mark.parametrize(
    ("panel", "low", "high"),
    [
        ("Worst p99 lag", 0.0, 30.0),
        ("Error budget left", 0.0, 1.0),
        ("Overdue tasks", 0, 0),
        ("Workers running", WORKERS, WORKERS),
        ("Redis reached", 1, 1),
        ("Dead tasks by queue", 0, 1),
        ("p99 lag by kind", 0.0, 30.0),
    ],
)
def test_the_numbers_of_a_panel_are_what_the_fleet_did(
    watched: WatchedFleet, panel: str, low: float, high: float
) -> None:
    (query, *_) = [query for board in boards().values() for query in queries(board) if query.panel == panel]
    assert watched.prometheus.wait_for("count(up == 1)").value() == 1

    def are_right() -> bool:
        values = watched.ask(query).values()
        return bool(values) and all(low <= value <= high for value in values)

    until(are_right, lambda: watched.ask(query).values(), DEADLINE_SECONDS)


def test_the_means_by_cause_add_up_to_the_mean_lag(watched: WatchedFleet) -> None:
    parts = [
        watched.prometheus.wait_for(f"sum({name}_sum)").value()
        for name in ("rota_promotion_lag_seconds", "rota_queue_wait_seconds")
    ]
    whole = watched.prometheus.query("sum(rota_task_lag_seconds_sum)").value()
    assert sum(parts) == pytest.approx(whole, rel=0.01, abs=0.005)


def test_every_rule_evaluates_over_a_running_fleet(watched: WatchedFleet) -> None:
    watched.prometheus.wait_for("job_queue:rota_lag_burn:rate5m")
    watched.prometheus.wait_for('ALERTS{alertname="RotaDeadLetters", queue="deadly"}')
    assert {(rule["name"], rule["health"], rule.get("lastError", "")) for rule in watched.prometheus.rules()} == {
        (rule["name"], "ok", "") for rule in watched.prometheus.rules()
    }
