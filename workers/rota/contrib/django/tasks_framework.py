"""Django's Tasks framework: of Django itself from 6.0 on, before that of the package django-tasks."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

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

if TYPE_CHECKING:  # only there can they be told what they take and return
    AnyTask: TypeAlias = Task[..., Any]
    AnyResult: TypeAlias = TaskResult[..., Any]
else:
    AnyTask, AnyResult = Task, TaskResult

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
