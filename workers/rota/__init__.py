"""Rota: tasks over Redis or Valkey, and how late each one started.

Names are loaded at their first use, so that `import rota` costs an application next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.client.accounts import AttemptAccount
    from rota.client.call import Call
    from rota.client.client import Client
    from rota.client.consumer import Consumer, LeasedTask
    from rota.client.default import cancel, configure, default_client, enqueue_many, status
    from rota.client.explain import Explanation
    from rota.client.peek import QueuedTask
    from rota.client.periodic import Cron, Every
    from rota.client.status import Handle, TaskStatus
    from rota.client.tasks import Task, task
    from rota.current import CurrentTask, current_task
    from rota.errors import (
        Cancelled,
        Dead,
        DuplicateTask,
        EventsLost,
        EventsOff,
        InvalidArguments,
        InvalidName,
        LeaseLost,
        NoCurrentTask,
        NotConfigured,
        PayloadTooLarge,
        ResultNotStored,
        Retry,
        RotaError,
        RotaWarning,
        ScheduleDeclared,
        ServerFull,
        TaskCancelled,
        TaskDead,
        TaskExpired,
        TimeLimit,
        Unavailable,
        Uncertain,
        UnknownSchedule,
        UnseenNamespace,
        UnservedQueue,
        WaitTimeout,
    )
    from rota.hooks import around_task, on_dead, on_worker_start, on_worker_stop
    from rota.protocol.progress import Progress
    from rota.protocol.task_events import TaskEvent
    from rota.schedules.status import ScheduleStatus

__version__ = "0.1.0"

__all__ = [
    "AttemptAccount",
    "Call",
    "Cancelled",
    "Client",
    "Consumer",
    "Cron",
    "CurrentTask",
    "Dead",
    "DuplicateTask",
    "EventsLost",
    "EventsOff",
    "Every",
    "Explanation",
    "Handle",
    "InvalidArguments",
    "InvalidName",
    "LeaseLost",
    "LeasedTask",
    "NoCurrentTask",
    "NotConfigured",
    "PayloadTooLarge",
    "Progress",
    "QueuedTask",
    "ResultNotStored",
    "Retry",
    "RotaError",
    "RotaWarning",
    "ScheduleDeclared",
    "ScheduleStatus",
    "ServerFull",
    "Task",
    "TaskCancelled",
    "TaskDead",
    "TaskEvent",
    "TaskExpired",
    "TaskStatus",
    "TimeLimit",
    "Unavailable",
    "Uncertain",
    "UnknownSchedule",
    "UnseenNamespace",
    "UnservedQueue",
    "WaitTimeout",
    "__version__",
    "around_task",
    "cancel",
    "configure",
    "current_task",
    "default_client",
    "enqueue_many",
    "on_dead",
    "on_worker_start",
    "on_worker_stop",
    "status",
    "task",
]

_HOMES = {
    "client.accounts": ("AttemptAccount",),
    "client.call": ("Call",),
    "client.client": ("Client",),
    "client.consumer": ("Consumer", "LeasedTask"),
    "current": ("CurrentTask", "current_task"),
    "client.default": ("cancel", "configure", "default_client", "enqueue_many", "status"),
    "protocol.progress": ("Progress",),
    "hooks": ("around_task", "on_dead", "on_worker_start", "on_worker_stop"),
    "client.explain": ("Explanation",),
    "client.peek": ("QueuedTask",),
    "client.periodic": ("Cron", "Every"),
    "schedules.status": ("ScheduleStatus",),
    "client.status": ("Handle", "TaskStatus"),
    "protocol.task_events": ("TaskEvent",),
    "client.tasks": ("Task", "task"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        from rota.habits import OF_THE_PACKAGE, fault_in_attribute  # noqa: PLC0415 - for messages alone

        raise AttributeError(fault_in_attribute(name, "module 'rota'", OF_THE_PACKAGE))
    value = getattr(import_module(f"rota.{_HOME.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
