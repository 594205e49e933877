"""The chains and groups that an application makes and enqueues, and `rota.map`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from rota.client.default_clients import async_client, blocking_client, default_async_client, default_client
from rota.client.enqueue_options import OnCommitOption
from rota.client.flow_sender import MapOptions, MapPlan
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
class Chain(CallChain, KnowsForeignNames, kind="flow"):
    """Calls that run one after the other, made by `rota.chain`.

    When a call is done, the server enqueues the next one in the same atomic step. If a task ends otherwise (dead,
    cancelled or expired), the rest of the chain is dropped. The result of a call is not passed to the next one. The
    `delay` of a later call counts from the end of the previous call.
    """

    def enqueue(self, *, client: "Client | None" = None, on_commit: OnCommitOption = ...) -> "ChainHandle":
        """Enqueue the chain through `client` or the default client.

        Raises the errors of `Client.enqueue`.
        """
        return blocking_client(client, _AWAITED).enqueue(self, on_commit=on_commit)

    async def aenqueue(
        self, *, client: "AsyncClient | None" = None, on_commit: OnCommitOption = ...
    ) -> "AsyncChainHandle":
        """Enqueue the chain from an event loop: see `enqueue` and `AsyncClient.enqueue`."""
        return await async_client(client, _BLOCKING).enqueue(self, on_commit=on_commit)


@dataclass(frozen=True)
class Group(CallGroup, KnowsForeignNames, kind="flow"):
    """Calls and chains that run in any order, and a task that follows when all of them have ended: see `rota.group`.

    In the atomic step that ends the last member, the server enqueues `on_dead` if it was given and a member is dead.
    Otherwise it enqueues `then`, no matter how the members ended. If the enqueue of a group was interrupted, enqueueing
    the group again with the same `id` continues where the first enqueue stopped.
    """

    def enqueue(self, *, client: "Client | None" = None, on_commit: OnCommitOption = ...) -> "GroupHandle":
        """Enqueue the members, a few hundred per round trip, through `client` or the default client.

        The group cannot end before all its members have been accepted. Raises the errors of `Client.enqueue`.
        """
        return blocking_client(client, _AWAITED).enqueue(self, on_commit=on_commit)

    async def aenqueue(
        self, *, client: "AsyncClient | None" = None, on_commit: OnCommitOption = ...
    ) -> "AsyncGroupHandle":
        """Enqueue the group from an event loop: see `enqueue` and `AsyncClient.enqueue`."""
        return await async_client(client, _BLOCKING).enqueue(self, on_commit=on_commit)


def chain(*calls: Call[Any]) -> Chain:
    """Return a chain of calls. When a call is done, the server enqueues the next one in the same atomic step.

        rota.chain(download.call(url), resize.call(7)).enqueue()

    Raises:
        TypeError: If an argument is not a call.
        ValueError: If there are no calls, or if a call after the first has the option `unique`.
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
    """Return a group of calls and chains, with a task that follows when all of them have ended.

        rota.group([resize.call(7), resize.call(8)], then=publish.call()).enqueue()

    At the end, `on_dead` is enqueued if it was given and a member is dead. Otherwise `then` is enqueued, no matter how
    the members ended.

    Raises:
        TypeError: If a member, `then` or `on_dead` is not a call or a chain.
        ValueError: If `then` or `on_dead` has the option `unique`.
        InvalidName: If the id is not a valid name.
    """
    check_group(then, on_dead, id)
    return Group(members_of(members), then, on_dead, id)


@showing(MapOptions, MapPlan)
def map(  # noqa: A001 - `rota.map`, as the built-in one
    task: "Task[..., Any] | Using[..., Any]", items: Iterable[Any], **options: Unpack[MapOptions]
) -> "GroupHandle":
    """Enqueue a task for each item, as a group, and return its handle when all items are accepted.

        rota.map(resize, image_ids, max_waiting=5_000, then=publish.call())

    Each item is the only argument of its task. Items are sent in chunks of `chunk` (default 100), and at most
    `max_waiting` (default 1,000) of the tasks are unfinished at a time, so this call waits until workers have finished
    enough of them. It also waits while the server cannot be reached. `items` may be an iterator over millions of items:
    only one chunk is in memory at a time.

    If a call with an `id` was interrupted, a call with the same id and the same items continues after the items that
    the server already has. `then` and `on_dead` have the same meaning as in `rota.group`. After each chunk, `progress`
    is called with the number of accepted items and the total number of items, or None if the total is not known.
    `progress=True` draws a progress bar in the terminal.

    Raises:
        TypeError, ValueError: If an option is not valid, `task` is not a task, or `items` is not iterable.
        InvalidArguments, InvalidName, PayloadTooLarge: See `Client.enqueue`. The message contains the number of the
            item.
        GroupEnded: If the group was cancelled during the call, or if it has ended and there are more items.
        Unavailable, ServerFull, Uncertain: See `Client.enqueue`. A note on the error describes how to continue.
    """
    return default_client().map(task, items, **options)


@showing(MapOptions, MapPlan)
async def amap(
    task: "Task[..., Any] | Using[..., Any]", items: Iterable[Any], **options: Unpack[MapOptions]
) -> "AsyncGroupHandle":
    """Enqueue a task for each item, from an event loop: see `map`."""
    return await default_async_client().map(task, items, **options)
