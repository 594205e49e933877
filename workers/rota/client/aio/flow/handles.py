"""A chain and a group as whoever awaits their enqueue sees them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from rota.client.aio.handle import AsyncHandle, AsyncTaskAccess
from rota.client.flow.group_status import GroupStatus
from rota.client.flow.handles import PASSED
from rota.client.status import TaskStatus
from rota.client.wait_rounds import TimeLeft
from rota.durations import Duration
from rota.foreign_names import KnowsForeignNames
from rota.protocol.replies import CancelWord
from rota.tasks.call import Call
from rota.tasks.flows import CallChain


@dataclass(frozen=True)
class AsyncChainHandle(KnowsForeignNames, place="handle"):
    """An enqueued chain, as `ChainHandle`: `ids`, `duplicate` and `id` are the same, its methods are awaited."""

    ids: tuple[str, ...]
    duplicate: bool
    client: AsyncTaskAccess = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        """The id of its first task."""
        return self.ids[0]

    async def status(self) -> TaskStatus:
        """The status of the task at which the chain stands, or with which it ended: see `ChainHandle.status`."""
        for task_id in self.ids:
            found = await self.client.status(task_id)
            if found.state not in PASSED or found.error:
                break
        return found

    async def wait(self, timeout: Duration | None = None) -> TaskStatus:
        """Wait until the chain has ended; returns the status of the task with which it did: see `ChainHandle.wait`."""
        left = TimeLeft(timeout)
        for task_id in self.ids:
            found = await self.client.wait(task_id, left.seconds())
            if found.state not in PASSED:
                break
        return found

    async def cancel(self, kill_after: Duration | None = None) -> CancelWord:
        """Cancel the task at which the chain stands, which drops the rest: see `AsyncClient.cancel`."""
        for task_id in self.ids:  # as in ChainHandle
            word = await self.client.cancel(task_id, kill_after)
            if word is not CancelWord.UNKNOWN:
                break
        return word


class AsyncGroupAccess(Protocol):
    """The groups of a client, as far as the handle of one needs them."""

    client: AsyncTaskAccess

    async def add(
        self, group_id: str, members: Iterable[Call[Any] | CallChain]
    ) -> list[AsyncHandle[Any] | AsyncChainHandle]: ...
    async def status(self, group_id: str) -> GroupStatus: ...
    async def wait(self, group_id: str, timeout: Duration | None) -> GroupStatus: ...
    async def cancel(self, group_id: str) -> bool: ...


@dataclass(frozen=True)
class AsyncGroupHandle(KnowsForeignNames, place="handle"):
    """A group, as `GroupHandle`, whose methods are awaited."""

    id: str
    duplicate: bool
    flows: AsyncGroupAccess = field(repr=False, compare=False)

    @property
    def client(self) -> AsyncTaskAccess:
        """The client that it goes through."""
        return self.flows.client

    async def status(self) -> GroupStatus:
        """Where the group stands; `unknown` when it ended a minute ago, or never was: see `GroupHandle.status`."""
        return await self.flows.status(self.id)

    async def wait(self, timeout: Duration | None = None) -> GroupStatus:
        """Wait until the group has ended: see `GroupHandle.wait`."""
        return await self.flows.wait(self.id, timeout)

    async def add(self, members: Iterable[Call[Any] | CallChain]) -> list[AsyncHandle[Any] | AsyncChainHandle]:
        """Add members while it has not ended: see `GroupHandle.add`."""
        return await self.flows.add(self.id, members)

    async def cancel(self) -> bool:
        """Cancel all members that have not ended, and let nothing follow: see `GroupHandle.cancel`."""
        return await self.flows.cancel(self.id)
