# Generated from rota/client/aio/handles.py by `make blocking`: change that, not this.
"""The handles that an enqueue returns, for tasks, chains and groups."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from rota.client.status import GroupStatus, TaskStatus
from rota.durations import Duration, TimeLeft
from rota.foreign_names import KnowsForeignNames
from rota.protocol.replies import CancelStatus
from rota.protocol.task_states import State
from rota.tasks.call import Call, CallChain

R_co = TypeVar("R_co", covariant=True)


class TaskAccess(Protocol):
    """The part of a client that the handle of a task uses."""

    def status(self, task_id: str, *, args: bool = False) -> TaskStatus: ...
    def wait(self, task_id: str, timeout: Duration | None = None) -> TaskStatus: ...
    def wait_started(self, task_id: str, timeout: Duration | None = None) -> TaskStatus: ...
    def result(self, task_id: str, timeout: Duration | None = None) -> Any: ...
    def cancel(self, task_id: str, kill_after: Duration | None = None) -> CancelStatus: ...


@dataclass(frozen=True, init=False)
class Handle(KnowsForeignNames, Generic[R_co], kind="handle"):
    """An enqueued task. `R_co` is the type that its function returns.

    If `duplicate` is true, the call added nothing, because a task with this id existed, or another task held the unique
    key. Then `id` is the id of the existing task.
    """

    id: str
    duplicate: bool
    client: TaskAccess = field(repr=False, compare=False)

    def __init__(self, id: str, duplicate: bool, client: TaskAccess) -> None:  # noqa: A002 - the name of the field
        # This takes half the time of the generated `__init__`, which calls a function for each field of a frozen
        # dataclass.
        fields = self.__dict__
        fields["id"] = id
        fields["duplicate"] = duplicate
        fields["client"] = client

    def status(self) -> TaskStatus:
        """Return the current status of the task. This raises no error: see `Client.status`."""
        return self.client.status(self.id)

    def wait(self, timeout: Duration | None = None) -> TaskStatus:
        """Wait until the task has ended, whether it succeeded or not, and return its status.

        Raises:
            WaitTimeout: If the task has not ended within `timeout` (seconds or timedelta). The task continues.
            Unavailable: If the client is closed during the wait, or if the server does not permit this user to wait.
        """
        return self.client.wait(self.id, timeout)

    def wait_started(self, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a worker has claimed the task, or the task has ended, and return its status.

        Raises:
            WaitTimeout, Unavailable: See `wait`.
        """
        return self.client.wait_started(self.id, timeout)

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the task has ended, and return what its function returned.

        Raises:
            TaskDead: If the task is dead. Its `death` describes how it died.
            TaskCancelled: If the task was cancelled, or purged with its queue.
            TaskExpired: If no worker started the task before it expired.
            ResultNotStored: If the task is done without a stored result, or if nothing is known about the task.
            WaitTimeout, Unavailable: See `wait`.
        """
        returned: R_co = self.client.result(self.id, timeout)
        return returned

    def cancel(self, kill_after: Duration | None = None) -> CancelStatus:
        """Cancel the task, and return the result as a CancelStatus: see `Client.cancel`.

        Raises:
            ValueError: If `kill_after` is not above 0.
            Unavailable: If the server cannot be reached or refuses the call. Nothing was changed.
            Uncertain: If the server did not reply in time. The call can be repeated.
        """
        return self.client.cancel(self.id, kill_after)


PASSED: Final = (State.DONE, State.UNKNOWN)
"""The states of a task after which the chain continues. They include `unknown`, because the server may no longer
remember a task that is done."""


@dataclass(frozen=True)
class ChainHandle(KnowsForeignNames, kind="handle"):
    """An enqueued chain. `ids` are the ids of its tasks, in order.

    If `duplicate` is true, the call added nothing, because a task with the first id existed, or another task held its
    unique key. Then `ids` has only the id of the existing task.
    """

    ids: tuple[str, ...]
    duplicate: bool
    client: TaskAccess = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        """The id of the first task."""
        return self.ids[0]

    def status(self) -> TaskStatus:
        """Return the status of the task that the chain has reached, or with which it ended. This raises no error."""
        for task_id in self.ids:
            found = self.client.status(task_id)
            if found.state not in PASSED or found.error:
                break
        return found

    def wait(self, timeout: Duration | None = None) -> TaskStatus:
        """Wait until the chain has ended, and return the status of the task with which it ended.

        This is the last task of the chain, or the first task that did not end as done.

        Raises:
            WaitTimeout: If the chain has not ended within `timeout` (seconds or timedelta). The chain continues.
            Unavailable: If the client is closed during the wait, or if the server does not permit this user to wait.
        """
        left = TimeLeft(timeout)
        for task_id in self.ids:
            found = self.client.wait(task_id, left.seconds())
            if found.state not in PASSED:
                break
        return found

    def cancel(self, kill_after: Duration | None = None) -> CancelStatus:
        """Cancel the task that the chain has reached, and return the result as a CancelStatus.

        The rest of the chain is dropped. However, if a `running` task finishes before the cancellation reaches it, the
        chain continues. See `Client.cancel`.

        Raises:
            ValueError: If `kill_after` is not above 0.
            Unavailable: If the server cannot be reached or refuses the call.
            Uncertain: If the server did not reply in time. The call can be repeated.
        """
        # Cancel in the order of the chain, because each task that is done enqueues the next one.
        for task_id in self.ids:
            status = self.client.cancel(task_id, kill_after)
            if status is not CancelStatus.UNKNOWN:
                break
        return status


class GroupAccess(Protocol):
    """The part of a client that the handle of a group uses."""

    client: TaskAccess

    def add(self, group_id: str, members: Iterable[Call[Any] | CallChain]) -> list[Handle[Any] | ChainHandle]: ...
    def status(self, group_id: str) -> GroupStatus: ...
    def wait(self, group_id: str, timeout: Duration | None) -> GroupStatus: ...
    def cancel(self, group_id: str) -> bool: ...


@dataclass(frozen=True)
class GroupHandle(KnowsForeignNames, kind="handle"):
    """A group of tasks and chains.

    If `duplicate` is true, the call added nothing, because a group with this id already had all its members, or has
    ended.
    """

    id: str
    duplicate: bool
    flows: GroupAccess = field(repr=False, compare=False)

    @property
    def client(self) -> TaskAccess:
        """The client that the handle uses."""
        return self.flows.client

    def status(self) -> GroupStatus:
        """Return the status of the group, which is `unknown` if the group ended more than 50 s ago or never existed.

        Raises:
            Unavailable: If the server cannot be reached or refuses the call.
            Uncertain: If the server did not reply in time.
        """
        return self.flows.status(self.id)

    def wait(self, timeout: Duration | None = None) -> GroupStatus:
        """Wait until all members have ended and the task that follows is enqueued, and return the group's status.

        Raises:
            WaitTimeout: If the group has not ended within `timeout` (seconds or timedelta). The group continues.
            Unavailable: If the client is closed during the wait, or if the server does not permit this user to wait.
            Uncertain: If the server did not send the final status in time.
        """
        return self.flows.wait(self.id, timeout)

    def add(self, members: Iterable[Call[Any] | CallChain]) -> list[Handle[Any] | ChainHandle]:
        """Add members to a group that has not ended, and return a handle for each.

        The tasks of the group can call this too.

        Raises:
            GroupEnded: If the group has ended, was cancelled, or is not known.
            InvalidArguments, InvalidName, PayloadTooLarge, TypeError, ValueError: See `Client.enqueue_many`. The
                message contains the number of the member. Nothing was sent.
            Unavailable, ServerFull, Uncertain: See `Client.enqueue_many`.
        """
        return self.flows.add(self.id, members)

    def cancel(self) -> bool:
        """Cancel all members that have not ended, including running members.

        Returns False if the group has ended or is unknown. Neither `then` nor `on_dead` is enqueued. The call can be
        repeated.

        Raises:
            Unavailable: If the server cannot be reached or refuses the call.
            Uncertain: If the server did not reply in time.
        """
        return self.flows.cancel(self.id)
