"""What clients ask the server about tasks, queues and groups, and the errors of tasks that have no result."""

import json
from typing import TYPE_CHECKING, Any

from rota.client.event_stream import WantedEvents
from rota.client.queues import QueuedTask, WantedTasks, find, listed_state
from rota.client.status import GroupStatus, TaskStatus, group_status_of, status_of
from rota.durations import Duration, positive_milliseconds, seconds
from rota.errors import RotaError
from rota.protocol.command import Command, Steps, ask
from rota.protocol.replies import CancelWord
from rota.protocol.store import Store
from rota.protocol.task_states import State
from rota.protocol.walks import find_task
from rota.tasks.arguments import Misfit
from rota.tasks.options import check_queue, require_name
from rota.tasks.registry import default_registry

if TYPE_CHECKING:
    from rota.client.explanation import Explanation


class _NoResult(RotaError):
    # A task has ended in this way, and there is no result.

    def __init__(self, message: str, status: TaskStatus | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def id(self) -> str:
        """The task's id."""
        return self.status.id if self.status is not None else ""


class TaskDead(_NoResult, RuntimeError):
    """The task whose result was asked for is dead. `status` says all that is known of it."""

    @property
    def epitaph(self) -> dict[str, Any]:
        """What is known of its end."""
        return (self.status.epitaph if self.status is not None else None) or {}


class TaskCancelled(_NoResult, RuntimeError):
    """The task whose result was asked for was cancelled, or purged with its queue. `status` as of TaskDead."""


class TaskExpired(_NoResult, RuntimeError):
    """The task whose result was asked for was not started in time, before its `expires`. `status` as of TaskDead."""


class ResultNotStored(_NoResult, LookupError):
    """The task is done and its result is not there, or nothing is known of the task: the message says why. `status` as
    of TaskDead."""


def looking_at(store: Store, task_id: str, *, args: bool) -> Steps[TaskStatus]:
    """`status`, but that it raises."""
    require_name("id", task_id)
    return status_of(task_id, (yield from find_task(store, task_id)), args=args)


def unknown_for(task_id: str, error: RotaError) -> TaskStatus:
    """The status of a task that could not be asked for."""
    return TaskStatus(task_id, State.UNKNOWN, error=str(error))


def peeking(store: Store, queue: str | None, state: str, task: str | None, limit: int) -> Steps[list[QueuedTask]]:
    """`peek`."""
    _check_chosen(queue, task)
    found = yield from find(store, WantedTasks(listed_state(state), queue or "", task or "", limit))
    return found.tasks


def explaining(store: Store, n: int, queue: str | None, task_id: str | None, pool: str | None) -> "Steps[Explanation]":
    """`explain`."""
    # Imported only here, as the consumer is.
    from rota.client.explanation import WantedClaims, explain  # noqa: PLC0415

    _check_chosen(queue, pool)
    if task_id is not None:
        require_name("id", task_id)
    return explain(store, WantedClaims(n, queue or "", task_id or "", pool or ""))


def cancelling(store: Store, task_id: str, kill_after: Duration | None) -> Command[CancelWord]:
    """`cancel`."""
    require_name("id", task_id)
    kill_after_ms = None if kill_after is None else positive_milliseconds(kill_after, "kill_after")
    return store.cancel(task_id, kill_after_ms)


def wanted_events(after: str | None, queue: str | None, task: str | None, timeout: Duration | None) -> WantedEvents:
    """What readers of `events` give."""
    _check_chosen(queue, task)
    waits = None if timeout is None else seconds(timeout, "timeout")
    return WantedEvents(after, queue or "", task or "", waits)


def _check_chosen(queue: str | None, task: str | None) -> None:
    """What of all is wanted; None for all. Raises InvalidName."""
    if queue is not None:
        check_queue(queue)
    if task is not None:
        require_name("task name", task)


def result_of(status: TaskStatus, kept: bytes | None) -> Any:
    """The result as the task returned it, by its annotation if it is declared in this process, else as JSON has it.
    Raises TaskDead, TaskCancelled, TaskExpired or ResultNotStored."""
    task = f"task {status.id}"
    match status.state:
        case State.DONE if kept is not None and not status.result_refused:
            return _converted(status, json.loads(kept))
        case State.DONE:
            raise ResultNotStored(f"{task} is done, and its result is not there: {_why_not(status)}", status)
        case State.DEAD:
            raise TaskDead(f"{task} is dead: {status.error}", status)
        case State.CANCELLED:
            raise TaskCancelled(f"{task} was cancelled{f': {status.why}' if status.why else ''}", status)
        case State.EXPIRED:
            raise TaskExpired(f"{task} had expired before a worker came to start it", status)
        case _:
            raise ResultNotStored(f"nothing is known of {task}: {status.why}", status)


def _converted(status: TaskStatus, wire: Any) -> Any:
    task = default_registry.get(status.name)
    if task is None or task.typed is None:
        return wire
    try:
        return task.typed.load_result(wire)
    except Misfit as misfit:
        why = f"result{misfit.path} {misfit.fault}"
        text = f"task {status.id} is done, and its result cannot be read here: {why}"
        raise ResultNotStored(text, status) from misfit


def _why_not(status: TaskStatus) -> str:
    if status.result_refused:
        return f"it was refused: {status.result_refused}"
    return "the task keeps none (see result_ttl of @rota.task), or its time is over"


def looking_at_group(store: Store, group_id: str) -> Steps[GroupStatus]:
    """How it is with a group."""
    return group_status_of(group_id, (yield from ask(store.group(require_name("id", group_id)))))


def cancelling_group(store: Store, group_id: str) -> Steps[bool]:
    """Cancel a group, and each of its members; False when it has ended, or never was."""
    cursor, is_known = "0", False
    while True:
        portion = yield from ask(store.cancel_group(group_id, cursor))
        cursor, is_known = portion.cursor, is_known or portion.is_known
        for task_id in portion.ids:
            yield store.cancel(task_id)
        if cursor == "0":
            return is_known
