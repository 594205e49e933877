"""Troubles caused by the application's code."""

import os
import signal
from collections.abc import Iterator

from rota import Call
from rota.telemetry import metrics as m
from support.waiting import until
from troubles.scene import RESTARTS, WORK_QUEUE, Scene, begun, coming, trouble


@trouble(restarts={**RESTARTS, "crash_limit": 1000})
def crash_loop(scene: Scene) -> Iterator[None]:
    """A task kills each worker that runs it, a thousand times."""
    handle = scene.fleet.client.enqueue("crash", queue=WORK_QUEUE)
    begun(lambda: _restarts(scene, "signal") >= 3, "three workers are dead")
    yield
    until(lambda: scene.fleet.client.cancel(handle.id), "the task is gone")


@trouble()
def hung_task(scene: Scene) -> Iterator[None]:
    """A task does not end, in a queue in which all others take milliseconds, and its time limit is far away."""
    with coming(scene, Call("note", ["short"], queue=WORK_QUEUE), per_second=1):
        scene.fleet.hold("forever", WORK_QUEUE)
        yield
    scene.fleet.release("forever")


@trouble()
def failing_tasks(scene: Scene) -> Iterator[None]:
    """A task fails in each attempt, a few times a second, and is dead each time."""
    with coming(scene, Call("give_up", ["as it was told"], queue=WORK_QUEUE), per_second=4):
        begun(lambda: scene.fleet.metrics().total(m.TASKS_DEAD.name, task="give_up") >= 3, "three are dead")
        yield


@trouble()
def failing_hook(scene: Scene) -> Iterator[None]:
    """A hook at the start of each worker fails because its database is away. Running workers die from time to time."""
    marker = scene.fleet.folder / "no-database"
    marker.touch()
    for pid in scene.fleet.workers():
        os.kill(pid, signal.SIGKILL)
    begun(lambda: _restarts(scene, "boot") >= 3, "three starts have failed")
    yield
    marker.unlink()
    scene.fleet.hup()


def _restarts(scene: Scene, reason: str) -> float:
    return scene.fleet.metrics().total(m.PROCESS_RESTARTS.name, role="worker", reason=reason)
