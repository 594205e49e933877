"""Rota, a task queue on Redis or Valkey that measures how late each task starts.

Each public name is loaded on first use, so that `import rota` costs an application almost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.client.aio import AsyncClient, AsyncHandle, AsyncTaskEvents
    from rota.client.aio.consumer import AsyncConsumer, AsyncLeasedTask
    from rota.client.aio.handles import AsyncChainHandle, AsyncGroupHandle
    from rota.client.blocking.client import Client
    from rota.client.blocking.handles import ChainHandle, GroupHandle, Handle
    from rota.client.chains import Chain, Group, amap, chain, group, map  # noqa: A004 - `rota.map`, as the built-in one
    from rota.client.command_replies import Uncertain
    from rota.client.consumer import Consumer, LeasedTask
    from rota.client.default_clients import (
        aenqueue_many,
        cancel,
        configure,
        default_async_client,
        default_client,
        enqueue_many,
        status,
    )
    from rota.client.explanation import Explanation
    from rota.client.inquiries import ResultNotStored, TaskCancelled, TaskDead, TaskExpired
    from rota.client.queues import QueueCounts, QueuedTask
    from rota.client.status import AttemptRecord, GroupStatus, TaskStatus
    from rota.client.task import Task, task
    from rota.errors import (
        BlockingCall,
        Cancelled,
        Dead,
        DuplicateTask,
        EventsLost,
        EventsOff,
        GroupEnded,
        InvalidArguments,
        InvalidName,
        LeaseLost,
        NoCurrentTask,
        NotConfigured,
        PayloadTooLarge,
        Retry,
        RotaError,
        RotaWarning,
        ScheduleDeclared,
        ServerFull,
        TimeLimit,
        Unavailable,
        UnknownSchedule,
        UnknownTask,
        UnseenNamespace,
        UnservedQueue,
        WaitTimeout,
    )
    from rota.protocol.progress import Progress
    from rota.protocol.task_states import TaskEvent
    from rota.schedules.schedule_status import ScheduleStatus
    from rota.tasks.call import Call
    from rota.tasks.hooks import (
        AttemptFailure,
        CurrentTask,
        around_task,
        current_task,
        on_dead,
        on_failure,
        on_worker_start,
        on_worker_stop,
    )
    from rota.tasks.periodic import Cron, Every

__version__ = "0.1.0"

__all__ = [
    "AsyncChainHandle",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncGroupHandle",
    "AsyncHandle",
    "AsyncLeasedTask",
    "AsyncTaskEvents",
    "AttemptFailure",
    "AttemptRecord",
    "BlockingCall",
    "Call",
    "Cancelled",
    "Chain",
    "ChainHandle",
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
    "Group",
    "GroupEnded",
    "GroupHandle",
    "GroupStatus",
    "Handle",
    "InvalidArguments",
    "InvalidName",
    "LeaseLost",
    "LeasedTask",
    "NoCurrentTask",
    "NotConfigured",
    "PayloadTooLarge",
    "Progress",
    "QueueCounts",
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
    "UnknownTask",
    "UnseenNamespace",
    "UnservedQueue",
    "WaitTimeout",
    "__version__",
    "aenqueue_many",
    "amap",
    "around_task",
    "cancel",
    "chain",
    "configure",
    "current_task",
    "default_async_client",
    "default_client",
    "enqueue_many",
    "group",
    "map",
    "on_dead",
    "on_failure",
    "on_worker_start",
    "on_worker_stop",
    "status",
    "task",
]

_HOMES = {
    "client.aio": (
        "AsyncClient",
        "AsyncHandle",
        "AsyncTaskEvents",
    ),
    "client.aio.consumer": (
        "AsyncConsumer",
        "AsyncLeasedTask",
    ),
    "client.aio.handles": (
        "AsyncChainHandle",
        "AsyncGroupHandle",
    ),
    "client.blocking.client": ("Client",),
    "client.blocking.handles": (
        "ChainHandle",
        "GroupHandle",
        "Handle",
    ),
    "client.consumer": (
        "Consumer",
        "LeasedTask",
    ),
    "client.default_clients": (
        "aenqueue_many",
        "cancel",
        "configure",
        "default_async_client",
        "default_client",
        "enqueue_many",
        "status",
    ),
    "client.explanation": ("Explanation",),
    "client.command_replies": ("Uncertain",),
    "client.inquiries": (
        "ResultNotStored",
        "TaskCancelled",
        "TaskDead",
        "TaskExpired",
    ),
    "client.chains": (
        "amap",
        "Chain",
        "chain",
        "Group",
        "group",
        "map",
    ),
    "client.queues": (
        "QueueCounts",
        "QueuedTask",
    ),
    "client.status": (
        "AttemptRecord",
        "GroupStatus",
        "TaskStatus",
    ),
    "client.task": (
        "Task",
        "task",
    ),
    "protocol.progress": ("Progress",),
    "protocol.task_states": ("TaskEvent",),
    "schedules.schedule_status": ("ScheduleStatus",),
    "tasks.call": ("Call",),
    "tasks.hooks": (
        "around_task",
        "AttemptFailure",
        "current_task",
        "CurrentTask",
        "on_dead",
        "on_failure",
        "on_worker_start",
        "on_worker_stop",
    ),
    "tasks.periodic": (
        "Cron",
        "Every",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        from rota.foreign_names import FOREIGN_NAMES, fault_in_attribute  # noqa: PLC0415 - needed only for messages

        raise AttributeError(fault_in_attribute(name, "module 'rota'", FOREIGN_NAMES["package"]))
    value = getattr(import_module(f"rota.{_HOME.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
