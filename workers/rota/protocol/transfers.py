"""The scripts that export tasks from a namespace and import them into another one: see `rota.protocol.store`.

An export reads lists and sets in batches, and the fleet may run meanwhile. An import writes the lines of a file in
order. Each call writes one batch and records how many lines have been imported. A repeated call therefore changes
nothing, and an interrupted import resumes after the last line that the server has.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from rota.protocol.keys import PROTOCOL_VERSION
from rota.protocol.scripts import Raw, ScriptCall, Transitions, status_of
from rota.protocol.wire import Arg, pack, text_of

UNFINISHED: Final = "import"
"""The protocol version of a namespace whose import is unfinished."""
_ROW: Final = 5


class TaskData(NamedTuple):
    """The data of a task, except for the list or set that the task is in. Missing data is b""."""

    body: bytes  # empty if the task was cancelled
    attempts: bytes  # the records of the task's failed attempts
    unique: bytes  # the unique key that the task holds or once held
    follows: bytes  # the task's group and the other tasks of its chain


class ListedEntry(NamedTuple):
    """An entry of a lane or an in-flight list."""

    text: bytes
    task: TaskData | None  # None if the text is not the entry of a live task


class ListBatch(NamedTuple):
    """A batch of entries of a list, beginning at its tail."""

    read: int  # number of entries that were read; 0 if the head of the list had already been reached
    entries: list[ListedEntry]


class LocatedTask(NamedTuple):
    """A task, with its place if the task is in a sorted set."""

    key: str  # `delayed`, `dead`, or "" if the task is in neither
    score: bytes
    ticket: bytes
    former: bytes  # `incarnation tombstones` of the task's id, as Redis stores them
    task: TaskData | None  # None if no task with this id is live


class ImportedItem(NamedTuple):
    """A task, or an item that is not a task, in the form that `import_tasks` takes."""

    key: str  # a lane, an in-flight list, `delayed` or `dead`, without the prefix
    score: Arg
    text: Arg  # an entry, a ticket, or the bytes of an item that is not a task
    id: Arg  # "" for an item that is not a task
    body: Arg
    attempts: Arg
    unique: Arg
    follows: Arg


class ImportedKey(NamedTuple):
    """A key whose value is imported exactly as it was exported."""

    key: str  # the key, without the prefix of the namespace
    kind: str  # see import_keys.lua
    expires_ms: int | None  # when the key expires, in Unix milliseconds; None for never
    values: Sequence[Arg]


class ImportStatus(StrEnum):
    """Whether an import may begin."""

    OK = "ok"  # the import may begin; no fleet can start until it has ended
    USED = "used"  # a fleet has already used the namespace
    OTHER = "other"  # the import of another file has not ended


class ImportBegun(NamedTuple):
    """The state of an import."""

    status: ImportStatus
    lines: int  # number of lines that have been imported


class ImportedTasks(NamedTuple):
    """The result of importing a batch."""

    lines: int  # number of lines that have been imported; -1 if the namespace is not importing this file
    left_out: tuple[int, ...]  # positions in the batch, from 0, of tasks that were left out because their ids are taken


def _task_of(body: Raw, attempts: Raw, unique: Raw, follows: Raw) -> TaskData | None:
    return None if body is None else TaskData(body, attempts or b"", unique or b"", follows or b"")


def parse_listed(raw: Raw) -> ListBatch:
    """Parse the reply to `list_entries`: the number of entries read, and for each entry its text and the fields of
    TaskData (`body` is nil if there is no live task)."""
    count, *flat = raw
    rows = zip(*[iter(flat)] * _ROW, strict=True)
    return ListBatch(int(count), [ListedEntry(text, _task_of(*rest)) for text, *rest in rows])


def parse_located(raw: Raw) -> list[LocatedTask]:
    """Parse the reply to `locate`: for each id a list of the fields of LocatedTask and of TaskData (`body` is nil if
    there is no live task)."""
    return [
        LocatedTask(text_of(key), score or b"", ticket or b"", former or b"", _task_of(*rest))
        for key, score, ticket, former, *rest in raw
    ]


def parse_begun(raw: Raw) -> ImportBegun:
    """Parse the reply to `begin_import`: `[status, number of lines that have been imported]`."""
    status, lines = raw
    return ImportBegun(status_of(ImportStatus)(status), int(lines))


def parse_imported(raw: Raw) -> ImportedTasks:
    """Parse the reply to `import_tasks`: `[number of lines that have been imported, [position...]]`, with the positions
    (from 1) of the tasks that were left out."""
    lines, left_out = raw
    return ImportedTasks(int(lines), tuple(int(position) - 1 for position in left_out))


class Transfers(Transitions):
    """The transitions of one namespace that export and import tasks."""

    def list_entries(self, name: str, read: int, count: int) -> ScriptCall[ListBatch]:
        """Return the next entries of a list, after the `read` entries at its tail that earlier calls returned. Returns
        up to `count`, at most BATCH. `name` is the list's key without the prefix."""
        return self._call("export_list", pack((name, read, count)), parse_listed)

    def locate(self, ids: Sequence[bytes]) -> ScriptCall[list[LocatedTask]]:
        """For each of up to BATCH ids, return its place in the sorted sets `delayed` and `dead`, and the data of its
        task. An id may also be an item that is not a task, but that another program has pushed to `delayed`."""
        return self._call("export_tasks", pack(ids), parse_located)

    def begin_import(self, file: str) -> ScriptCall[ImportBegun]:
        """Close the namespace to fleets, and begin or resume the import of a file. `file` is the digest of the file, or
        "" to prepare the namespace for any file."""
        return self._call("begin_import", pack((file,)), parse_begun)

    def import_tasks(
        self, file: str, before: int, after: int, items: Iterable[ImportedItem]
    ) -> ScriptCall[ImportedTasks]:
        """Import up to BATCH items. They come from the lines of the file after the first `before` lines, up to line
        `after`."""
        args: list[Arg] = [file, before, after]
        for item in items:
            args += item
        return self._call("import_tasks", pack(args), parse_imported)

    def import_keys(self, file: str, before: int, after: int, keys: Iterable[ImportedKey]) -> ScriptCall[int]:
        """Import keys that have up to BATCH values in total. They come from the lines of the file after the first
        `before` lines, up to line `after`. Returns how many lines have been imported."""
        args: list[Arg] = [file, before, after]
        for key, kind, expires_ms, values in keys:
            args += (key, kind, "" if expires_ms is None else expires_ms, len(values), *values)
        return self._call("import_keys", pack(args), int)

    def end_import(self, file: str, lines: int) -> ScriptCall[bool]:
        """End an import, and open the namespace to fleets. Returns False if some lines of the file have not been
        imported."""
        return self._call("end_import", pack((file, lines, PROTOCOL_VERSION)), bool)
