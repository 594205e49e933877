"""A chain and a group as their caller sees them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from rota.client.flow.group_status import GroupStatus
from rota.client.handle import Handle, TaskAccess
from rota.client.status import TaskStatus
from rota.client.wait_rounds import TimeLeft
from rota.durations import Duration
from rota.foreign_names import KnowsForeignNames
from rota.protocol.replies import CancelWord
from rota.protocol.task_states import State
from rota.tasks.call import Call
from rota.tasks.flows import CallChain

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
        """The status of the task at which the chain stands, or with which it ended. Never raises, as Client.status."""
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
        """Where the group stands; `unknown` when it ended a minute ago, or never was. Raises as `Client.cancel`."""
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
