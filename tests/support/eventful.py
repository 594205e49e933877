"""A fleet that causes all events that a dashboard shows, except the events of the troubles in `trouble_panels`."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import redis

import rota
from rota import Call
from rota.protocol.keys import Keys
from rota.telemetry import metrics as m
from support.dashboards import STEP_SECONDS
from support.waiting import repeating, until
from troubles.bench import Bench
from troubles.scene import Scene, coming, trouble

LEGACY_LIST: Final = "classic:old"
NO_QUEUE: Final = "classic:none"
_TASKS: Final = """
import time

import rota

@rota.task(queue="work", rate="2/s")
def seldom() -> None:
    pass

@rota.task(queue="work", retries=1, base=0.2, jitter=False)
def fail_at_length() -> None:
    raise ValueError("long " * 2000)

@rota.task(queue="loop")
async def block_the_loop() -> None:
    time.sleep(0.3)

@rota.task(queue="narrow")
def keep_busy() -> None:
    time.sleep(1)
"""


def _write_tasks(scene: Scene) -> None:
    (scene.fleet.folder / "more.py").write_text(_TASKS)


@trouble(
    prepare=_write_tasks,
    imports=["tasks", "more"],
    tiers=[["steady", "work", "loop", "shut", "narrow"], ["default"]],
    pools={
        "few": {"workers": 2, "queues": ["steady", "work", "shut", "default"]},
        "many": {"workers": 1, "concurrency": 4, "queues": ["loop"]},
        # The tasks of this pool need more workers than the range permits.
        "range": {"workers": "1..2", "queues": ["narrow"]},
    },
    scaling={"max_cpu": 1},
    conditions={"broken": {"lua": "return queue < ready"}},
    queues={"shut": {"condition": "broken"}},
    adopt={key: {"queue": "default", "task": "note"} for key in (LEGACY_LIST, NO_QUEUE)},
)
def eventful(scene: Scene) -> Iterator[None]:
    """Cause all events that no trouble causes, and keep enqueuing tasks during the block."""
    client = scene.fleet.client
    calls = [
        Call("note", ["later"], queue="default", delay=0.5),
        Call("seldom", queue="work"),
        Call("fail_at_length", queue="work"),
        Call("block_the_loop", queue="loop"),
        Call("note", ["too late"], queue="loop", expires=0.05),
        Call("note", ["never"], queue="shut"),
        Call("keep_busy", queue="narrow", expires=5),
    ]
    with coming(scene, calls[0], per_second=20), repeating(lambda: client.enqueue_many(calls), 0.4):
        _leave_to_others(scene)
        _lose(scene)
        _steer(scene)
        yield


def _leave_to_others(scene: Scene) -> None:
    """Use the features that need other programs or clients: adopted lists, groups, cancellations and consumers."""
    client = scene.fleet.client
    with redis.Redis.from_url(scene.server.url) as plain:
        plain.lpush(LEGACY_LIST, '"old"')
        plain.set(NO_QUEUE, "neither a list nor a sorted set")
        plain.config_set("maxmemory-policy", "allkeys-lru")
    client.enqueue(rota.group([Call("note", ["one"], queue="default")], then=Call("note", ["all"], queue="default")))
    scheduled = client.enqueue("note", queue="default", delay=600)
    client.cancel(scheduled.id)
    with client.consumer("work", limit=1) as consumer:
        next(iter(consumer)).done()
        _until_shown(scene, m.CONSUMERS.name)


def _lose(scene: Scene) -> None:
    """Kill a worker while it runs a task, break the connections, and suspend the master until its leases are lost. A
    worker is suspended together with the master, because an active worker may notice the loss and exit before the
    master counts it.
    """
    scene.fleet.client.enqueue("kill_worker", queue="work")
    _until_shown(scene, m.TASKS_RECOVERED.name)
    worker = min(until(scene.fleet.workers, "a worker is ready"))
    with redis.Redis.from_url(scene.server.url) as plain:
        plain.client_kill_filter(_type="normal", skipme=True)
    os.kill(worker, signal.SIGSTOP)
    scene.fleet.signal(signal.SIGSTOP)
    try:
        with redis.Redis.from_url(scene.server.url) as plain:
            until(lambda: not plain.exists(Keys(scene.name).owners), "no owner is registered")
    finally:
        scene.fleet.signal(signal.SIGCONT)
    _until_shown(scene, m.LEASES_LOST.name)
    with contextlib.suppress(ProcessLookupError):  # the master may have killed the worker
        os.kill(worker, signal.SIGCONT)


def _steer(scene: Scene) -> None:
    """Reload the configuration, load the code again, and make the fleet quiet for longer than the interval between two
    points of a panel.
    """
    scene.fleet.hup()
    _until_shown(scene, m.CONFIG_RELOADS.name, result="success")
    scene.fleet.rota("restart")
    _until_shown(scene, m.PROCESS_RESTARTS.name, role="zygote", reason="reload")
    scene.fleet.rota("quiet")
    until(lambda: scene.fleet.metrics().total(m.QUIET_AGE.name) > STEP_SECONDS + 1, "the fleet was quiet")
    scene.fleet.rota("resume")


def _until_shown(scene: Scene, metric: str, **labels: str) -> None:
    until(lambda: scene.fleet.metrics().total(metric, **labels) > 0, metric)


@contextmanager
def beside(
    folder: Path, troubles: Iterable[str], well_seconds: int = 5, before: Callable[[Bench], object] = id
) -> Iterator[Bench]:
    """Run the eventful fleet beside the fleets of the troubles. All fleets stay healthy until Prometheus has scraped
    them for `well_seconds`. Then the events and the troubles begin. `before` is called with the bench while all fleets
    are healthy.
    """
    bench = Bench(folder, troubles)
    scene = bench.scenes[eventful.name] = eventful.scene(folder / eventful.name)
    bench.closing.push(scene.closing)
    with bench, ThreadPoolExecutor() as pool:
        before(bench)
        bench.prometheus.wait_for(f"count(timestamp(up) - timestamp(up offset {well_seconds}s) > 0)")
        happening = pool.submit(scene.closing.enter_context, eventful.happens(scene))
        list(pool.map(bench.begin, troubles))
        happening.result()
        yield bench
