"""Scans of the whole namespace in several calls. Each call runs a script that works on at most 500 items.

`find_task` searches the records of any number of ended tasks for one id. `complete_overview` reads all queues.
`find_unplaced` finds live tasks that are in no lane, list or set and would therefore never run. Because tasks move
during a scan, a task that `find_unplaced` has not seen is only a suspect. So the function searches all lanes, lists and
sets a second time, and returns the suspects that this search does not find either.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from rota.protocol.scripts import Raw, ScriptCall, Steps, execute
from rota.protocol.store import BATCH, Store
from rota.protocol.views import Overview, TaskState

PENDING = "pending"
_UNKNOWN = "unknown"


def find_task(store: Store, task_id: str) -> Steps[TaskState]:
    """Return the status of an id. This searches the records of all ended tasks that the fleet remembers, a chunk at a
    time."""
    found = yield from execute(store.status(task_id))
    return (yield from complete_status(store, task_id, found))


def complete_status(store: Store, task_id: str, found: TaskState) -> Steps[TaskState]:
    """Return the status of an id, completed by further searches. `found` is the status after the first call. If that
    call did not read all records of ended tasks, this searches the rest. If the id is still not known, it may belong to
    a pending task, so this searches for the task or group that it follows."""
    further = found
    while further.ends_read:
        further = yield from execute(store.status(task_id, further.ends_read))
    if further.ended or found.state != _UNKNOWN:
        return further if further.ended else found
    if follows := (yield from _predecessor(store, task_id)):
        return replace(found, state=PENDING, follows=follows)
    # Query again, because the task may have been enqueued while the chains and groups were searched.
    return (yield from execute(_readable(store.status(task_id), found)))


def _readable(status: ScriptCall[TaskState], otherwise: TaskState) -> ScriptCall[TaskState]:
    """Return the call `status`, changed to return `otherwise` if the reply cannot be parsed. Such a reply means that
    another program has written to the keys in which the fleet remembers ended tasks."""

    def parse(raw: Raw) -> TaskState:
        try:
            return status.parse(raw)
        except ValueError:
            return otherwise

    return replace(status, parse=parse)


def _predecessor(store: Store, task_id: str) -> Steps[str]:
    """Return the task or group that a pending task follows, or "" if there is none."""
    found = yield from execute(store.pending(task_id, ""))
    while found.cursor:
        found = yield from execute(store.pending(task_id, found.cursor))
    return found.name


def _never() -> bool:
    return False


def complete_overview(store: Store, overview: Overview, is_enough: Callable[[], bool] = _never) -> Steps[Overview]:
    """Return an overview of all queues. `overview` is that of the first chunk, and this reads all later chunks. Once
    `is_enough` returns true, the scan stops early, and the overview's `more` is true."""
    rows = {row.queue: row for row in overview.queues}
    last = overview
    while last.more and not is_enough():
        last = yield from execute(store.overview((), last.cursor))
        rows.update((row.queue, row) for row in last.queues)
    return replace(overview, queues=tuple(rows.values()), cursor=last.cursor)


UnplacedScan = Generator[ScriptCall[Any], Any, list[bytes]]
"""A generator that yields calls, receives each reply through `send`, and finally returns ids."""

_BITS_A_MEMBER: Final = 64
_BITS_SET: Final = 3
_FEWEST_BITS: Final = 1024
_START: Final = "0"


class Seen(Protocol):
    """A collection of the ids that were seen in a lane, list or set."""

    def add(self, member: bytes, /) -> None: ...
    def __contains__(self, member: object, /) -> bool: ...


class BloomFilter:
    """A set that takes 8 to 16 bytes for each member and does not slow down as it grows: a Bloom filter (Bloom 1970).

    About one id in 10,000 is wrongly reported as a member. These ids differ from process to process, because Python's
    `hash` of bytes is randomised.
    """

    def __init__(self, members: int) -> None:
        bits = max(_FEWEST_BITS, 1 << (members * _BITS_A_MEMBER).bit_length())
        self._bits = bytearray(bits >> 3)
        self._mask = bits - 1

    def add(self, member: bytes, /) -> None:
        for bit in self._bits_of(member):
            self._bits[bit >> 3] |= 1 << (bit & 7)

    def __contains__(self, member: object, /) -> bool:
        return all(self._bits[bit >> 3] >> (bit & 7) & 1 for bit in self._bits_of(member))

    def _bits_of(self, member: object) -> list[int]:
        first = hash(member)
        step = first >> 32 | 1
        return [first + step * n & self._mask for n in range(_BITS_SET)]


def find_unplaced(store: Store, make_seen: Callable[[int], Seen], most: int | None = None) -> UnplacedScan:
    """Find live tasks that are in no lane, list or set. `make_seen` returns an empty collection that has room for about
    the given number of ids. The first search stops when it has found `most` suspects. The second search looks only for
    these."""
    census = yield store.lists()
    seen = make_seen(census.entries)
    yield from _read(store, census.names, seen.add)
    suspects = yield from _unseen(store, seen, most)
    if not suspects:
        return []
    census = yield store.lists()
    yield from _read(store, census.names, suspects.discard)
    return sorted((yield from _still_unplaced(store, suspects)))


def _read(store: Store, lists: Sequence[str], see: Callable[[bytes], None]) -> Generator[ScriptCall[Any], Any, None]:
    """Call `see` for each id in these lists."""
    at = 0
    read = 0
    while at < len(lists):
        listed = yield store.list_ids(lists[at : at + BATCH], read)
        at += listed.lists
        read = listed.read
        for task_id in listed.ids:
            see(task_id)


def _unseen(store: Store, seen: Seen, most: int | None) -> Generator[ScriptCall[Any], Any, set[bytes]]:
    """Return the suspects: the ids of stored tasks that are in none of the lists (not in `seen`), and that are not
    delayed, dead or in flight either. Stops when it has found `most` suspects."""
    unseen: set[bytes] = set()
    cursor = _START
    while True:
        bodies = yield store.bodies(cursor)
        unseen |= yield from _still_unplaced(store, {task_id for task_id in bodies.ids if task_id not in seen})
        cursor = bodies.cursor
        if cursor == _START or (most is not None and len(unseen) >= most):
            return unseen


def _still_unplaced(store: Store, suspects: set[bytes]) -> Generator[ScriptCall[Any], Any, set[bytes]]:
    """Return those suspects that a second check confirms: the task is still stored, and is neither delayed, dead nor in
    flight."""
    found: set[bytes] = set()
    ids = list(suspects)
    for start in range(0, len(ids), BATCH):
        found.update((yield store.unplaced(ids[start : start + BATCH])))
    return found
