"""The tasks of Django's Tasks framework as a worker runs them."""

import dataclasses
import functools
import inspect
from typing import Any, Final

from django.utils import timezone

from rota.client.task import Task as RotaTask
from rota.contrib.django.task_results import running_result
from rota.contrib.django.tasks_framework import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    TaskContext,
    TaskResultStatus,
    task_finished,
    task_started,
)
from rota.tasks.hooks import CurrentTask, current_task, on_dead
from rota.tasks.options import TaskOptions

declared: Final[dict[str, AnyTask]] = {}
"""Those of this process, by name."""


def rota_task(task: AnyTask, backend: type[BaseTaskBackend], options: TaskOptions, queue: str) -> RotaTask[..., Any]:
    """A task of Rota that calls the function, with its context if it takes one, and sends the framework's signals."""

    @functools.wraps(task.func)
    def attempt(*args: Any, **kwargs: Any) -> Any:
        result = running_result(task, current_task(), args, kwargs)
        context: tuple[Any, ...] = (TaskContext(task_result=result),) if task.takes_context else ()
        task_started.send(backend, task_result=result)
        returned = task.call(*context, *args, **kwargs)
        _finish(backend, result, TaskResultStatus.SUCCESSFUL)
        return returned

    if task.takes_context:  # what a caller gives is all but that
        signature = inspect.signature(task.func)
        taken = list(signature.parameters.values())[1:]
        attempt.__signature__ = signature.replace(parameters=taken)  # type: ignore[attr-defined]  # read by inspect
    on_dead(_tell_death)
    return RotaTask(attempt, task.module_path, dataclasses.replace(options, queue=queue))


def _tell_death(current: CurrentTask, _reason: str) -> None:
    task = declared.get(current.name)
    if task is not None:
        _finish(type(task.get_backend()), running_result(task, current, (), {}), TaskResultStatus.FAILED)


def _finish(backend: type[BaseTaskBackend], result: AnyResult, status: TaskResultStatus) -> None:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())
    task_finished.send(backend, task_result=result)
