"""Chains and groups as an application has them: values that can be enqueued, and `rota.map`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from rota.client.default_clients import async_client, blocking_client, default_async_client, default_client
from rota.client.enqueue_options import OnCommitOption
from rota.client.flow_sending import MapOptions, MapPlan
from rota.client.preparation import check_chain, check_group
from rota.foreign_names import KnowsForeignNames
from rota.tasks.call import Call, CallChain, CallGroup, members_of
from rota.tasks.declaration import showing

if TYPE_CHECKING:
    from rota.client.aio import AsyncClient
    from rota.client.aio.handles import AsyncChainHandle, AsyncGroupHandle
    from rota.client.blocking.client import Client
    from rota.client.blocking.handles import ChainHandle, GroupHandle
    from rota.client.task import Task, Using


_AWAITED: Final = "await ... .aenqueue(client=...)"
_BLOCKING: Final = "... .enqueue(client=...)"


@dataclass(frozen=True)
class Chain(CallChain, KnowsForeignNames, place="flow"):
    """Calls of which each is enqueued when the one before is done, in the step that ends it; made by `rota.chain`.

    What ends otherwise (dead, cancelled, expired) is the last: the rest is dropped. Results are not passed on. `delay`
    of a call that follows counts from the end of the one before.
    """

    def enqueue(self, *, client: "Client | None" = None, on_commit: OnCommitOption = ...) -> "ChainHandle":
        """Enqueue the first call, with what follows it, through the default client or this one. Takes and raises what
        `Client.enqueue` does."""
        return blocking_client(client, _AWAITED).enqueue(self, on_commit=on_commit)

    async def aenqueue(
        self, *, client: "AsyncClient | None" = None, on_commit: OnCommitOption = ...
    ) -> "AsyncChainHandle":
        """As `enqueue`, in an event loop: see `AsyncClient.enqueue`."""
        return await async_client(client, _BLOCKING).enqueue(self, on_commit=on_commit)


@dataclass(frozen=True)
class Group(CallGroup, KnowsForeignNames, place="flow"):
    """Calls and chains that run in any order, and what is enqueued once, in the step that ends the last of them. Made
    by `rota.group`.

    `on_dead` if it is given and a member is dead, else `then`, however they ended. `id`: names the group; an enqueue
    that was cut short goes on where it was when a group of the same id is enqueued again.
    """

    def enqueue(self, *, client: "Client | None" = None, on_commit: OnCommitOption = ...) -> "GroupHandle":
        """Enqueue the members, some hundreds a round trip, through the default client or this one; the group can end
        once all are there. Takes and raises what `Client.enqueue` does."""
        return blocking_client(client, _AWAITED).enqueue(self, on_commit=on_commit)

    async def aenqueue(
        self, *, client: "AsyncClient | None" = None, on_commit: OnCommitOption = ...
    ) -> "AsyncGroupHandle":
        """As `enqueue`, in an event loop: see `AsyncClient.enqueue`."""
        return await async_client(client, _BLOCKING).enqueue(self, on_commit=on_commit)


def chain(*calls: Call[Any]) -> Chain:
    """Calls one after the other: each is enqueued in the step that ends the one before as done.

    Raises TypeError for what is no call, and ValueError for none at all, or for one that follows and is to be unique.
    """
    check_chain(calls)
    return Chain(calls)


def group(
    members: Iterable[Call[Any] | Chain],
    *,
    then: Call[Any] | Chain | None = None,
    on_dead: Call[Any] | Chain | None = None,
    id: str | None = None,  # noqa: A002 - as that of a call
) -> Group:
    """Calls and chains as a group: when the last of them has ended, `then` is enqueued, once; or `on_dead`, if it is
    given and a member is dead.

    Raises TypeError for what is no call, ValueError for a `then` that is to be unique, InvalidName for an id that is
    none.
    """
    check_group(then, on_dead, id)
    return Group(members_of(members), then, on_dead, id)


@showing(MapOptions, MapPlan)
def map(  # noqa: A001 - `rota.map`, as the built-in one
    task: "Task[..., Any] | Using[..., Any]", items: Iterable[Any], **options: Unpack[MapOptions]
) -> "GroupHandle":
    """Enqueue a task for each item, the item its one argument, as a group: a `chunk` at a time (100), and never more
    than `max_waiting` (1,000) that have not ended. Returns when all are there.

    `items` may be an iterator of millions: only a chunk is held. Under the same `id` a map that was cut short goes on
    behind the items that the server has, when it is given the same items again. It waits on while the server is away.
    `then`, `on_dead`: see `rota.group`. `progress` is given how many were accepted, and of how many (None: not known),
    after each chunk; True draws a bar in the terminal.

    Raises TypeError or ValueError for what is none of this; InvalidArguments and the like with the number of the item;
    GroupEnded when it was cancelled meanwhile; else as `Client.enqueue`, with a note that says how to go on.
    """
    return default_client().map(task, items, **options)


@showing(MapOptions, MapPlan)
async def amap(
    task: "Task[..., Any] | Using[..., Any]", items: Iterable[Any], **options: Unpack[MapOptions]
) -> "AsyncGroupHandle":
    """As `map`, in an event loop, which goes on meanwhile."""
    return await default_async_client().map(task, items, **options)
