"""The exporter as a process, which is spawned as a master would spawn it. The tests fill the slots, and the server is
real.
"""

import contextlib
import gzip
import itertools
import os
import select
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rota.child.child_process import STACK_SIGNAL
from rota.child.slots import MASTER_SLOT, Phase, boottime_ns
from rota.protocol.new_tasks import NewTask
from rota.protocol.store import Store
from rota.server.address import parse_address
from rota.server.connection import Connection
from rota.telemetry import metrics as m
from rota.telemetry.metrics import WORKER_STATES
from rota_supervisor.layout import EXPORTER_SLOT
from rota_supervisor.master_snapshot import MasterSnapshot, PoolInBackoff
from support.exporting import DEADLINE_SECONDS, POLLER_SLOT, WORKER_SLOT, Exporter, settings_for, small_fleet
from support.masters import ON_ONE_SERVER
from support.servers import Server
from support.waiting import until

QUEUES = 200
NO_SERVER = "redis://127.0.0.1:1/0"  # nothing listens on this port, so connections are refused at once
Labels = tuple[tuple[str, str], ...]


@pytest.fixture
def exporter(namespace: str) -> Iterator[Exporter]:
    """Yield an exporter whose Redis is unreachable."""
    made = small_fleet(NO_SERVER, namespace)
    yield made.start()
    made.close()


def scrape(exporter: Exporter) -> dict[str, dict[Labels, float]]:
    """Return all samples of a scrape, by the name of the metric and then by its labels. The label
    `fleet` is left out.
    """
    page = exporter.get("/metrics")
    assert page.status == 200
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(page.body):
        for sample in family.samples:
            assert sample.labels.pop("fleet") == exporter.settings.server.namespace
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def enqueue(server: Server, namespace: str, *queues: str, due: str = "") -> None:
    ids = [f"task{number}{due.lstrip('+')}" for number in range(len(queues))]
    bodies = [f'["{task_id}","{queue}","t",[]]'.encode() for task_id, queue in zip(ids, queues, strict=True)]
    tasks = [NewTask(task_id, queue, body, due) for task_id, queue, body in zip(ids, queues, bodies, strict=True)]
    with contextlib.closing(Connection(parse_address(server.url))) as connection:
        connection.run(Store(namespace).enqueue("nonce" + due, tasks))


def of_queue(queue: str) -> Labels:
    return (("queue", queue),)


def test_queue_metrics_match_the_state_in_redis(server: Server, namespace: str) -> None:
    exporter = small_fleet(server.url, namespace)
    enqueue(server, namespace, "mail", "mail", "unconfigured")
    enqueue(server, namespace, "mail", due="+3600000000")
    try:
        found = scrape(exporter.start())
    finally:
        exporter.close()
    assert found["rota_queue_ready_tasks"] == {of_queue("mail"): 2, of_queue("bulk"): 0, of_queue("unconfigured"): 1}
    assert found["rota_queue_scheduled_tasks"][of_queue("mail")] == 1
    assert found["rota_tasks_enqueued_total"] == {of_queue("mail"): 3, of_queue("bulk"): 0, of_queue("unconfigured"): 1}
    assert found["rota_queue_served"][of_queue("mail")] == 0
    assert found["rota_audit_missing_tasks"] == {(): 0}
    assert abs(found["rota_redis_clock_offset_seconds"][()]) < DEADLINE_SECONDS


def test_a_node_without_queue_metrics_does_not_query_redis(server: Server, namespace: str) -> None:
    exporter = Exporter(settings_for(server.url, namespace, "mail", reads_redis=False))
    try:
        found = scrape(exporter.start())
    finally:
        exporter.close()
    assert "rota_queue_ready_tasks" not in found
    assert "rota_queue_weight" in found


