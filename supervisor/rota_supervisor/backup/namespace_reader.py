"""The reader that provides the contents of an export. It reads a namespace in batches, even while a fleet runs.

Tasks move during an export, so one pass over lists and sets may miss some of them. A scan of all bodies finds these
tasks, because it returns every task that is live from the start of the scan to its end. Further passes over the lists
and sets then search for the entries of these tasks. If these passes do not find the entry of a task because it moves
too often, the task is exported with its body and a new entry in the ready lane of its queue, as `rota audit --heal`
would restore it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from rota.protocol.body import BodyError, decode_body
from rota.protocol.entry import parse_entry
from rota.protocol.keys import COPIED, Keys, family_of, fault_in_queue_name, pattern_of_all, prefix_of
from rota.protocol.store import BATCH
from rota.protocol.transfers import ListedEntry, LocatedTask, Transfers
from rota.protocol.wire import Arg, command, pack, text_of
from rota.server.connection import Connection
from rota.server.server_errors import Refused
from rota_supervisor.backup.records import (
    MOST_VALUES,
    SETS,
    Record,
    entry_record,
    item_record,
    key_record,
    ticket_record,
)
from rota_supervisor.backup.seen_ids import SeenIds

_FIRST_BATCH: Final = 32
_SMALL_BYTES: Final = 1 << 18
_LARGE_BYTES: Final = 1 << 20
_MORE_PASSES: Final = 3
_SCAN_COUNT: Final = 500
_END: Final = b"0"
_UNKNOWN_QUEUE: Final = "unknown"
_COUNT: Final = re.compile(rb"\d{1,16}")
_GONE: Final = "none"
_META: Final = "meta"
_SCANS: Final = {"hash": "HSCAN", "set": "SSCAN", "zset": "ZSCAN"}
_APART: Final = frozenset({"totals", "ends", "ends:", "ends-sealed", "ends-untold"})
_REMEMBERED_IN_META: Final = (b"ended", b"ended_keep")

Take = Callable[[bytes], bool]
"""Whether the task with this id still has to be exported."""


class BatchSize:
    """The number of tasks to read at once. It is BATCH if bodies are small, and lower if they are large."""

    def __init__(self) -> None:
        self.count = _FIRST_BATCH

    def learn(self, size: int) -> None:
        """Adapt the number of tasks to the size of the last batch, in bytes."""
        if size < _SMALL_BYTES:
            self.count = min(BATCH, 2 * self.count)
        elif size > _LARGE_BYTES:
            self.count = max(1, self.count // 2)


class NamespaceReader:
    """A reader of one namespace. Call `tasks` first, and then `copied_keys`. After both, `left_out` contains the keys
    that have a wrong type."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self._connection = connection
        self._keys = Keys(namespace)
        self._prefix = prefix_of(self._keys)
        self._transfers = Transfers(namespace)
        self._batch_size = BatchSize()
        self.left_out: list[str] = []
        self.size = int(connection.execute("HLEN", self._keys.tasks))
        self._seen = SeenIds(self.size)

    # Tasks

    def tasks(self) -> Iterator[Record]:
        """Yield one record for each live task, and one for each item that is not a task but was found where tasks are
        stored, for example a tombstone in a lane."""
        yield from self._pass(self._seen.add, with_items=True)
        suspects = self._unseen()
        for _ in range(_MORE_PASSES):
            if suspects:
                yield from self._pass(lambda task_id: _taken(suspects, task_id), with_items=False)
        for ids in _parts(list(suspects), self._batch_size):
            yield from self._unplaced(ids)

    def _pass(self, take: Take, *, with_items: bool) -> Iterator[Record]:
        for name in self._lists():
            for entry in self._entries(name):
                if entry.task is not None and take(entry.text.partition(b" ")[0]):
                    yield entry_record(name, entry.text, entry.task)
                elif entry.task is None and with_items and self._is_new_item(entry.text):
                    yield item_record(name, entry.text)
        for key in SETS:
            for member, found in self._members(key):
                if found.task is not None and take(member):
                    yield ticket_record(key, found.score, member, found.ticket, found.task)
                elif found.task is None and with_items:
                    yield item_record(key, member, found.score)

    def _lists(self) -> list[str]:
        """Return the keys of all lanes and in-flight lists, without the namespace's prefix."""
        found = set[str]()
        for kind in ("queue", "inflight"):
            for page in self._scan("SCAN", None, "MATCH", f"{self._prefix}{kind}:*", "TYPE", "list"):
                found.update(text_of(key).removeprefix(self._prefix) for key in page)
        return sorted(found)

    def _entries(self, name: str) -> Iterator[ListedEntry]:
        """Yield the entries of a list from its tail to its head."""
        read = 0
        while (batch := self._connection.run(self._transfers.list_entries(name, read, self._batch_size.count))).read:
            read += batch.read
            self._batch_size.learn(sum(len(entry.task.body) for entry in batch.entries if entry.task is not None))
            yield from batch.entries

    def _members(self, key: str) -> Iterator[tuple[bytes, LocatedTask]]:
        """Yield the ids in the sorted set `delayed` or `dead`, each with the data of its task. An id that has left the
        set before its task is read is skipped."""
        for page in self._scan("ZSCAN", key):
            for member, found in self._located(page[::2]):
                if found.key == key:
                    yield member, found

    def _located(self, ids: Sequence[bytes]) -> Iterator[tuple[bytes, LocatedTask]]:
        for part in _parts(ids, self._batch_size):
            found = self._connection.run(self._transfers.locate(part))
            self._batch_size.learn(sum(len(each.task.body) for each in found if each.task is not None))
            yield from zip(part, found, strict=True)

    def _is_new_item(self, text: bytes) -> bool:
        """Whether to export a text from a list that is not the entry of a live task. If it is a tombstone, it is
        exported only once. Any other text is exported as often as the list contains it."""
        try:
            parse_entry(text)
        except ValueError:
            return True
        return self._seen.add(text)

    def _unseen(self) -> set[bytes]:
        """Return the ids of live tasks that have not been exported yet. A task that is live from the start of the scan
        to its end is never missed."""
        unseen = set[bytes]()
        for page in self.pages_of_ids():
            unseen.update(task_id for task_id in page if task_id not in self._seen)
        return unseen

    def pages_of_ids(self) -> Iterator[list[bytes]]:
        """Yield the ids of all live tasks in pages. A scan may return an id twice."""
        try:
            yield from self._scan("HSCAN", "tasks", "NOVALUES")
        except Refused:  # Redis before 7.4 and Valkey before 8 do not support NOVALUES.
            yield from (page[::2] for page in self._scan("HSCAN", "tasks"))

    def _unplaced(self, ids: Sequence[bytes]) -> Iterator[Record]:
        now_us = server_time_us(self._connection)
        for task_id, found in self._located(ids):
            if found.task is None:
                continue
            self._seen.add(task_id)
            if found.key:
                yield ticket_record(found.key, found.score, task_id, found.ticket, found.task)
            else:
                queue = _queue_of(found.task.body)
                entry = _new_entry(task_id, queue, now_us, found)
                yield entry_record(self._keys.ready_lane(queue).removeprefix(self._prefix), entry, found.task)

    # Keys that are copied without changes

    def copied_keys(self) -> Iterator[Record]:
        """Yield the records of all keys that are exported unchanged, for example the rates and the paused queues. The
        counters of the namespace are omitted, because `totals` reads them."""
        for page in self._scan("SCAN", None, "MATCH", pattern_of_all(self._keys)):
            names = [text_of(key).removeprefix(self._prefix) for key in page]
            copied = [name for name in names if family_of(name) in COPIED and family_of(name) not in _APART]
            kinds = list(map(text_of, self._pipelined("TYPE", copied)))
            usable = [name for name, kind in zip(copied, kinds, strict=True) if kind == COPIED[family_of(name)]]
            self.left_out += [
                name for name, kind in zip(copied, kinds, strict=True) if kind not in (_GONE, COPIED[family_of(name)])
            ]
            expiries = dict(zip(usable, self._pipelined("PEXPIRETIME", usable), strict=True))
            for name, values in self._contents(usable):
                if values:
                    yield key_record(name, values, expiries[name] if expiries[name] >= 0 else None)
        yield from self._ends()

    def _contents(self, names: Sequence[str]) -> Iterator[tuple[str, list[bytes]]]:
        """Yield each key with its values, in parts. If a key has been deleted meanwhile, it has no values."""
        strings = [name for name in names if COPIED[family_of(name)] == "string"]
        for name, value in zip(strings, self._pipelined("GET", strings), strict=True):
            yield name, [] if value is None else [value]
        for name in names:
            if scan := _SCANS.get(COPIED[family_of(name)]):
                for page in self._scan(scan, name):
                    yield from ((name, part) for part in _slices(_of_export(page) if name == _META else page))

    def totals(self) -> dict[str, int]:
        """Return the counters of the namespace. Counters whose value is not a number are omitted."""
        flat = self._connection.execute("HGETALL", self._keys.totals)
        pairs = zip(map(text_of, flat[::2]), flat[1::2], strict=True)
        return {field: int(count) for field, count in pairs if _COUNT.fullmatch(count)}

    def activity(self) -> list[Any]:
        """Return counters, at least one of which changes whenever a task is enqueued, claimed or moved, or ends. If two
        calls return the same values, no task has changed in between."""
        return self._pipelined("HGETALL", ["totals", "counts"])

    def has_owners(self) -> bool:
        """Whether any worker or consumer is registered."""
        return bool(self._connection.execute("ZCARD", self._keys.owners))

    def _ends(self) -> Iterator[Record]:
        """Yield records of the keys that remember how tasks ended.

        The server appends each end to a text. A text that has become long gets a number and a key of its own, and its
        number is added to a list. If the server deletes such a text during the export, its number is omitted from the
        exported list.
        """
        numbers = self._connection.execute("LRANGE", self._keys.ends_sealed, 0, -1)
        kept = []
        for number in numbers:
            text = self._connection.execute("GET", self._keys.sealed_ends(text_of(number)))
            if text is not None:
                kept.append(number)
                yield key_record(f"ends:{text_of(number)}", [text])
        for part in _slices(kept):
            yield key_record("ends-sealed", part)
        for name in ("ends", "ends-untold"):
            text = self._connection.execute("GET", self._prefix + name)
            if text:
                yield key_record(name, [text])

    # Commands

    def _scan(self, name: str, key: str | None, *options: Arg) -> Iterator[list[bytes]]:
        where = () if key is None else (self._prefix + key,)
        cursor = _END
        while True:
            cursor, page = self._connection.execute(name, *where, cursor, *options, "COUNT", _SCAN_COUNT)
            yield page
            if cursor == _END:
                return

    def _pipelined(self, name: str, keys: Sequence[str]) -> list[Any]:
        """Run a command such as HGETALL on each of these keys in one round trip, and return the replies. The keys are
        passed without the namespace's prefix."""
        self._connection.send(b"".join(command((pack((name, self._prefix + key)),)) for key in keys))
        return [self._connection.receive() for _ in keys]


