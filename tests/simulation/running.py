"""The running tasks of a simulated worker, by their index in the worker."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rota.child.child_settings import WorkerSettings
from rota.child.slot_record import KillPolicy, TaskRecord
from rota_supervisor.master.core.children import Child
from simulation.process import Process
from simulation.server import Task
from simulation.timeline import NANOSECONDS

if TYPE_CHECKING:
    from simulation.node import Node


_RETRIES: Final = 1


def kill_policy_of(task: Task) -> KillPolicy:
    """Return the kill policy that the worker writes into its slot before it starts this task."""
    if task.once:
        return KillPolicy()
    return KillPolicy(True, 0 if task.failures < _RETRIES else None, task.crash_limit)


@dataclass(slots=True, eq=False)
class Hand:
    """A running task. Times are in seconds of the node's clock. `interrupted_for` is the last soft deadline at which
    the task was interrupted.
    """

    task: Task
    record: TaskRecord
    began_at: float
    soft_seconds: float
    read_at: float = 0.0
    soft_until: float = math.inf
    interrupted_for: float = math.inf
    give_up: Callable[[], None] = field(default=lambda: None)

    def extend(self, from_ns: int, limit_seconds: float) -> tuple[int, int]:
        """Set the deadlines when the task starts or records a heartbeat. Return the hard deadline and the soft
        deadline.
        """
        self.read_at = from_ns / NANOSECONDS
        soft_ns = from_ns + round(self.soft_seconds * NANOSECONDS) if self.soft_seconds else 0
        self.soft_until = soft_ns / NANOSECONDS if soft_ns else math.inf
        return from_ns + round(limit_seconds * NANOSECONDS), soft_ns


class Running(Process):
    """A process that runs tasks."""

    settings: WorkerSettings

    def __init__(self, node: "Node", child: Child) -> None:
        super().__init__(node, child)
        self.hands: dict[int, Hand] = {}

    @property
    def several(self) -> bool:
        """Whether the process can run several tasks at once."""
        return self.settings.concurrency > 1

    @property
    def running(self) -> bool:
        """Whether the process is running a task."""
        return bool(self.hands)

    @property
    def read_at(self) -> float:
        """The time at which the task with the earliest deadline was started or recorded its last heartbeat, or 0 if no
        task runs.
        """
        return min((hand.read_at for hand in self.hands.values()), default=0.0)

    @property
    def began_at(self) -> float:
        """The time at which the running task began, or `inf` if the process can run several tasks. A check needs it: a
        worker that runs one task at a time responds to an order to exit only when that task has ended.
        """
        return math.inf if self.several else min((hand.began_at for hand in self.hands.values()), default=0.0)

    @property
    def soft_until(self) -> float:
        """The earliest soft deadline of the running tasks that have not been interrupted for it yet."""
        return min(
            (hand.soft_until for hand in self.hands.values() if hand.interrupted_for != hand.soft_until),
            default=math.inf,
        )

    @property
    def runs_cancelled(self) -> bool:
        """Whether a running task has been cancelled."""
        return any(hand.record.is_cancelled() for hand in self.hands.values())

    @property
    def free(self) -> list[int]:
        """The task indexes at which no task runs."""
        return [task_index for task_index in range(self.settings.concurrency) if task_index not in self.hands]