def test_the_exporter_adds_up_the_metrics_of_all_workers(exporter: Exporter) -> None:
    for slot in (WORKER_SLOT, WORKER_SLOT + 1):
        worker = exporter.recorder(slot)
        worker.histogram(m.TASK_LAG, "mail", "delayed").observe(0.2)
        worker.counter(m.TASKS_PROCESSED, "mail", "send", "done").add()
    exporter.master.gauge(m.WORKERS_DESIRED, "default").set(2)
    found = scrape(exporter)
    assert found["rota_task_lag_seconds_count"][(("kind", "delayed"), ("queue", "mail"))] == 2
    assert found["rota_task_starts_total"][(("kind", "delayed"), ("queue", "mail"))] == 2
    assert found["rota_task_starts_total"][(("kind", "retry"), ("queue", "bulk"))] == 0
    assert found["rota_tasks_processed_total"] == {(("outcome", "done"), ("queue", "mail"), ("task", "send")): 2}
    assert found["rota_workers_desired"] == {(("pool", "default"),): 2}
    assert found["rota_process_restarts_total"][(("reason", "signal"), ("role", "worker"))] == 0
    assert found["rota_heartbeat_age_seconds"].keys() == {
        (("role", role), ("slot", str(slot)))
        for role, slot in (("master", 0), ("exporter", 1), ("poller", POLLER_SLOT), ("worker", WORKER_SLOT))
    }
    assert min(found["rota_process_resident_memory_bytes"].values()) > 1 << 20


def series_in(found: dict[str, dict[Labels, float]]) -> int:
    return sum(map(len, found.values()))


def test_the_number_of_series_is_bounded_but_metrics_of_the_fleet_are_kept(namespace: str) -> None:
    exporter = Exporter(settings_for(NO_SERVER, namespace, *(f"queue-{number}" for number in range(QUEUES))))
    for state in WORKER_STATES:
        exporter.master.gauge(m.WORKERS, "mail", state).set(1)
    try:
        exporter.start()
        assert series_in(scrape(exporter)) < 10_000
        for worker in (exporter.recorder(WORKER_SLOT + number) for number in range(4)):
            for queue, task in itertools.product(range(QUEUES), range(20)):
                worker.histogram(m.TASK_RUNTIME, f"queue-{queue}", f"task-{task}").observe(0.1)
                worker.counter(m.TASKS_PROCESSED, f"queue-{queue}", f"task-{task}", "done").add()
        exporter.master.gauge(m.WORKERS, "bulk", "running").set(3)
        found = scrape(exporter)
    finally:
        exporter.close()
    assert series_in(found) <= exporter.settings.max_series
    assert found["rota_workers"].keys() == {
        (("pool", "bulk"), ("state", "running")),
        *((("pool", "mail"), ("state", state)) for state in WORKER_STATES),
    }
    assert sum(found["rota_tasks_processed_total"].values()) == 4 * QUEUES * 20
    assert found["rota_metrics_series_dropped_total"][()] > 0


def test_openmetrics_has_exemplars_and_created_times_on_request(exporter: Exporter) -> None:
    began = time.time()
    accept = "application/openmetrics-text; version=1.0.0"
    exporter.get("/metrics", Accept=accept)
    worker = exporter.fill(WORKER_SLOT, Phase.BUSY)
    due_us = round(time.time() * 1e6)
    worker.record(0).start(f"id-1 mail d {due_us} {due_us} 0 0 0 0 -".encode(), "send", boottime_ns(), 0, 0, 0)
    exporter.recorder(WORKER_SLOT).histogram(m.TASK_LAG, "mail", "delayed").observe(0.0001)
    asked = exporter.get("/metrics?created", Accept=accept).body
    assert '# {task_id="id-1"}' in asked
    created = [line for line in asked.splitlines() if line.startswith("rota_task_lag_seconds_created")]
    assert [began <= float(line.split()[-1]) <= time.time() for line in created] == [True]
    assert "_created{" not in exporter.get("/metrics", Accept=accept).body


def test_the_counters_of_a_dead_process_are_kept_but_not_its_gauges(exporter: Exporter) -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        exporter.fill(WORKER_SLOT + 1, Phase.BUSY, child.pid)
        worker = exporter.recorder(WORKER_SLOT + 1)
        worker.gauge(m.WORKERS_BUSY, "default").set(1)
        worker.counter(m.CLAIMS, "mail").add(3)
        alive = scrape(exporter)
        child.kill()
    dead = scrape(exporter)
    assert alive["rota_workers_busy"] == {(("pool", "default"),): 1}
    assert "rota_workers_busy" not in dead
    assert alive["rota_claims_total"] == dead["rota_claims_total"]
    slot = (("role", "worker"), ("slot", str(WORKER_SLOT + 1)))
    assert slot in alive["rota_process_open_fds"]
    assert slot not in dead["rota_process_open_fds"]


