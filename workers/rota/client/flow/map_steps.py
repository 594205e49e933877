"""Items from an iterator into a group, as room comes: what `rota.map` sends and waits for, without I/O."""

import sys
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from dataclasses import dataclass
from inspect import isroutine
from itertools import islice
from typing import Any, Final, TypedDict

from rota.client.enqueue_options import ProgressOption, Tell
from rota.client.failures import Denied, Uncertain
from rota.client.flow.transfer import Checks, Filling, FlowTerms, group_ended
from rota.client.preparation import fresh_id
from rota.client.sender import Sending
from rota.client.waits import GroupQuestion
from rota.errors import RotaError, ServerFull, Unavailable
from rota.foreign_names import FOREIGN_NAMES, fault_in_option
from rota.protocol.groups import Room
from rota.protocol.new_tasks import NewMember
from rota.protocol.store import BATCH
from rota.tasks.call import Call, why_no_call
from rota.tasks.call_flows import CallChain, check_group

MapSteps = Generator[Sending[NewMember] | GroupQuestion, Room | None, None]
"""What is to be sent, or waited for, whose answer it is sent; it is thrown what sending raises."""
_TRIES: Final = 5  # at a server that answers between them


class MapOptions(TypedDict, total=False):
    """How items are enqueued: `chunk` of them at once (1 to 500), at most `max_waiting` that have not ended.

    `id`, `then` and `on_dead` as of `rota.group`; `progress` as of `enqueue_many`.
    """

    chunk: int
    max_waiting: int
    id: str | None
    then: Call[Any] | CallChain | None
    on_dead: Call[Any] | CallChain | None
    progress: ProgressOption


@dataclass(frozen=True, slots=True)
class MapPlan:
    """`MapOptions` with their defaults, checked. Raises TypeError, ValueError or InvalidName."""

    chunk: int = 100
    max_waiting: int = 1000
    id: str | None = None
    then: Call[Any] | CallChain | None = None
    on_dead: Call[Any] | CallChain | None = None
    progress: ProgressOption = None

    def __post_init__(self) -> None:
        for name, most in (("chunk", BATCH), ("max_waiting", sys.maxsize)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be a whole number, got {value!r}")
            if not 1 <= value <= most:
                raise ValueError(f"{name} must be {f'from 1 to {most}' if most == BATCH else '1 or more'}, got {value}")
        if self.max_waiting < self.chunk:
            raise ValueError(f"max_waiting ({self.max_waiting}) must be at least a chunk ({self.chunk})")
        check_group(self.then, self.on_dead, self.id)


def plan_of(options: MapOptions) -> MapPlan:
    """What `map` was given besides its items. Raises as MapPlan, and TypeError for an option that there is not."""
    if unknown := sorted(set(options) - set(MapOptions.__annotations__)):
        raise TypeError(fault_in_option(unknown[0], "rota.map", FOREIGN_NAMES["map"], MapOptions.__annotations__))
    return MapPlan(**options)


class Items:
    """The items of an iterable, each as the call that `call` makes of it; `position` is the number of the next one."""

    def __init__(self, call: Callable[[Any], Call[Any]], iterable: Iterable[Any], checks: Checks) -> None:
        self._call = call
        self._items = iter(iterable)
        self._checks = checks
        self.position = 0

    def skip_to(self, position: int) -> None:
        """Pass over those that the server has."""
        for _ in islice(self._items, max(0, position - self.position)):
            self.position += 1

    def take(self, count: int) -> list[NewMember]:
        """The next ones, checked; none when there are no more. Raises as `prepare`, with the number of the item."""
        members = []
        for item in islice(self._items, count):
            try:
                members.append(self._checks.member(self._call(item)))
            except (RotaError, TypeError, ValueError) as error:
                error.args = (f"items[{self.position + len(members)}]: {error}",)
                raise
        self.position += len(members)
        return members


def caller_of(task: Any) -> Callable[[Any], Call[Any]]:
    """What makes a call of an item. Raises TypeError for what is no task."""
    call = getattr(task, "call", None)
    if not callable(call):
        why = why_no_call(task) if isroutine(task) else f"it takes a declared task, and makes the calls, got {task!r}"
        raise TypeError(f"rota.map: {why}; or one with options, as in rota.map(resize.using(queue='bulk'), items)")
    made: Callable[[Any], Call[Any]] = call
    return made


def count_of(iterable: Iterable[Any]) -> int | None:
    """How many items there are, None for an iterator, which does not say. Raises TypeError for what gives no items."""
    if not isinstance(iterable, Iterable):
        raise TypeError(f"rota.map takes a task and its items, as rota.map(resize, image_ids), got {iterable!r}")
    return len(iterable) if isinstance(iterable, Sized) else None


def filling_of(terms: FlowTerms, plan: MapPlan) -> Filling:
    """The group that is to be filled, open or not."""
    return Filling(terms, plan.id or fresh_id(), terms.checks.opening(plan.then, plan.on_dead))


def filled(filling: Filling, items: Items, plan: MapPlan, tell: Tell) -> MapSteps:
    """Open the group, add items as room comes, from where it was left, and close it. Raises GroupEnded when it takes no
    more, and there are more."""
    yield from _sent(filling, filling.open)
    items.skip_to(filling.cursor)
    if filling.has_ended and items.take(1):
        raise group_ended(filling.group_id, f"{filling.cursor:,} items were accepted, and there are more")
    if filling.has_ended:
        return
    tell(filling.cursor)
    room = 0
    while members := items.take(plan.chunk):
        while members:
            if room < len(members):
                room = plan.max_waiting - (yield from _awaited(filling, plan.max_waiting - len(members)))
            room -= len(members)
            members = yield from _added(filling, items, members)
        tell(filling.cursor)
    yield from _sent(filling, lambda: filling.send((), are_last=True))


def _sent(filling: Filling, sending: Callable[[], Sending[NewMember]]) -> Generator[Any, Any, None]:
    """Send; what failed is sent again when the server answers: the cursor says what counted."""
    for left in reversed(range(_TRIES)):
        asked = sending()
        try:
            yield asked
        except (Unavailable, Uncertain) as error:
            if not left or isinstance(error, Denied | ServerFull):
                raise
            yield GroupQuestion(filling.group_id, sys.maxsize)
        else:
            return


def _awaited(filling: Filling, most_left: int) -> Generator[GroupQuestion, Room | None, int]:
    """Wait until no more members have not ended; returns how many that are."""
    found = yield GroupQuestion(filling.group_id, most_left)
    if found is None or found.left is None:
        raise group_ended(filling.group_id, f"{filling.cursor:,} items were accepted")
    return found.left


def _added(
    filling: Filling, items: Items, members: Sequence[NewMember]
) -> Generator[Sending[NewMember], Any, list[NewMember]]:
    """Send members; returns those that were not accepted, as somebody else has moved the cursor."""
    begin = filling.cursor
    yield from _sent(filling, lambda: filling.send(_left(filling, members, begin), are_last=False))
    if filling.has_ended:
        raise group_ended(filling.group_id, f"{filling.cursor:,} items were accepted")
    items.skip_to(filling.cursor)
    return _left(filling, members, begin)


def _left(filling: Filling, members: Sequence[NewMember], begin: int) -> list[NewMember]:
    """Which of these, whose first is the item `begin`, stand behind the cursor. Raises Uncertain when those before are
    gone: a server that took over did not have them."""
    if filling.cursor < begin:
        raise Uncertain(f"the server has lost items {filling.cursor:,} to {begin - 1:,} of group {filling.group_id}")
    return list(members[filling.cursor - begin :])
