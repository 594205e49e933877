"""A backend of Django's Tasks framework: `TASKS = {"default": {"BACKEND": "rota.contrib.django.tasks.RotaBackend"}}`.

Each function that is declared for the backend becomes a Rota task, named by its module and qualified name. Workers can
run only tasks whose modules they have imported.
"""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from rota.client.default_clients import default_client
from rota.client.inquiries import ResultNotStored
from rota.contrib.django.framework_tasks import (
    DEFAULT_TASK_QUEUE_NAME,
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    TaskResultDoesNotExist,
    declared,
    new_result,
    result_of,
    rota_task,
    task_enqueued,
)
from rota.errors import Unavailable
from rota.protocol.task_states import State
from rota.tasks.call import Call
from rota.tasks.options import TaskOptions, check_options, check_queue, require_name
from rota.tasks.registry import default_registry

PRIORITY_QUEUES: Final = "priority_queues"
RESULT_SECONDS: Final = 86_400
"""How long the result of a task is stored, in seconds, unless OPTIONS has another `result_ttl`."""

TRANSFER_SECONDS: Final = 5.0
"""How long reading a stored result may take, in seconds."""


class RotaBackend(BaseTaskBackend):
    """A backend that enqueues tasks with the default client, after the commit unless `ROTA` states otherwise.

    OPTIONS can have the options of `@rota.task`, except the queue, for all tasks of this backend. It can also have
    `priority_queues`, which chooses the queue of a task by its priority if the task names no queue. With `{50:
    "urgent", -50: "bulk"}`, for example, tasks with a priority of 50 or more are enqueued on "urgent", and tasks with a
    priority of -50 or less on "bulk". If a priority reaches several of the numbers, the one farthest from 0 counts.
    Without `priority_queues`, Django rejects priorities.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Check the options. Raises ImproperlyConfigured if they are not valid."""
        super().__init__(alias, params)
        options = dict(self.options)
        self._queues_by_priority = _checked_queues(alias, options.pop(PRIORITY_QUEUES, {}))
        self._task_options = _checked_options(alias, options)
        self.supports_priority = bool(self._queues_by_priority)

    def validate_task(self, task: AnyTask) -> None:
        """Check a task when it is declared or enqueued, and register it so that workers can run it. Raises InvalidTask
        or InvalidName."""
        super().validate_task(task)
        name = require_name("task name", task.module_path)
        # If not, the task is a copy made by `using`, and is registered already.
        if name not in declared or declared[name].func is not task.func:
            default_registry.add(rota_task(task, type(self), self._task_options, self._queue_of(task)))
            declared[name] = task

    def enqueue(  # type: ignore[override]  # the stubs tie the result to the task, which this code cannot express
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        """Enqueue one call of a task. Raises the errors of `rota.Task.enqueue`, and InvalidTask."""
        self.validate_task(task)
        result = new_result(task, str(uuid.uuid4()), args, kwargs)
        due = None if task.run_after is None else _aware(task.run_after)
        queue = self._queue_of(task)
        default_client().enqueue(Call(task.module_path, result.args, result.kwargs, id=result.id, queue=queue, at=due))
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """Return the status of a task as the framework's result object, which has the arguments only until the task has
        ended.

        Raises TaskResultDoesNotExist if the task is not known, or Unavailable if the server cannot be reached.
        """
        status = default_client().status(result_id, args=True)
        if status.state is State.UNKNOWN and status.error:
            raise Unavailable(status.error)
        task = declared.get(status.name)
        if task is None:
            why = status.why or f"no task {status.name!r} is declared in this process"
            raise TaskResultDoesNotExist(f"{result_id}: {why}")
        return result_of(task, status, _returned(result_id) if status.has_result else None)

    def _queue_of(self, task: AnyTask) -> str:
        if task.queue_name != DEFAULT_TASK_QUEUE_NAME:
            return task.queue_name
        return queue_for(task.priority, self._queues_by_priority)


def queue_for(priority: int, queues: Mapping[int, str]) -> str:
    """Return the queue of a task with this priority. `queues` has a queue for each limit. A priority reaches a positive
    limit if it is at least as high, and a negative limit if it is at least as low.

    If the priority reaches several limits, the one farthest from 0 counts. If it reaches none, the task is enqueued on
    the default queue.
    """
    reached = [limit for limit in queues if 0 < limit <= priority or priority <= limit < 0]
    return queues[max(reached, key=abs)] if reached else DEFAULT_TASK_QUEUE_NAME


def _returned(task_id: str) -> Any:
    try:
        return default_client().result(task_id, TRANSFER_SECONDS)
    except ResultNotStored:  # the result has been deleted since the status was read
        return None


def _aware(when: datetime) -> datetime:
    # Django passes naive datetimes only if USE_TZ is off
    return timezone.make_aware(when) if timezone.is_naive(when) else when


def _checked_options(alias: str, options: dict[str, Any]) -> TaskOptions:
    if "queue" in options:
        raise ImproperlyConfigured(f'TASKS["{alias}"]["OPTIONS"]: set the queue of each task with queue_name, not here')
    try:
        return check_options({"result_ttl": RESULT_SECONDS, **options})  # type: ignore[typeddict-item]  # checked there
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f'TASKS["{alias}"]["OPTIONS"]: {error}') from None


def _checked_queues(alias: str, queues: Any) -> dict[int, str]:
    fault = ImproperlyConfigured(
        f'TASKS["{alias}"]["OPTIONS"]["{PRIORITY_QUEUES}"] must map priorities to queues, '
        f'for example {{50: "urgent", -50: "bulk"}}, got {queues!r}'
    )
    if not isinstance(queues, dict) or not all(isinstance(limit, int) and limit for limit in queues):
        raise fault
    try:
        return {limit: check_queue(queue) for limit, queue in queues.items()}
    except ValueError as error:
        raise fault from error