def test_the_longest_running_task_is_shown(exporter: Exporter) -> None:
    slot = exporter.fill(WORKER_SLOT, Phase.BUSY)
    slot.record(0).start(b"id-1 mail i 1 1 0 0 0 0 -", "send", boottime_ns() - 90 * 10**9, 0)
    assert scrape(exporter)["rota_queue_oldest_running_age_seconds"][of_queue("mail")] >= 90
    process = next(p for p in exporter.get("/status.json").json()["processes"] if p["slot"] == WORKER_SLOT)
    assert process["tasks"][0]["task"] == {"id": "id-1", "name": "send", "queue": "mail"}


@ON_ONE_SERVER
def test_only_queue_metrics_are_missing_without_redis(server: Server, namespace: str, tmp_path: Path) -> None:
    private = Server(server.binary, tmp_path).start()
    exporter = small_fleet(private.url, namespace)
    try:
        exporter.start()
        assert "rota_queue_ready_tasks" in scrape(exporter)
        private.kill()
        found = wait_until_shown(exporter, "rota_queue_ready_tasks", shown=False)
        assert "rota_tasks_enqueued_total" not in found
        assert "rota_task_starts_total" in found
        assert exporter.get("/status.json").json()["queue_states_age_seconds"] is None
        assert _is_alive(exporter)
        private.start()
        wait_until_shown(exporter, "rota_queue_ready_tasks", shown=True)
    finally:
        exporter.close()
        private.stop()


@ON_ONE_SERVER
def test_a_stalled_redis_does_not_delay_scrapes(server: Server, namespace: str, tmp_path: Path) -> None:
    private = Server(server.binary, tmp_path).start()
    exporter = small_fleet(private.url, namespace)
    try:
        exporter.start()
        scrape(exporter)
        os.kill(private.pid, signal.SIGSTOP)
        wait_until_shown(exporter, "rota_queue_ready_tasks", shown=False)
        os.kill(private.pid, signal.SIGCONT)
        wait_until_shown(exporter, "rota_queue_ready_tasks", shown=True)
    finally:
        exporter.close()
        private.stop()


def wait_until_shown(exporter: Exporter, name: str, *, shown: bool) -> dict[str, dict[Labels, float]]:
    def as_wanted() -> dict[str, dict[Labels, float]] | None:
        found = scrape(exporter)
        return found if (name in found) is shown else None

    found = until(as_wanted)
    assert found is not None
    return found


def _is_alive(exporter: Exporter) -> bool:
    """Send a heartbeat of the master, and return whether the exporter then reports that it is alive. Without the
    heartbeat, a slow test could exceed the heartbeat limit of 3 s.
    """
    exporter.memory.slot(MASTER_SLOT).heartbeat()
    return exporter.get("/livez").status == 200


def test_readiness_and_liveness_follow_the_state_of_the_master(exporter: Exporter) -> None:
    assert exporter.get("/livez").body == "ok\n"
    assert (exporter.get("/readyz").status, exporter.get("/readyz").body) == (200, "ok\n")
    exporter.memory.slot(0).phase = Phase.DRAINING
    exporter.publish(MasterSnapshot(redis_up=False))
    refused = exporter.get("/readyz")
    assert (refused.status, refused.body) == (503, "the master is draining; the master does not reach Redis\n")
    told = exporter.get("/readyz?verbose").json()
    assert (told["ok"], [check["name"] for check in told["checks"] if not check["ok"]]) == (
        False,
        ["master_serves", "redis"],
    )
    assert _is_alive(exporter)


def test_a_pool_in_back_off_is_reported_until_it_recovers(exporter: Exporter) -> None:
    exporter.publish(MasterSnapshot(held=(PoolInBackoff("poller", "pollers", "backoff", 3, 0.0, "killed by SIGSEGV"),)))
    refused = exporter.get("/readyz")
    assert refused.status == 503
    assert "the poller is in backoff: 3 failures in a row" in refused.body
    assert exporter.get("/status.json").json()["held"] == [
        {
            "role": "poller",
            "pool": "pollers",
            "state": "backoff",
            "failures_in_a_row": 3,
            "next_try_seconds": 0.0,
            "last_error": "killed by SIGSEGV",
        }
    ]
    exporter.publish(MasterSnapshot(redis_up=True))
    assert exporter.get("/readyz").status == 200


