"""The lines of an export. Each line is a JSON object that can be read independently of the others. `docs/backup.md`
describes the lines.

Texts are written exactly as the server stores them. Bytes that are not UTF-8 become lone surrogates, from `\\udc80` to
`\\udcff`, as with Python's `surrogateescape`. In this way, an import restores every text unchanged.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from rota.protocol.keys import COPIED, family_of
from rota.protocol.transfers import ImportedItem, ImportedKey, TaskData
from rota.protocol.wire import text_of

FORMAT: Final = 1
SETS: Final = ("delayed", "dead")
MOST_VALUES: Final = 500  # maximum per line, because keys may be large; a field of a hash counts as two
_LISTS: Final = ("queue:", "inflight:")
COUNTERS: Final = "counters"
_TOTALS: Final = "totals"
_UNIQUE: Final = "unique:"
_SCORE: Final = re.compile(r"-?(\d+(\.\d+)?(e[+-]?\d+)?|inf)", re.ASCII)
_COUNT: Final = re.compile(r"-?\d{1,18}", re.ASCII)

T = TypeVar("T")
Record = dict[str, Any]


class RecordError(ValueError):
    """Raised for a line that is not a valid record. The message states the reason."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of an export, which describes the export."""

    format: int
    protocol: int
    namespace: str
    rota: str  # the version of Rota that wrote the file
    server: str  # the product and release of the server
    at: str  # the time at which the export began, by the server's clock
    at_us: int  # the same time in microseconds of Unix time
    tasks: int  # the number of live tasks when the export began


@dataclass(frozen=True, slots=True)
class End:
    """The last line of an export, with totals against which the file is checked. If this line is missing, the file is
    not complete."""

    lines: int  # the number of lines before this line
    tasks: int  # the number of tasks among these lines
    items: int  # the number of records of other items in lists and sets
    keys: int  # the number of records of keys
    running: int  # the number of tasks that were in flight
    is_quiet: bool  # whether no worker or consumer was registered and no task changed while the export ran
    at: str  # the time at which the export ended, by the server's clock
    sha256: str  # the digest of all lines before this line


Parsed = Header | ImportedItem | ImportedKey | End


# Writing


def to_line(record: Record) -> bytes:
    """Return a record as a line of the file, which is JSON."""
    return _ENCODER.encode(record).encode("ascii") + b"\n"


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def header_record(header: Header) -> Record:
    """Return the record for the first line."""
    return {"record": "header", **asdict(header)}


def end_record(end: End) -> Record:
    """Return the record for the last line."""
    return {"record": "end", **asdict(end)}


def entry_record(key: str, entry: bytes, task: TaskData) -> Record:
    """Return the record of a task in a lane or an in-flight list."""
    text = text_of(entry)
    head: Record = {"record": "task", "in": key, "id": text.partition(" ")[0], "entry": text}
    return _with_data(head, task)


def ticket_record(key: str, score: bytes, task_id: bytes, ticket: bytes, task: TaskData) -> Record:
    """Return the record of a task in the sorted set `delayed` or `dead`. Its ticket is the text that the server stores
    for such a task in place of an entry."""
    head = {"record": "task", "in": key, "id": text_of(task_id), "score": text_of(score), "ticket": text_of(ticket)}
    return _with_data(head, task)


def item_record(key: str, text: bytes, score: bytes | None = None) -> Record:
    """Return the record of an item that is not a task."""
    record: Record = {"record": "item", "in": key, "text": text_of(text)}
    return record if score is None else {**record, "score": text_of(score)}


def key_record(key: str, values: Sequence[bytes], expires_ms: int | None = None) -> Record:
    """Return the record of a key that holds no tasks, or of a part of such a key if it is large. `values` are the
    members of a set, the items of a list, a single text, or the fields of a hash alternating with their values."""
    texts = list(map(text_of, values))
    record: Record = {"record": "key", "key": key}
    match COPIED[family_of(key)]:
        case "hash" | "zset":
            record["fields"] = dict(zip(texts[::2], texts[1::2], strict=True))
        case "string":
            record["value"] = texts[0]
        case _:
            record["values"] = texts
    return record if expires_ms is None else {**record, "expires_ms": expires_ms}


