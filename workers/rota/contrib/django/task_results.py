"""What Django's Tasks framework says of a task, from what Rota knows of it."""

import builtins
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.utils import timezone

from rota.client.accounts import AttemptAccount
from rota.client.status import State, TaskStatus
from rota.contrib.django.tasks_framework import AnyResult, AnyTask, TaskError, TaskResult, TaskResultStatus
from rota.current import CurrentTask

_STATUSES: Final = {
    State.SCHEDULED: TaskResultStatus.READY,
    State.READY: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.DONE: TaskResultStatus.SUCCESSFUL,
    State.DEAD: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
    State.EXPIRED: TaskResultStatus.FAILED,
}


def new_result(task: AnyTask, task_id: str, args: Sequence[Any], kwargs: Mapping[str, Any], **known: Any) -> AnyResult:
    """Of a task that has just been enqueued, but for what is known otherwise. Raises TypeError for arguments that JSON
    has not."""
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
    """Of the task that runs now, in this process."""
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
        worker_ids=[f"{os.uname().nodename}:{os.getpid()}"] * current.attempt,  # their number is that of attempts
    )


def result_of(task: AnyTask, status: TaskStatus, returned: Any) -> AnyResult:
    """Of a task of which something is known. `returned`: of one that is done."""
    result = new_result(
        task,
        status.id,
        status.args or (),
        status.kwargs or {},
        status=_STATUSES[status.state],
        enqueued_at=status.due_at if status.kind == "immediate" else None,
        started_at=status.started_at,
        last_attempted_at=status.started_at,
        finished_at=status.ended_at,
        errors=[_error_of(each) for each in status.attempts],
        worker_ids=[f"{each.node}:{each.pid}" for each in status.attempts] + _last_worker(status),
    )
    object.__setattr__(result, "_return_value", returned)
    return result


def _last_worker(status: TaskStatus) -> list[str]:
    # Of an attempt that is no failure; those are among the accounts.
    return [f"{status.node}:{status.pid or 0}"] if status.state in (State.RUNNING, State.DONE) else []


def _error_of(attempt: AttemptAccount) -> TaskError:
    name = attempt.error.partition(":")[0]
    path = f"builtins.{name}" if hasattr(builtins, name) else name
    return TaskError(exception_class_path=path, traceback=attempt.error)
