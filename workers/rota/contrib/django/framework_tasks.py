"""The code that runs tasks of Django's Tasks framework in workers, and makes the framework's result objects.

The framework has been part of Django since version 6.0. For earlier versions, it is available as the package
django-tasks.
"""

import builtins
import dataclasses
import functools
import inspect
import os
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from django.utils import timezone

from rota.client.status import TaskStatus
from rota.client.task import Task as RotaTask
from rota.protocol.task_states import STATES, State, TaskPhase
from rota.tasks.hooks import CurrentTask, current_task, on_dead
from rota.tasks.options import TaskOptions

if TYPE_CHECKING or find_spec("django.tasks"):
    from django.tasks import DEFAULT_TASK_QUEUE_NAME
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    from django_tasks import DEFAULT_TASK_QUEUE_NAME
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

if TYPE_CHECKING:  # these classes are generic only in the type stubs
    AnyTask: TypeAlias = Task[..., Any]
    AnyResult: TypeAlias = TaskResult[..., Any]
else:
    AnyTask = Task
    AnyResult = TaskResult

__all__ = [
    "DEFAULT_TASK_QUEUE_NAME",
    "AnyResult",
    "AnyTask",
    "BaseTaskBackend",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "task_enqueued",
    "task_finished",
    "task_started",
]


_STATUSES: Final = {
    TaskPhase.WAITING: TaskResultStatus.READY,
    TaskPhase.RUNNING: TaskResultStatus.RUNNING,
    TaskPhase.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    TaskPhase.FAILED: TaskResultStatus.FAILED,
}
_CLASS: Final = re.compile(r"(?:attempt \d+ of \d+: )?(?P<name>\w+)(?::|$)")


def new_result(task: AnyTask, task_id: str, args: Sequence[Any], kwargs: Mapping[str, Any], **known: Any) -> AnyResult:
    """Return the framework's result object for a task that has just been enqueued, with the fields in `known`. Raises
    TypeError if an argument is not JSON."""
    values: dict[str, Any] = {
        "status": TaskResultStatus.READY,
        "enqueued_at": timezone.now(),
        "started_at": None,
        "last_attempted_at": None,
        "finished_at": None,
        "errors": [],
        "worker_ids": [],
        **known,
    }
    return TaskResult(task=task, id=task_id, args=list(args), kwargs=dict(kwargs), backend=task.backend, **values)


def running_result(task: AnyTask, current: CurrentTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> AnyResult:
    """Return the framework's result object for the task that this process is running."""
    now = timezone.now()
    return new_result(
        task,
        current.id,
        args,
        kwargs,
        status=TaskResultStatus.RUNNING,
        enqueued_at=None,
        started_at=now,
        last_attempted_at=now,
        # Django takes the number of these ids as the number of attempts
        worker_ids=[f"{os.uname().nodename}:{os.getpid()}"] * current.attempt,
    )


def result_of(task: AnyTask, status: TaskStatus, returned: Any) -> AnyResult:
    """Return the framework's result object for a task with this status. If the task is done, `returned` is the value
    that its function returned."""
    result = new_result(
        task,
        status.id,
        status.args or (),
        status.kwargs or {},
        status=_STATUSES[STATES[status.state].phase],
        enqueued_at=status.due_at if status.kind == "immediate" else None,
        started_at=status.started_at,
        last_attempted_at=status.started_at,
        finished_at=status.ended_at,
        errors=_errors_of(status),
        worker_ids=[f"{each.node}:{each.pid}" for each in status.attempts] + _last_worker(status),
    )
    object.__setattr__(result, "_return_value", returned)
    return result


def _last_worker(status: TaskStatus) -> list[str]:
    # Returns the worker of the current or last attempt, unless that attempt has failed. Failed attempts are in
    # `attempts`.
    return [f"{status.node}:{status.pid or 0}"] if status.state in (State.RUNNING, State.DONE) else []


def _errors_of(status: TaskStatus) -> list[TaskError]:
    errors = [_error_of(each.error, "") for each in status.attempts]
    last = str((status.death or {}).get("traceback", ""))
    if errors and last:  # only the last attempt has a traceback; for earlier ones, one line of the error is stored
        errors[-1] = _error_of(status.attempts[-1].error, last)
    return errors


def _error_of(line: str, traceback: str) -> TaskError:
    found = _CLASS.match(line)
    name = found["name"] if found else ""
    paths = re.findall(rf"^([\w.]*\b{re.escape(name)})(?::|$)", traceback, re.MULTILINE) if name else []
    path = paths[-1] if paths else name
    return TaskError(
        exception_class_path=f"builtins.{path}" if hasattr(builtins, path) else path, traceback=traceback or line
    )


declared: Final[dict[str, AnyTask]] = {}
"""The tasks that this process has declared, by name."""


def rota_task(task: AnyTask, backend: type[BaseTaskBackend], options: TaskOptions, queue: str) -> RotaTask[..., Any]:
    """Return a Rota task that runs a task of the framework, passes the context if the task takes one, and sends the
    framework's signals."""

    @functools.wraps(task.func)
    def attempt(*args: Any, **kwargs: Any) -> Any:
        result = running_result(task, current_task(), args, kwargs)
        context: tuple[Any, ...] = (TaskContext(task_result=result),) if task.takes_context else ()
        task_started.send(backend, task_result=result)
        returned = task.call(*context, *args, **kwargs)
        _finish(backend, result, TaskResultStatus.SUCCESSFUL)
        return returned

    if task.takes_context:  # callers do not pass the context, so the signature to check must not have it
        signature = inspect.signature(task.func)
        taken = list(signature.parameters.values())[1:]
        attempt.__signature__ = signature.replace(parameters=taken)  # type: ignore[attr-defined]  # read by inspect
    on_dead(_signal_death)
    return RotaTask(attempt, task.module_path, dataclasses.replace(options, queue=queue))


def _signal_death(current: CurrentTask, _reason: str) -> None:
    task = declared.get(current.name)
    if task is not None:
        _finish(type(task.get_backend()), running_result(task, current, (), {}), TaskResultStatus.FAILED)


def _finish(backend: type[BaseTaskBackend], result: AnyResult, status: TaskResultStatus) -> None:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())
    task_finished.send(backend, task_result=result)
