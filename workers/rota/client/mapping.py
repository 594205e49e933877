"""`rota.map`: items from an iterator into a group, as room comes. What is sent and waited for, without I/O."""

import operator
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from rota.client.call import Call, why_no_call
from rota.client.flow_sending import Checks, Filling, group_ended
from rota.client.open_waits import GroupQuestion
from rota.client.sender import Sending
from rota.client.telling import Tell
from rota.errors import RotaError, Uncertain
from rota.protocol.groups import NewMember, Room
from rota.protocol.store import BATCH

DEFAULT_CHUNK: Final = 100
DEFAULT_MAX_WAITING: Final = 1000

MapSteps = Generator[Sending[NewMember] | GroupQuestion, Room | None, None]
"""What is to be sent, or waited for, whose answer it is sent."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """`chunk`: how many items are sent at once, at most BATCH. `max_waiting`: how many may be there that have not ended."""

    chunk: int = DEFAULT_CHUNK
    max_waiting: int = DEFAULT_MAX_WAITING

    def __post_init__(self) -> None:
        """Raises TypeError or ValueError."""
        for name, most in (("chunk", BATCH), ("max_waiting", None)):
            value = operator.index(getattr(self, name))
            if value < 1 or (most is not None and value > most):
                raise ValueError(f"{name} must be {f'from 1 to {most}' if most else '1 or more'}, got {value}")
        if self.max_waiting < self.chunk:
            raise ValueError(f"max_waiting ({self.max_waiting}) must be as many as a chunk ({self.chunk}) or more")


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
    if isinstance(task, str) or not callable(call):
        name = f"rota.map({task!r}, ...): it takes a declared task" if isinstance(task, str) else why_no_call(task)
        raise TypeError(f"{name}; or one with options, as in rota.map(resize.using(queue='bulk'), items)")
    made: Callable[[Any], Call[Any]] = call
    return made


def count_of(iterable: Iterable[Any]) -> int | None:
    """How many items there are, None for an iterator, which does not say. Raises TypeError for what gives no items."""
    if not isinstance(iterable, Iterable):
        raise TypeError(f"rota.map takes a task and its items, as rota.map(resize, image_ids), got {iterable!r}")
    return len(iterable) if hasattr(iterable, "__len__") else None


def filled(filling: Filling, items: Items, bounds: Bounds, tell: Tell) -> MapSteps:
    """Open the group, add items as room comes, from where it was left, and close it. Raises GroupEnded when it was
    cancelled meanwhile."""
    yield filling.open()
    if filling.has_ended:
        return
    items.skip_to(filling.cursor)
    tell(filling.cursor)
    room = 0
    while members := items.take(bounds.chunk):
        while members:
            if room < len(members):
                room = bounds.max_waiting - (yield from _awaited(filling, bounds.max_waiting - len(members)))
            room -= len(members)
            members = yield from _added(filling, items, members)
        tell(filling.cursor)
    yield filling.send((), are_last=True)


def _awaited(filling: Filling, most_left: int) -> Generator[GroupQuestion, Room | None, int]:
    """Wait until no more members have not ended; returns how many that are."""
    found = yield GroupQuestion(filling.group_id, most_left)
    if found is None or found.left is None:
        raise group_ended(filling.group_id, f"{filling.cursor:,} items were accepted")
    return found.left


def _added(filling: Filling, items: Items, members: Sequence[NewMember]) -> Generator[Sending[NewMember], Any, list[NewMember]]:
    """Send members; returns those that were not accepted, as somebody else has moved the cursor."""
    begin = filling.cursor
    yield filling.send(members, are_last=False)
    if filling.has_ended:
        raise group_ended(filling.group_id, f"{filling.cursor:,} items were accepted")
    if filling.cursor < begin:
        raise Uncertain(f"the server has lost items {filling.cursor:,} to {begin - 1:,} of group {filling.group_id}")
    items.skip_to(filling.cursor)
    return list(members[filling.cursor - begin :])
