"""Work that follows other work: chains and groups as values, checked where they are made. Nothing is sent by them but
through a client."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rota.client.default import default_async_client, default_client
from rota.client.on_commit import OnCommitOption
from rota.client.prepare import require_name
from rota.habits import OF_A_FLOW, KnowsHabits
from rota.tasks.call import Call, why_no_call
from rota.tasks.registry import default_registry

if TYPE_CHECKING:
    from rota.client.aio import AsyncClient
    from rota.client.aio.flow.handles import AsyncChainHandle, AsyncGroupHandle
    from rota.client.client import Client
    from rota.client.flow.handles import ChainHandle, GroupHandle

_NOT_UNIQUE: Final = "when it is enqueued another one may hold its key, and nobody is there to be told"


@dataclass(frozen=True)
class Chain(KnowsHabits, habits=OF_A_FLOW):
    """Calls of which each is enqueued when the one before is done, in the step that ends it; made by `rota.chain`.

    What ends otherwise (dead, cancelled, expired) is the last: the rest is dropped. Results are not passed on. `delay`
    of a call that follows counts from the end of the one before.
    """

    calls: tuple[Call[Any], ...]

    def enqueue(self, *, client: "Client | None" = None, on_commit: OnCommitOption = ...) -> "ChainHandle":
        """Enqueue the first call, with what follows it, through the default client or this one. Takes and raises what
        `Client.enqueue` does."""
        return blocking(client).enqueue(self, on_commit=on_commit)

    async def aenqueue(
        self, *, client: "AsyncClient | None" = None, on_commit: OnCommitOption = ...
    ) -> "AsyncChainHandle":
        """As `enqueue`, in an event loop: see `AsyncClient.enqueue`."""
        return await awaited(client).enqueue(self, on_commit=on_commit)


@dataclass(frozen=True)
class Group(KnowsHabits, habits=OF_A_FLOW):
    """Calls and chains that run in any order, and what is enqueued once, in the step that ends the last of them. Made
    by `rota.group`.

    `on_dead` if it is given and a member is dead, else `then`, however they ended. `id`: names the group; an enqueue
    that was cut short goes on where it was when a group of the same id is enqueued again.
    """

    members: tuple["Call[Any] | Chain", ...]
    then: "Call[Any] | Chain | None" = None
    on_dead: "Call[Any] | Chain | None" = None
    id: str | None = None

    def enqueue(self, *, client: "Client | None" = None, on_commit: OnCommitOption = ...) -> "GroupHandle":
        """Enqueue the members, some hundreds a round trip, through the default client or this one; the group can end
        once all are there. Takes and raises what `Client.enqueue` does."""
        return blocking(client).enqueue(self, on_commit=on_commit)

    async def aenqueue(
        self, *, client: "AsyncClient | None" = None, on_commit: OnCommitOption = ...
    ) -> "AsyncGroupHandle":
        """As `enqueue`, in an event loop: see `AsyncClient.enqueue`."""
        return await awaited(client).enqueue(self, on_commit=on_commit)


def chain(*calls: Call[Any]) -> Chain:
    """Calls one after the other: each is enqueued in the step that ends the one before as done.

    Raises TypeError for what is no call, and ValueError for none at all, or for one that follows and is to be unique.
    """
    for at, call in enumerate(calls):
        _check_link(call, f"calls[{at}]")
    if not calls:
        raise ValueError("a chain has at least one call: write rota.chain(resize.call(7), tell.call(7))")
    for at, call in enumerate(calls[1:], 1):
        check_not_unique(call, f"calls[{at}]")
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


def members_of(members: Iterable[Call[Any] | Chain]) -> tuple[Call[Any] | Chain, ...]:
    """What a group was given, all of it. Raises TypeError for what is no member, or is no more than one."""
    if not isinstance(members, Iterable):
        raise TypeError(f"a group takes many calls, as [resize.call(7), resize.call(8)], got {members!r}")
    found = tuple(members)
    for at, member in enumerate(found):
        check_member(member, f"members[{at}]")
    return found


def calls_of(member: Call[Any] | Chain) -> Sequence[Call[Any]]:
    """A call and what follows it."""
    return member.calls if isinstance(member, Chain) else (member,)


def blocking(client: "Client | None") -> "Client":
    """This client or the default one. Raises TypeError for one that is awaited."""
    client = default_client() if client is None else client
    if client.is_async:
        raise TypeError("this client is an AsyncClient: write `await ... .aenqueue(client=...)`")
    return client


def awaited(client: "AsyncClient | None") -> "AsyncClient":
    """This client or the default one of the loop. Raises TypeError for one that blocks."""
    client = default_async_client() if client is None else client
    if not client.is_async:
        raise TypeError("this client is no AsyncClient: write `... .enqueue(client=...)`")
    return client


# What is said of mistakes


def check_member(member: Any, where: str) -> None:
    """Raises TypeError for what can be no member of a group."""
    if isinstance(member, Group):
        raise TypeError(f"{where}: a group is no member of another: enqueue it in `then`, by a task of yours")
    if not isinstance(member, Chain):
        _check_call(member, where)


def check_group(then: Any, on_dead: Any, group_id: Any) -> None:
    """Raises for what cannot be enqueued at the end of a group, and for an id that is none: see `group`."""
    for word, last in (("then", then), ("on_dead", on_dead)):
        if last is None:
            continue
        check_member(last, word)
        for call in calls_of(last):
            check_not_unique(call, word)
    if group_id is not None:
        require_name("id", group_id)


def check_not_unique(call: Call[Any], where: str) -> None:
    """Raises ValueError for a call that holds a unique key, of its own accord or by its declaration."""
    task = default_registry.get(call.name) if isinstance(call.name, str) else None
    if call.unique:
        raise ValueError(f"{where}: unique cannot be asked of what follows: {_NOT_UNIQUE}")
    if call.unique is None and task is not None and task.options.unique:
        raise ValueError(
            f"{where}: {call.name} is declared unique, which what follows cannot be: {_NOT_UNIQUE}. Write "
            f"{call.name}.using(unique=False).call(...)"
        )


def _check_link(call: Any, where: str) -> None:
    if isinstance(call, Chain):
        raise TypeError(f"{where}: a chain stands in no chain: write rota.chain(*first.calls, ...)")
    if isinstance(call, Group):
        raise TypeError(f"{where}: a group stands in no chain: write rota.group([...], then=rota.chain(...))")
    if isinstance(call, list | tuple):
        raise TypeError(f"{where}: rota.chain takes calls one by one: write rota.chain(*calls)")
    _check_call(call, where)


def _check_call(call: Any, where: str) -> None:
    if not isinstance(call, Call):
        raise TypeError(f"{where}: {why_no_call(call)}")
