"""Troubles of queues. Their tasks are not done in time, or not at all."""

import warnings
from collections.abc import Iterator

from rota import Call, UnservedQueue
from rota.telemetry import metrics as m
from troubles.scene import SHORTENED, WORK_QUEUE, Scene, begun, coming, trouble


@trouble()
def saturation(scene: Scene) -> Iterator[None]:
    """More tasks arrive than the workers can do: eight a second, each of half a second, for two workers."""
    with coming(scene, Call("tell_end", [0.5], queue=WORK_QUEUE), per_second=8):
        begun(lambda: _ready(scene, WORK_QUEUE) >= 8, "eight wait")
        yield
    _purge(scene, WORK_QUEUE)


# The worker is the only one of its pool, and the tasks that keep it busy are not limited in number.
@trouble(
    tiers=[["steady", "work"], ["rare"], ["reports"], ["default"]],
    pools={
        "all": {"workers": 1, "queues": ["steady", "work", "default"]},
        "slow": {"workers": 1, "queues": ["rare", "reports"]},
    },
    queues={"rare": {"lag_objective_seconds": 0.05}, "reports": {"lag_objective_seconds": 3600}},
)
def rare_late_queue(scene: Scene) -> Iterator[None]:
    """A queue with thirty starts an hour, all late: the only worker of its pool always runs a long task."""
    reports, rare = Call("tell_end", [1.5], queue="reports"), Call("note", ["rare"], queue="rare")
    with coming(scene, reports, per_second=1), coming(scene, rare, per_second=SHORTENED / 120):
        begun(lambda: scene.fleet.metrics().total(m.TASK_LAG_OBJECTIVE_MISSES.name, queue="rare") >= 1, "one was late")
        yield
    _purge(scene, "reports")


@trouble(unserved_queues="warn")
def unserved_queue(scene: Scene) -> Iterator[None]:
    """Tasks arrive for a queue that no fleet serves, as if its name were misspelt."""
    with warnings.catch_warnings(action="ignore", category=UnservedQueue):
        scene.fleet.client.enqueue_many([Call("note", [str(number)], queue="wrok") for number in range(5)])
    begun(lambda: _ready(scene, "wrok") == 5, "five wait")
    yield
    _purge(scene, "wrok")


@trouble()
def forgotten_queue(scene: Scene) -> Iterator[None]:
    """A queue was paused by a person and then forgotten."""
    scene.fleet.client.pause(WORK_QUEUE)
    scene.fleet.client.enqueue_many([Call("note", [str(number)], queue=WORK_QUEUE) for number in range(5)])
    begun(lambda: scene.fleet.metrics().total(m.QUEUE_PAUSED.name, queue=WORK_QUEUE) == 1, "it is shown as paused")
    yield
    scene.fleet.client.resume(WORK_QUEUE)


def _ready(scene: Scene, queue: str) -> float:
    return scene.fleet.metrics().total(m.QUEUE_READY.name, queue=queue)


def _purge(scene: Scene, queue: str) -> None:
    assert scene.fleet.rota("queue", "purge", queue, "--yes").returncode == 0
