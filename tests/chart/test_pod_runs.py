"""The chart's rendered pod at run time: its probes, its volumes, a change of its ConfigMap, and its termination."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rota
from chart.kube import Object, only, render, with_changes
from chart.pod_process import CODE, HOST_NAME, PodProcess, Secrets, need_namespaces
from support.certificates import certificate
from support.masters import ON_ONE_SERVER
from support.servers import Server, free_port
from support.waiting import until

pytestmark = ON_ONE_SERVER

TASKS = """
import os, time
import rota

@rota.task(result_ttl=60)
def place():
    open("/tmp/of-a-task", "w").close()
    try:
        open("/srv/app/of-a-task", "w")
        refusal = ""
    except OSError as error:
        refusal = error.strerror
    return [os.getcwd(), os.getuid(), os.getgid(), refusal]

@rota.task
def nap(seconds):
    time.sleep(seconds)

@rota.task
def compute(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
"""
TOKEN = "0123456789abcdef0123456789abcdef"

MakePod = Callable[..., PodProcess]


@pytest.fixture
def make_pod(server: Server, namespace: str, tmp_path: Path) -> Iterator[MakePod]:
    """Return a function that creates a pod from values. The pod ends with the test."""
    need_namespaces()
    made: list[PodProcess] = []

    def make(values: Object | None = None, secrets: Secrets | None = None, kind: str = "Deployment") -> PodProcess:
        config = {"namespace": namespace, "imports": ["tasks"], "workers": 2}
        objects = render(with_changes({"config": config, "http": {"port": free_port()}}, values or {}))
        found = only(objects, kind)["spec"]
        folder = tmp_path / f"pod{len(made)}"
        folder.mkdir()
        known = {"rota-redis": {"url": server.url}, **(secrets or {})}
        pod = PodProcess(objects, found["template"]["spec"] if kind == "Deployment" else found, folder, known, TASKS)
        made.append(pod)
        return pod

    yield make
    for pod in made:
        pod.end()


@pytest.fixture
def client(server: Server, namespace: str) -> Iterator[rota.Client]:
    with rota.Client(server.url, namespace) as connected:
        yield connected


def desired_workers(pod: PodProcess) -> int:
    """Return the number of workers that the pod's fleet should have."""
    (pool,) = json.loads(pod.exec("--json", "status").stdout)["pools"]
    return int(pool["desired"])


def test_a_pod_becomes_ready_and_runs_tasks_on_a_read_only_root(make_pod: MakePod, client: rota.Client) -> None:
    pod = make_pod().start().until_ready()
    assert pod.probe("liveness")

    placed = client.enqueue("place", queue="default").result(timeout=30)

    assert placed == [CODE, 10001, 10001, "Read-only file system"]
    shown = pod.exec("status")
    assert shown.returncode == 0, shown.stderr
    assert f"{HOST_NAME}." in shown.stdout, "the node is named after the pod"
    assert pod.exec("health", "--ready").stdout.startswith("ok")
    assert "Traceback" not in pod.log_text()


def test_a_changed_configmap_is_loaded_without_a_restart(make_pod: MakePod) -> None:
    pod = make_pod().start().until_ready()
    text = (pod.folder / "config" / "rota.toml").read_text()
    assert "workers = 2" in text

    pod.update_configuration(text.replace("workers = 2", "workers = 3"))
    until(lambda: desired_workers(pod) == 3, pod.log_text)
    pod.update_configuration(text.replace("workers = 2", 'workers = "many"'))
    until(lambda: pod.log("config.rejected"), pod.log_text)

    assert desired_workers(pod) == 3
    assert pod.probe("readiness")
    assert len(pod.log("fleet.starting")) == 1


def test_a_pod_that_is_stopped_lets_its_task_end(make_pod: MakePod, client: rota.Client) -> None:
    pod = make_pod().start().until_ready()
    handle = client.enqueue("nap", args=[3], queue="default")
    until(lambda: handle.status().state == "running", pod.log_text)

    began = time.monotonic()
    pod.master.terminate()

    assert pod.exit_code() == 0, pod.log_text()
    assert time.monotonic() - began < pod.pod["terminationGracePeriodSeconds"]
    assert handle.status().state == "done"
    assert pod.log("fleet.stopped")


def test_an_unfinished_task_returns_to_its_queue_after_the_drain(make_pod: MakePod, client: rota.Client) -> None:
    pod = make_pod({"config": {"limits": {"drain_seconds": 0.5}}}).start().until_ready()
    handle = client.enqueue("nap", args=[600], queue="default")
    until(lambda: handle.status().state == "running", pod.log_text)

    pod.master.terminate()

    assert pod.exit_code() == 0, pod.log_text()
    assert handle.status().state == "ready"


def test_the_liveness_probe_fails_when_the_master_hangs(make_pod: MakePod) -> None:
    pod = make_pod().start().until_ready()

    pod.master.suspend()
    until(lambda: not pod.probe("liveness"), "the probe fails")
    pod.master.resume()

    until(lambda: pod.probe("liveness"), pod.log_text)


def test_a_pod_with_a_busy_worker_responds_to_probes(make_pod: MakePod, client: rota.Client) -> None:
    pod = make_pod({"config": {"workers": 1}}).start().until_ready()
    handle = client.enqueue("compute", args=[60], queue="default")
    until(lambda: handle.status().state == "running", pod.log_text)

    answers = [pod.probe(name) for name in ("liveness", "readiness") for _ in range(5)]

    assert handle.status().state == "running"
    assert all(answers)


def test_a_redis_outage_fails_readiness_but_not_liveness(make_pod: MakePod, server: Server, tmp_path: Path) -> None:
    own = Server(server.binary, tmp_path).start()
    try:
        pod = make_pod(secrets={"rota-redis": {"url": own.url}}).start().until_ready()
        own.kill()
        until(lambda: not pod.probe("readiness"), pod.log_text)
        assert pod.probe("liveness")
        own.start()
        until(lambda: pod.probe("readiness"), pod.log_text)
        assert pod.probe("liveness")
    finally:
        own.stop()


def test_a_pod_with_a_certificate_and_a_token_responds_to_probes(make_pod: MakePod, tmp_path: Path) -> None:
    made = certificate(tmp_path, "rota")
    tls = {"tls.crt": made.cert.read_text(), "tls.key": made.key.read_text()}
    values = {
        "http": {"tls": {"secret": "rota-tls"}, "token": {"secret": "rota-token"}},
        "config": {"http": {"actions": True}},
    }
    pod = make_pod(values, {"rota-tls": tls, "rota-token": {"token": TOKEN}}).start().until_ready()

    assert pod.probe("liveness")
    assert pod.get("/metrics", "HTTPS") == 401
    assert pod.get("/metrics", "HTTPS", Authorization=f"Bearer {TOKEN}") == 200


def test_the_helm_test_pod_succeeds_if_the_fleet_can_run(make_pod: MakePod) -> None:
    good = make_pod(kind="Pod").start()
    assert good.exit_code() == 0, good.log_text()


def test_the_helm_test_pod_fails_if_the_image_lacks_the_code(make_pod: MakePod) -> None:
    bad = make_pod({"config": {"imports": ["missing"]}}, kind="Pod").start()
    assert bad.exit_code() == 78
    assert "missing" in bad.log_text()
