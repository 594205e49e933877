"""The import of a checked file into a namespace."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple, assert_never

from rota.protocol.keys import pattern_of_all
from rota.protocol.outcome import LOST, FailureRecord
from rota.protocol.store import BATCH, Blame, Store
from rota.protocol.transfers import UNFINISHED, ImportedItem, ImportedKey, ImportStatus, Transfers
from rota.protocol.wire import text_of
from rota.server.connection import Connection
from rota_supervisor.backup.file_check import NumberedRecord
from rota_supervisor.backup.records import MOST_VALUES, End

_MOST_BYTES: Final = 1 << 20
HEADER_LINES: Final = 1
_LOSS: Final = "the task was in flight when it was exported, and its worker does not belong to this fleet"
_LAST_MEMBERS: Final = "0"
_START: Final = b"0"
_SCAN_COUNT: Final = 1000


class ImportRefused(Exception):
    """Raised if the file cannot be imported into the namespace. The message states the reason and what to do."""


class ImportBatch(NamedTuple):
    """Consecutive lines of a file that one call to the server imports. The lines are either all tasks and other items,
    or all keys."""

    before: int  # the number of lines before the batch
    after: int
    numbers: Sequence[int]  # the line number of each record in the batch
    items: Sequence[ImportedItem]
    keys: Sequence[ImportedKey]


@dataclass(slots=True)
class _Filling:
    """The batch to which records are being added until it is full."""

    before: int
    numbers: list[int] = field(default_factory=list)
    items: list[ImportedItem] = field(default_factory=list)
    keys: list[ImportedKey] = field(default_factory=list)
    bytes: int = 0
    values: int = 0

    def has_room(self, parsed: ImportedItem | ImportedKey, size: int) -> bool:
        """Whether the batch has room for another record of this size."""
        if not self.numbers:
            return True
        if isinstance(parsed, ImportedItem):
            is_full = bool(self.keys) or len(self.items) >= BATCH
        else:
            is_full = bool(self.items) or self.values + len(parsed.values) > MOST_VALUES
        return not is_full and self.bytes + size <= _MOST_BYTES

    def add(self, number: int, parsed: ImportedItem | ImportedKey, size: int) -> None:
        """Add a record to the batch."""
        self.numbers.append(number)
        self.bytes += size
        if isinstance(parsed, ImportedItem):
            self.items.append(parsed)
        else:
            self.keys.append(parsed)
            self.values += len(parsed.values)

    def closed(self, after: int) -> ImportBatch:
        """Return the finished batch. `after`: the number of lines of the file up to and including the last line of the
        batch."""
        return ImportBatch(self.before, after, self.numbers, self.items, self.keys)


def batches_of(records: Iterable[NumberedRecord], before: int) -> Iterator[ImportBatch]:
    """Yield the records of a checked file in batches. The first `before` lines are skipped, because they have already
    been imported. The first batch of a file includes the header."""
    filling = _Filling(before)
    last = max(before, HEADER_LINES)
    for number, parsed, size in records:
        if number <= last or not isinstance(parsed, ImportedItem | ImportedKey):
            continue
        if not filling.has_room(parsed, size):
            yield filling.closed(last)
            filling = _Filling(last)
        filling.add(number, parsed, size)
        last = number
    if last > filling.before:
        yield filling.closed(last)


class Importer:
    """The import of one file into one namespace. Its methods raise ServerError and ImportRefused."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self._connection = connection
        self._namespace = namespace
        self._store = Store(namespace)
        self._transfers = Transfers(namespace)

    def begin(self, sha256: str) -> int:
        """Lock fleets out of the namespace, and return how many lines of the file an earlier, interrupted import has
        already imported. If `sha256` is "", only prepare the namespace, as `rota import --prepare` does."""
        protocol = self._connection.execute("HGET", self._store.keys.meta, "protocol")
        if text_of(protocol) != UNFINISHED:
            self._check_empty()
        begun = self._connection.run(self._transfers.begin_import(sha256))
        match begun.status:
            case ImportStatus.OK:
                return begun.lines
            case ImportStatus.USED:
                raise self._not_empty()
            case ImportStatus.OTHER:
                raise ImportRefused(
                    f"the import of another file into the namespace {self._namespace!r} is unfinished ({begun.lines} "
                    "lines are imported): continue it with that file, or delete all keys of the namespace"
                )
            case _:
                assert_never(begun.status)

    def _check_empty(self) -> None:
        cursor = _START
        while True:
            pattern = pattern_of_all(self._store.keys)
            cursor, page = self._connection.execute("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
            if page:
                raise self._not_empty()
            if cursor == _START:
                return

    def _not_empty(self) -> ImportRefused:
        return ImportRefused(
            f"the namespace {self._namespace!r} is not empty: import into another one, or delete all of its keys. To "
            "let producers enqueue before the import, run `rota import --prepare` while it is empty"
        )

    def write(self, sha256: str, batches: Iterable[ImportBatch], report: Callable[[int], object]) -> list[int]:
        """Import these batches. Return the line numbers of the tasks that were omitted because the namespace already
        has tasks with the same ids."""
        left_out: list[int] = []
        for batch in batches:
            lines, positions = self._write(sha256, batch)
            if lines != batch.after:
                raise ImportRefused(
                    "another process is importing into this namespace, or its keys were deleted: run the command again "
                    "when that process has ended"
                )
            left_out += [batch.numbers[position] for position in positions]
            report(batch.after)
        return left_out

    def _write(self, sha256: str, batch: ImportBatch) -> tuple[int, Sequence[int]]:
        if batch.items:
            call = self._transfers.import_tasks(sha256, batch.before, batch.after, batch.items)
            return self._connection.run(call)
        return self._connection.run(self._transfers.import_keys(sha256, batch.before, batch.after, batch.keys)), ()

    def finish(self, end: End, blame: Blame) -> int:
        """End the import, and return how many tasks were in flight during the export.

        These tasks are given back to their queues. Members of groups that ended while the export ran are recorded as
        ended. The counters are checked, and then fleets may use the namespace again.
        """
        returned = sum(self._reap(owner, blame) for owner in self._owners())
        cursor = ""
        while cursor != _LAST_MEMBERS:
            cursor, _ = self._connection.run(self._store.heal_members(cursor))
        missing = self._connection.run(self._store.audit()).missing
        if missing:
            raise ImportRefused(
                f"the counters are off by {missing} after the import: delete all keys of the namespace, and import "
                "again"
            )
        if not self._connection.run(self._transfers.end_import(end.sha256, end.lines)):
            raise ImportRefused("another process has ended this import, or the keys of the namespace were deleted")
        return returned

    def _owners(self) -> list[str]:
        return list(map(text_of, self._connection.execute("ZRANGE", self._store.keys.owners, 0, -1)))

    def _reap(self, owner: str, blame: Blame) -> int:
        """Reap an owner of the exported fleet, as if its node had been lost: the tasks that it held are given back or
        become dead. Return their number."""
        reaped = self._connection.run(self._store.reap_expired(owner, blame))
        return len(reaped.requeued) + len(reaped.dead)


def blame_of_import(crash_limit: int, loss_limit: int) -> Blame:
    """Return the attempt record to store for the tasks that were in flight during the export, and their limits on
    crashes and losses. The record states that the worker of such a task belonged to another fleet."""
    record = FailureRecord(LOST, _LOSS).to_json(datetime.now(UTC))
    return Blame(loss_record=record, crash_limit=crash_limit, loss_limit=loss_limit)