def test_the_liveness_probe_fails_if_the_master_has_no_heartbeat(exporter: Exporter) -> None:
    until(lambda: exporter.get("/livez").status == 503)
    assert "limit 3 s" in exporter.get("/livez").body
    exporter.memory.slot(0).heartbeat()
    assert exporter.get("/livez").status == 200


def test_the_endpoints_have_content_types_and_refuse_other_requests(exporter: Exporter) -> None:
    kinds = {path: exporter.get(path).headers["Content-Type"] for path in ("/", "/status.json", "/livez", "/metrics")}
    assert kinds["/"].startswith("text/html")
    assert kinds["/status.json"] == "application/json"
    assert kinds["/livez"].startswith("text/plain")
    assert kinds["/metrics"].startswith("text/plain; version=0.0.4")
    unknown = exporter.get("/nowhere")
    assert unknown.status == 404
    assert "/metrics" in unknown.body
    for path in ("/", "/metrics", "/readyz"):
        refused = exporter.get(path, "POST", b"x" * 1000)
        assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")
        assert refused.body == f"{path} accepts only GET, HEAD\n"
        head = exporter.get(path, "HEAD")
        assert (head.status, head.body) == (200, "")


def test_a_scrape_can_select_a_format_compression_and_metric_names(exporter: Exporter) -> None:
    open_metrics = exporter.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert open_metrics.headers["Content-Type"].startswith("application/openmetrics-text")
    assert open_metrics.body.endswith("# EOF\n")
    some = exporter.get("/metrics?name[]=rota_redis_up&name[]=rota_claims_total").body
    assert {line.split()[2] for line in some.splitlines() if line.startswith("# TYPE")} == {
        "rota_redis_up",
        "rota_claims_total",
    }
    request = urllib.request.Request(f"http://{exporter.target}/metrics", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert b"\nrota_redis_up{" in gzip.decompress(response.read())


def test_silent_clients_of_the_exporter_do_not_delay_others(exporter: Exporter) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(socket.create_connection(exporter.listener.getsockname()))
        assert _is_alive(exporter)


def test_the_exporter_survives_garbage_instead_of_http(exporter: Exporter) -> None:
    for nonsense in (b"\x00\xff\x00\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"\r\n"):
        with socket.create_connection(exporter.listener.getsockname()) as client:
            client.sendall(nonsense)
            client.shutdown(socket.SHUT_WR)
            client.settimeout(DEADLINE_SECONDS)
            while client.recv(4096):
                pass
    assert _is_alive(exporter)


def test_the_exporter_writes_heartbeats_and_exits_with_0_on_sigterm(exporter: Exporter) -> None:
    assert os.eventfd_read(exporter.bell_fd) == 1
    slot = exporter.memory.slot(EXPORTER_SLOT)
    assert slot.pid == exporter.pid
    before = slot.heartbeat_ns
    until(lambda: slot.heartbeat_ns != before)
    assert exporter.end() == 0


def test_only_the_main_thread_of_the_exporter_receives_signals(exporter: Exporter) -> None:
    def receives_stack_signal(thread: Path) -> bool:
        blocked = next(line for line in (thread / "status").read_text().splitlines() if line.startswith("SigBlk:"))
        return not int(blocked.split()[1], 16) >> (STACK_SIGNAL - 1) & 1

    threads = list(Path(f"/proc/{exporter.pid}/task").iterdir())
    assert len(threads) > 1
    assert [int(thread.name) for thread in threads if receives_stack_signal(thread)] == [exporter.pid]


def test_the_exporter_is_killed_when_its_master_dies(exporter: Exporter) -> None:
    exporter.drop_death_pipe()
    # The kernel kills the exporter when the death pipe closes, so no process has to watch the pipe.
    assert exporter.wait() == -signal.SIGKILL


def test_a_request_made_while_the_exporter_restarts_is_served(exporter: Exporter) -> None:
    assert exporter.end() == 0
    with socket.create_connection(exporter.listener.getsockname()) as client:
        client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        exporter.memory.slot(0).heartbeat()
        exporter.start()
        assert select.select([client], [], [], DEADLINE_SECONDS)[0]
        assert b"200 OK" in client.recv(4096)
