"""A backend of Django's Tasks framework: `TASKS = {"default": {"BACKEND": "rota.contrib.django.tasks.RotaBackend"}}`.

Each function that is declared for it is a task of Rota too, under its module and qualified name. So workers run those
that they imported, and no other.
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
"""For how long what a task returned is kept, unless OPTIONS has another `result_ttl`."""

ANSWER_SECONDS: Final = 5.0
"""How long a result that is there may take to arrive."""


class RotaBackend(BaseTaskBackend):
    """Enqueues through the default client, on commit unless `ROTA` says otherwise.

    OPTIONS: what `@rota.task` takes, but for the queue, for all tasks of this backend; and `priority_queues`, as in
    `{50: "urgent", -50: "bulk"}`: where tasks go that name no queue and whose priority reaches that far. Without it
    Django refuses priorities.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Raises ImproperlyConfigured for OPTIONS that are none."""
        super().__init__(alias, params)
        options = dict(self.options)
        self._queues_by_priority = _checked_queues(alias, options.pop(PRIORITY_QUEUES, {}))
        self._task_options = _checked_options(alias, options)
        self.supports_priority = bool(self._queues_by_priority)

    def validate_task(self, task: AnyTask) -> None:
        """Check a task as it is declared, or enqueued, and have workers know it. Raises InvalidTask or InvalidName."""
        super().validate_task(task)
        name = require_name("task name", task.module_path)
        if name not in declared or declared[name].func is not task.func:  # else it is this one `using` something else
            default_registry.add(rota_task(task, type(self), self._task_options, self._queue_of(task)))
            declared[name] = task

    def enqueue(  # type: ignore[override]  # the stubs tie the result to the task, as nothing in here can
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        """Enqueue one call. Raises as `rota.Task.enqueue`, and InvalidTask."""
        self.validate_task(task)
        result = new_result(task, str(uuid.uuid4()), args, kwargs)
        due = None if task.run_after is None else _aware(task.run_after)
        queue = self._queue_of(task)
        default_client().enqueue(Call(task.module_path, result.args, result.kwargs, id=result.id, queue=queue, at=due))
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """Where a task stands. Its arguments are known as long as it has not ended.

        Raises TaskResultDoesNotExist, or Unavailable when the server cannot be asked.
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
    """The queue of the limit farthest from 0 that a priority reaches, else the default one."""
    reached = [limit for limit in queues if 0 < limit <= priority or priority <= limit < 0]
    return queues[max(reached, key=abs)] if reached else DEFAULT_TASK_QUEUE_NAME


def _returned(task_id: str) -> Any:
    try:
        return default_client().result(task_id, ANSWER_SECONDS)
    except ResultNotStored:  # its time ended in between
        return None


def _aware(when: datetime) -> datetime:
    return timezone.make_aware(when) if timezone.is_naive(when) else when  # naive only where USE_TZ is off


def _checked_options(alias: str, options: dict[str, Any]) -> TaskOptions:
    if "queue" in options:
        raise ImproperlyConfigured(f'TASKS["{alias}"]["OPTIONS"]: each task names its queue, as queue_name')
    try:
        return check_options({"result_ttl": RESULT_SECONDS, **options})  # type: ignore[typeddict-item]  # checked there
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f'TASKS["{alias}"]["OPTIONS"]: {error}') from None


def _checked_queues(alias: str, queues: Any) -> dict[int, str]:
    fault = ImproperlyConfigured(
        f'TASKS["{alias}"]["OPTIONS"]["{PRIORITY_QUEUES}"] must say queues by priorities, '
        f'as {{50: "urgent", -50: "bulk"}}, got {queues!r}'
    )
    if not isinstance(queues, dict) or not all(isinstance(limit, int) and limit for limit in queues):
        raise fault
    try:
        return {limit: check_queue(queue) for limit, queue in queues.items()}
    except ValueError as error:
        raise fault from error
