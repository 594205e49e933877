# Generated from rota/client/aio/handles.py by `make blocking`: change that, not this.
"""Handles of tasks, chains and groups, which an enqueue returns."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from rota.client.status import GroupStatus, TaskStatus
from rota.durations import Duration, TimeLeft
from rota.foreign_names import KnowsForeignNames
from rota.protocol.replies import CancelWord
from rota.protocol.task_states import State
from rota.tasks.call import Call, CallChain

R_co = TypeVar("R_co", covariant=True)


class TaskAccess(Protocol):
    """A client, as far as the handle of a task needs it."""

    def status(self, task_id: str, *, args: bool = False) -> TaskStatus: ...
    def wait(self, task_id: str, timeout: Duration | None = None) -> TaskStatus: ...
    def wait_started(self, task_id: str, timeout: Duration | None = None) -> TaskStatus: ...
    def result(self, task_id: str, timeout: Duration | None = None) -> Any: ...
    def cancel(self, task_id: str, kill_after: Duration | None = None) -> CancelWord: ...


@dataclass(frozen=True, init=False)
class Handle(KnowsForeignNames, Generic[R_co], place="handle"):
    """An enqueued task; `R_co` is what its function returns.

    `duplicate`: the id was live already, or the unique key was held; then the first task stays, `id` is its
    id, and this call added nothing.
    """

    id: str
    duplicate: bool
    client: TaskAccess = field(repr=False, compare=False)

    def __init__(self, id: str, duplicate: bool, client: TaskAccess) -> None:  # noqa: A002 - the name of the field
        # By hand, in half the time: frozen dataclasses set each field through a call.
        fields = self.__dict__
        fields["id"] = id
        fields["duplicate"] = duplicate
        fields["client"] = client

    def status(self) -> TaskStatus:
        """Where the task stands now. Never raises: see `Client.status`."""
        return self.client.status(self.id)

    def wait(self, timeout: Duration | None = None) -> TaskStatus:
        """Wait until the task has ended, however that may be; returns its status. Raises as `Client.wait`."""
        return self.client.wait(self.id, timeout)

    def wait_started(self, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a worker has the task in hand, or it has ended; returns its status. Raises as
        `Client.wait`."""
        return self.client.wait_started(self.id, timeout)

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the task has ended, and return what its function returned. Raises as `Client.result`."""
        returned: R_co = self.client.result(self.id, timeout)
        return returned

    def cancel(self, kill_after: Duration | None = None) -> CancelWord:
        """End the task if it still waits, have `rota.Cancelled` raised in it if it runs: see `Client.cancel`."""
        return self.client.cancel(self.id, kill_after)


PASSED: Final = (State.DONE, State.UNKNOWN)
"""A task of a chain that stands so has the next one behind it, or had: `unknown` is one that is not remembered."""


@dataclass(frozen=True)
class ChainHandle(KnowsForeignNames, place="handle"):
    """An enqueued chain: the `ids` of its tasks, in order.

    `duplicate`: the first one's id was live already, or its unique key was held: then nothing of the chain was added,
    and `ids` has the one that stays.
    """

    ids: tuple[str, ...]
    duplicate: bool
    client: TaskAccess = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        """The id of its first task."""
        return self.ids[0]

    def status(self) -> TaskStatus:
        """The status of the task at which the chain stands, or with which it ended. Never raises."""
        for task_id in self.ids:
            found = self.client.status(task_id)
            if found.state not in PASSED or found.error:
                break
        return found

    def wait(self, timeout: Duration | None = None) -> TaskStatus:
        """Wait until the chain has ended; returns the status of the task with which it did: the last one, or the first
        that was not done. Waits and raises as `Client.wait`."""
        left = TimeLeft(timeout)
        for task_id in self.ids:
            found = self.client.wait(task_id, left.seconds())
            if found.state not in PASSED:
                break
        return found

    def cancel(self, kill_after: Duration | None = None) -> CancelWord:
        """Cancel the task at which the chain stands, which drops the rest, unless it `running` is done before it hears
        of it: see `Client.cancel`."""
        for task_id in self.ids:  # in order: one that is not there any more has the next one behind it
            word = self.client.cancel(task_id, kill_after)
            if word is not CancelWord.UNKNOWN:
                break
        return word


class GroupAccess(Protocol):
    """The groups of a client, as far as the handle of one needs them."""

    client: TaskAccess

    def add(self, group_id: str, members: Iterable[Call[Any] | CallChain]) -> list[Handle[Any] | ChainHandle]: ...
    def status(self, group_id: str) -> GroupStatus: ...
    def wait(self, group_id: str, timeout: Duration | None) -> GroupStatus: ...
    def cancel(self, group_id: str) -> bool: ...


@dataclass(frozen=True)
class GroupHandle(KnowsForeignNames, place="handle"):
    """A group. `duplicate`: a group of this id had all its members already, or has ended: nothing was added."""

    id: str
    duplicate: bool
    flows: GroupAccess = field(repr=False, compare=False)

    @property
    def client(self) -> TaskAccess:
        """The client that it goes through."""
        return self.flows.client

    def status(self) -> GroupStatus:
        """Where the group stands; `unknown` when it ended a minute ago, or never was. Raises as
        `Client.cancel`."""
        return self.flows.status(self.id)

    def wait(self, timeout: Duration | None = None) -> GroupStatus:
        """Wait until the group has ended: all its members, and what follows is enqueued; `unknown` as of `status`.
        Waits and raises as `Client.wait`."""
        return self.flows.wait(self.id, timeout)

    def add(self, members: Iterable[Call[Any] | CallChain]) -> list[Handle[Any] | ChainHandle]:
        """Add members while it has not ended, as its own members may do; returns a handle of each. Raises GroupEnded,
        else as `Client.enqueue_many`."""
        return self.flows.add(self.id, members)

    def cancel(self) -> bool:
        """Cancel all members that have not ended, those that run too; neither `then` nor `on_dead` is enqueued. False
        when it has ended, or never was. Raises as `Client.cancel`; it may be repeated."""
        return self.flows.cancel(self.id)