def _with_data(record: Record, task: TaskData) -> Record:
    record["body"] = text_of(task.body)
    if task.attempts:
        record["attempts"] = text_of(task.attempts)
    if task.unique:
        record["unique"] = text_of(task.unique)
    if task.follows:
        record["follows"] = text_of(task.follows)
    return record


# Reading


def parse_line(line: bytes) -> Parsed:
    """Parse a line. If it is not a valid record, raises RecordError with the reason."""
    if not line.endswith(b"\n"):
        raise RecordError("the line does not end with a newline")
    try:
        record = json.loads(line)
    except ValueError as error:
        raise RecordError(f"the line is not JSON: {error}") from None
    kind = record.get("record") if isinstance(record, dict) else None
    parse = _PARSERS.get(kind) if isinstance(kind, str) else None
    if parse is None:
        raise RecordError(f"the line is not a record of an export: expected one of {', '.join(_PARSERS)}")
    try:
        return parse(record)
    except (KeyError, TypeError, AttributeError):
        raise RecordError(f"the line does not have the fields of the record {kind!r}") from None


def _parse_header(record: Record) -> Header:
    return _dataclass_of(Header, record)


def _parse_end(record: Record) -> End:
    return _dataclass_of(End, record)


def _dataclass_of(kind: type[T], record: Record) -> T:
    fields = {name: value for name, value in record.items() if name != "record"}
    types = kind.__annotations__
    if any(type(value) is not types.get(name) for name, value in fields.items()):
        raise TypeError
    return kind(**fields)


def _parse_task(record: Record) -> ImportedItem:
    key = record["in"]
    is_scored = key in SETS
    text = record["ticket"] if is_scored else record["entry"]
    score = record["score"] if is_scored else ""
    more = record.get("attempts", ""), record.get("unique", ""), record.get("follows", "")
    return _checked(ImportedItem(key, score, text, record["id"], record["body"], *more))


def _parse_item(record: Record) -> ImportedItem:
    key = record["in"]
    score = record["score"] if key in SETS else ""
    return _checked(ImportedItem(key, score, record["text"], "", "", "", "", ""))


def _checked(item: ImportedItem) -> ImportedItem:
    if not all(type(value) is str for value in item):
        raise TypeError
    if not (item.key in SETS or item.key.startswith(_LISTS)):
        raise RecordError(f"{item.key!r} is not a key that holds tasks")
    if item.key in SETS and not _SCORE.fullmatch(str(item.score)):
        raise RecordError(f"the score {item.score!r} is not a number")
    return item


def _parse_key(record: Record) -> ImportedKey:
    key, expires_ms = record["key"], record.get("expires_ms")
    kind = COPIED.get(family_of(key))
    if kind is None:
        raise RecordError(f"{key!r} is not a key that an export contains")
    if not (expires_ms is None or type(expires_ms) is int):
        raise TypeError
    values = _values_in(record, kind)
    written_as = _written_as(key, kind)
    if kind == "zset" and not all(map(_SCORE.fullmatch, values[::2])):
        raise RecordError("a score is not a number")
    if written_as == COUNTERS and not all(map(_COUNT.fullmatch, values[1::2])):
        raise RecordError("a count is not a whole number")
    return ImportedKey(key, written_as, expires_ms, values)


def _written_as(key: str, kind: str) -> str:
    """Return the method by which the script `import_keys` writes a key. Producers may enqueue tasks while the import
    runs. The import therefore adds to the counters in `totals` instead of replacing them, and does not overwrite a
    unique key that is held."""
    if key == _TOTALS:
        return COUNTERS
    return "hold" if family_of(key) == _UNIQUE else kind


def _values_in(record: Record, kind: str) -> list[str]:
    if kind == "string":
        values = [record["value"]]
    elif kind in ("hash", "zset"):
        fields: Mapping[str, str] = record["fields"]
        values = [
            part for name, value in fields.items() for part in ((name, value) if kind == "hash" else (value, name))
        ]
    else:
        values = record["values"]
    if not values or len(values) > MOST_VALUES or not all(type(value) is str for value in values):
        raise TypeError
    return values


_PARSERS: Final[Mapping[str, Callable[[Record], Parsed]]] = {
    "header": _parse_header,
    "task": _parse_task,
    "item": _parse_item,
    "key": _parse_key,
    "end": _parse_end,
}
