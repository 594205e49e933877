"""What a task that has ended returned, or why that is not to be had."""

import json
from typing import Any

from rota.client.failures import ResultNotStored, TaskCancelled, TaskDead, TaskExpired
from rota.client.status import TaskStatus
from rota.protocol.task_states import State
from rota.tasks.arguments import Misfit
from rota.tasks.registry import default_registry


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