def server_time_us(connection: Connection) -> int:
    """Return the time of the server in microseconds."""
    seconds, microseconds = connection.execute("TIME")
    return int(seconds) * 1_000_000 + int(microseconds)


def _taken(suspects: set[bytes], task_id: bytes) -> bool:
    """Whether the id was in `suspects`, the ids of tasks that have not been exported yet. The id is removed from
    them."""
    was_suspect = task_id in suspects
    suspects.discard(task_id)
    return was_suspect


def _parts(ids: Sequence[bytes], size: BatchSize) -> Iterator[Sequence[bytes]]:
    at = 0
    while at < len(ids):
        count = size.count
        yield ids[at : at + count]
        at += count


def _slices(values: Sequence[bytes]) -> Iterator[list[bytes]]:
    yield from (list(values[at : at + MOST_VALUES]) for at in range(0, len(values), MOST_VALUES))


def _of_export(page: Sequence[bytes]) -> list[bytes]:
    """Return the fields of the hash `meta` that are exported, with their values. The protocol version is omitted,
    because the header contains it."""
    pairs = zip(page[::2], page[1::2], strict=True)
    return [part for field, value in pairs if field in _REMEMBERED_IN_META for part in (field, value)]


def _queue_of(body: bytes) -> str:
    try:
        queue = decode_body(body).queue
    except BodyError:
        return _UNKNOWN_QUEUE
    return queue if queue is not None and fault_in_queue_name(queue) is None else _UNKNOWN_QUEUE


def _new_entry(task_id: bytes, queue: str, now_us: int, found: LocatedTask) -> bytes:
    """Return a new entry for a task whose entry was not found in any list. It is the same as the entry that `rota audit
    --heal` would create. The counters of the old entry are lost."""
    assert found.task is not None
    incarnation = found.former.partition(b" ")[0]
    flag = b"u" * bool(found.task.unique) + incarnation + b"X" * bool(found.task.attempts)
    return b"%b %b i %d %d 0 0 0 0 %b" % (task_id, queue.encode(), now_us, now_us, flag or b"-")
