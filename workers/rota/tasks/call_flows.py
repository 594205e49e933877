"""Work that follows other work: chains and groups of calls as values, checked where they are made."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rota.tasks.call import Call, why_no_call
from rota.tasks.options import require_name
from rota.tasks.registry import default_registry

_NOT_UNIQUE: Final = "when it is enqueued another one may hold its key, and nobody is there to be told"


@dataclass(frozen=True)
class CallChain:
    """Calls of which each is enqueued when the one before is done, in the step that ends it."""

    calls: tuple[Call[Any], ...]


@dataclass(frozen=True)
class CallGroup:
    """Calls and chains that run in any order, and what is enqueued once, in the step that ends the last of them."""

    members: tuple[Call[Any] | CallChain, ...]
    then: Call[Any] | CallChain | None = None
    on_dead: Call[Any] | CallChain | None = None
    id: str | None = None


def check_chain(calls: Sequence[Call[Any]]) -> None:
    """Check the calls of a chain.

    Raises TypeError for what is no call, and ValueError for none at all, or for one that follows and is to be unique.
    """
    for at, call in enumerate(calls):
        _check_link(call, f"calls[{at}]")
    if not calls:
        raise ValueError("a chain has at least one call: write rota.chain(resize.call(7), tell.call(7))")
    for at, call in enumerate(calls[1:], 1):
        check_not_unique(call, f"calls[{at}]")


def members_of(members: Iterable[Call[Any] | CallChain]) -> tuple[Call[Any] | CallChain, ...]:
    """What a group was given, all of it. Raises TypeError for what is no member, or is no more than one."""
    if not isinstance(members, Iterable):
        raise TypeError(f"a group takes many calls, as [resize.call(7), resize.call(8)], got {members!r}")
    found = tuple(members)
    for at, member in enumerate(found):
        check_member(member, f"members[{at}]")
    return found


def calls_of(member: Call[Any] | CallChain) -> Sequence[Call[Any]]:
    """A call and what follows it."""
    return member.calls if isinstance(member, CallChain) else (member,)


# What is said of mistakes


def check_member(member: Any, where: str) -> None:
    """Raises TypeError for what can be no member of a group."""
    if isinstance(member, CallGroup):
        raise TypeError(f"{where}: a group is no member of another: enqueue it in `then`, by a task of yours")
    if not isinstance(member, CallChain):
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
    if isinstance(call, CallChain):
        raise TypeError(f"{where}: a chain stands in no chain: write rota.chain(*first.calls, ...)")
    if isinstance(call, CallGroup):
        raise TypeError(f"{where}: a group stands in no chain: write rota.group([...], then=rota.chain(...))")
    if isinstance(call, list | tuple):
        raise TypeError(f"{where}: rota.chain takes calls one by one: write rota.chain(*calls)")
    _check_call(call, where)


def _check_call(call: Any, where: str) -> None:
    if not isinstance(call, Call):
        raise TypeError(f"{where}: {why_no_call(call)}")
