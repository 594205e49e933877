"""The requests with which clients inspect tasks, queues and groups, and the errors for tasks without a result."""

import json
from typing import TYPE_CHECKING, Any

from rota.client.event_stream import WantedEvents
from rota.client.queues import QueuedTask, WantedTasks, find, listed_state
from rota.client.status import GroupStatus, TaskStatus, group_status_of, status_of
from rota.durations import Duration, positive_milliseconds, seconds
from rota.errors import RotaError
from rota.protocol.replies import CancelStatus
from rota.protocol.scans import find_task
from rota.protocol.scripts import ScriptCall, Steps, execute
from rota.protocol.store import Store
from rota.protocol.task_states import State
from rota.tasks.arguments import Misfit
from rota.tasks.options import check_queue, require_name
from rota.tasks.registry import default_registry

if TYPE_CHECKING:
    from rota.client.explanation import Explanation


class _NoResult(RotaError):
    # The base class of the errors for tasks that ended without a result.

    def __init__(self, message: str, status: TaskStatus | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def id(self) -> str:
        """The id of the task."""
        return self.status.id if self.status is not None else ""


class TaskDead(_NoResult, RuntimeError):
    """Raised instead of returning a result if the task is dead. `status` has all that is known about the task."""

    @property
    def death(self) -> dict[str, Any]:
        """The record of the task's death, with fields such as `reason` and `error`. Empty if nothing is known about the
        death."""
        return (self.status.death if self.status is not None else None) or {}


class TaskCancelled(_NoResult, RuntimeError):
    """Raised instead of returning a result if the task was cancelled, or purged with its queue.

    `status` has all that is known about the task.
    """


class TaskExpired(_NoResult, RuntimeError):
    """Raised instead of returning a result if the task expired before it was started. `status` has all that is known
    about the task."""


class ResultNotStored(_NoResult, LookupError):
    """Raised if the task is done but its result is not stored, or if nothing is known about the task.

    The message states the reason. `status` has all that is known about the task.
    """


def status_steps(store: Store, task_id: str, *, args: bool) -> Steps[TaskStatus]:
    """Return the status of a task. Unlike `Client.status`, this raises an error if the status cannot be read."""
    require_name("id", task_id)
    return status_of(task_id, (yield from find_task(store, task_id)), args=args)


def unknown_for(task_id: str, error: RotaError) -> TaskStatus:
    """Return the status `unknown` for a task whose status could not be read, with the error as the reason."""
    return TaskStatus(task_id, State.UNKNOWN, error=str(error))


def peek_steps(store: Store, queue: str | None, state: str, task: str | None, limit: int) -> Steps[list[QueuedTask]]:
    """Return the first tasks in one state: see `Client.peek`."""
    _check_chosen(queue, task)
    found = yield from find(store, WantedTasks(listed_state(state), queue or "", task or "", limit))
    return found.tasks


def explain_steps(
    store: Store, n: int, queue: str | None, task_id: str | None, pool: str | None
) -> "Steps[Explanation]":
    """Return the explanation of the next claims: see `Client.explain`."""
    # Imported here because a program that only enqueues does not need the module.
    from rota.client.explanation import WantedClaims, explain  # noqa: PLC0415

    _check_chosen(queue, pool)
    if task_id is not None:
        require_name("id", task_id)
    return explain(store, WantedClaims(n, queue or "", task_id or "", pool or ""))


def cancel_command(store: Store, task_id: str, kill_after: Duration | None) -> ScriptCall[CancelStatus]:
    """Return the command that cancels a task: see `Client.cancel`."""
    require_name("id", task_id)
    kill_after_ms = None if kill_after is None else positive_milliseconds(kill_after, "kill_after")
    return store.cancel(task_id, kill_after_ms)


def wanted_events(after: str | None, queue: str | None, task: str | None, timeout: Duration | None) -> WantedEvents:
    """Check the arguments of `events`, and return them as one record."""
    _check_chosen(queue, task)
    waits = None if timeout is None else seconds(timeout, "timeout")
    return WantedEvents(after, queue or "", task or "", waits)


def _check_chosen(queue: str | None, task: str | None) -> None:
    """Check the names of the queue and the task to which a request is restricted. None means all queues or all tasks.
    Raises InvalidName if a name is not valid."""
    if queue is not None:
        check_queue(queue)
    if task is not None:
        require_name("task name", task)


def result_of(status: TaskStatus, kept: bytes | None) -> Any:
    """Return the result of a task that has ended.

    If this process declares the task, the result is converted to the type that the function's annotation names. Raises
    TaskDead, TaskCancelled, TaskExpired or ResultNotStored.
    """
    task = f"task {status.id}"
    match status.state:
        case State.DONE if kept is not None and not status.result_refused:
            return _converted(status, json.loads(kept))
        case State.DONE:
            raise ResultNotStored(f"{task} is done, but the server has no result: {_why_not(status)}", status)
        case State.DEAD:
            raise TaskDead(f"{task} is dead: {status.error}", status)
        case State.CANCELLED:
            raise TaskCancelled(f"{task} was cancelled{f': {status.why}' if status.why else ''}", status)
        case State.EXPIRED:
            raise TaskExpired(f"{task} expired before a worker started it", status)
        case _:
            raise ResultNotStored(f"the server knows nothing about {task}: {status.why}", status)


def _converted(status: TaskStatus, wire: Any) -> Any:
    task = default_registry.get(status.name)
    if task is None or task.typed is None:
        return wire
    try:
        return task.typed.load_result(wire)
    except Misfit as misfit:
        why = f"result{misfit.path} {misfit.fault}"
        text = f"task {status.id} is done, but its result cannot be read here: {why}"
        raise ResultNotStored(text, status) from misfit


def _why_not(status: TaskStatus) -> str:
    if status.result_refused:
        return f"it was refused: {status.result_refused}"
    return "the task does not store its result (see result_ttl of @rota.task), or the result has expired"


def group_status_steps(store: Store, group_id: str) -> Steps[GroupStatus]:
    """Return the status of a group."""
    return group_status_of(group_id, (yield from execute(store.group(require_name("id", group_id)))))


def cancel_group_steps(store: Store, group_id: str) -> Steps[bool]:
    """Cancel a group and each of its members, and return False if the group has ended or is unknown."""
    cursor = "0"
    is_known = False
    while True:
        chunk = yield from execute(store.cancel_group(group_id, cursor))
        cursor = chunk.cursor
        is_known = is_known or chunk.is_known
        for task_id in chunk.ids:
            yield store.cancel(task_id)
        if cursor == "0":
            return is_known
