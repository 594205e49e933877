"""The comparison of a server with newer files. If the server was restored from an old snapshot, the comparison shows
the tasks that the server lacks, and the tasks that have ended since the snapshot. A file can be an export, the output
of `rota --json events`, or the JSON log of a fleet. The newest line about a task determines its fate.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO, Final, NamedTuple

from rota.durations import MICROSECONDS
from rota.protocol.keys import Keys
from rota.protocol.store import BATCH
from rota.protocol.task_states import ENDS_OF_GONE, EventName
from rota.protocol.transfers import ImportedItem
from rota.protocol.wire import command, pack, text_of
from rota.server.connection import Connection
from rota.telemetry import log_events
from rota_supervisor.backup.file_check import FileFault, check_file, records_after
from rota_supervisor.backup.namespace_reader import NamespaceReader
from rota_supervisor.backup.records import Header, RecordError, parse_line

LIVE: Final = "live"
ENDED: Final = "ended"  # the task is missing from the export, so it has ended, but the outcome is not known
_EVENTS: Final = {event.value: event.value if event in ENDS_OF_GONE else LIVE for event in EventName}
_OF_LOG: Final = {
    log_events.TASK_DONE: "done",
    log_events.TASK_CANCELLED: "cancelled",
    log_events.TASK_EXPIRED: "expired",
    log_events.TASK_RETRIED: LIVE,
    log_events.TASK_DEAD: LIVE,
    log_events.TASK_RELEASED: LIVE,
    log_events.TASK_RECOVERED: LIVE,
}
"""The state of a task after each event: LIVE, or how the task has ended. Dead tasks are live."""
_MEANINGS: Final = _EVENTS | _OF_LOG


class KnownFate(NamedTuple):
    """The fate of a task according to the newest line about it in any file."""

    at: float  # the time of the line, in Unix seconds
    how: str  # LIVE, or how the task has ended


class EndedTask(NamedTuple):
    """A task that has ended according to the files, but is live on the server, because the server was restored from an
    old snapshot."""

    id: str
    how: str  # one of ENDS_OF_GONE, or ENDED
    at: float | None  # the time at which the task ended, in Unix seconds, or None if it is not known


@dataclass(slots=True)
class Evidence:
    """The evidence from all files that were read: the newest known fate of each task, and the times of the files."""

    fates: dict[str, KnownFate] = field(default_factory=dict)
    oldest_export: float | None = None  # the time at which the oldest export began, in Unix seconds
    newest: float = 0.0  # the time of the newest line in all files, in Unix seconds

    def note(self, task_id: str, fate: KnownFate) -> None:
        """Record the fate that a line reports for a task, unless a newer line about the task has already been read."""
        known = self.fates.get(task_id)
        if known is None or known.at <= fate.at:
            self.fates[task_id] = fate
        self.newest = max(self.newest, fate.at)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between the tasks on the server and the tasks in the export and event files."""

    missing: list[str]  # the ids of tasks that have not ended, but do not exist on the server
    ended: list[EndedTask]


class StaleFile(Exception):
    """Raised if the files are older than the state of the server, so that a comparison would be meaningless."""


def read_file(file: BinaryIO, evidence: Evidence) -> None:
    """Add the fates of the tasks in a file to the evidence. Raises FileFault if no line is about a task, or if the file
    is an incomplete export."""
    is_export = _is_header(file.readline())
    file.seek(0)
    if is_export:
        _read_export(file, evidence)
    elif not _read_events(file, evidence):
        raise FileFault(
            ["the file is not an export, and none of its lines is a task event or a JSON log line of a task"]
        )


def _is_header(line: bytes) -> bool:
    try:
        return isinstance(parse_line(line), Header)
    except RecordError:
        return False


def _read_export(file: BinaryIO, evidence: Evidence) -> None:
    header, _ = check_file(file, lambda _: None)
    file.seek(0)
    at = header.at_us / MICROSECONDS
    evidence.oldest_export = at if evidence.oldest_export is None else min(at, evidence.oldest_export)
    evidence.newest = max(evidence.newest, at)
    fate = KnownFate(at, LIVE)
    for record in records_after(file, 0):
        if isinstance(record.parsed, ImportedItem) and record.parsed.id:
            evidence.note(str(record.parsed.id), fate)


def _read_events(lines: Iterable[bytes], evidence: Evidence) -> int:
    """Record the fate of each task that a line is about, and return the number of such lines."""
    count = 0
    for line in lines:
        try:
            fields = json.loads(line)
            how = _MEANINGS[fields["event"]]
            at = datetime.fromisoformat(fields.get("at") or fields["timestamp"]).timestamp()
            evidence.note(fields["task_id"], KnownFate(at, how))
        except (ValueError, LookupError, TypeError, AttributeError):
            continue  # A log also contains lines that are not about a task.
        count += 1
    return count


def compare(connection: Connection, namespace: str, evidence: Evidence) -> Comparison:
    """Compare the live tasks of a server, and the ended tasks that it remembers, with the evidence from files. Raises
    StaleFile and ServerError."""
    keys = Keys(namespace)
    _check_age(connection, keys, evidence)
    remembered = _remembered(connection, keys)
    alive = [task_id for task_id, fate in evidence.fates.items() if fate.how == LIVE]
    unknown = _absent(connection, keys, alive)
    missing = [task_id for task_id in unknown if task_id.encode() not in remembered]
    over = [task_id for task_id, fate in evidence.fates.items() if fate.how != LIVE]
    ended = [_ended(task_id, evidence.fates[task_id]) for task_id in _waiting(connection, keys, over)]
    if evidence.oldest_export is not None:
        others = _live_ids(connection, namespace, evidence.fates)
        ended += [EndedTask(task_id, ENDED, None) for task_id in _waiting(connection, keys, others)]
    return Comparison(missing, ended)


def _ended(task_id: str, fate: KnownFate) -> EndedTask:
    return EndedTask(task_id, fate.how, fate.at)


def _absent(connection: Connection, keys: Keys, ids: Sequence[str]) -> list[str]:
    """Return those of the ids that belong to no live task on the server."""
    return [task_id for task_id, is_there in _looked_up(connection, "HEXISTS", keys.tasks, ids) if not is_there]


def _waiting(connection: Connection, keys: Keys, ids: Sequence[str]) -> list[str]:
    """Return the ids of those tasks that the server still has and has not cancelled. A cancelled task may stay in the
    hash of tasks for a while, with an empty body."""
    return [task_id for task_id, size in _looked_up(connection, "HSTRLEN", keys.tasks, ids) if size]


def _check_age(connection: Connection, keys: Keys, evidence: Evidence) -> None:
    """Raise StaleFile if a fleet used the namespace after the oldest export began, or after the newest line was
    written. The server stores the time of the last sweep, which shows when a fleet last used the namespace."""
    swept = connection.execute("HGET", keys.pulse, "at")
    swept_at = int(swept) / MICROSECONDS if swept and swept.isdigit() else 0.0
    oldest = evidence.newest if evidence.oldest_export is None else evidence.oldest_export
    if swept_at > oldest:
        shown = datetime.fromtimestamp(swept_at).astimezone().isoformat(timespec="seconds")
        raise StaleFile(
            f"a fleet has used the namespace until {shown}, which is later than the file: compare only with files "
            "that are newer than the snapshot, and before a fleet starts"
        )


def _live_ids(connection: Connection, namespace: str, known: Mapping[str, Any]) -> list[str]:
    """Return the ids of all live tasks on the server that are not in `known`."""
    pages = NamespaceReader(connection, namespace).pages_of_ids()
    return list(dict.fromkeys(task_id for page in pages for task_id in map(text_of, page) if task_id not in known))


def _remembered(connection: Connection, keys: Keys) -> set[bytes]:
    """Return the ids of all ended tasks that the server still remembers."""
    numbers = map(text_of, connection.execute("LRANGE", keys.ends_sealed, 0, -1))
    texts = [connection.execute("GET", key) or b"" for key in (*map(keys.sealed_ends, numbers), keys.ends)]
    lines = (line for text in texts for line in text.split(b"\n"))
    return {line.partition(b" ")[0] for line in lines if line[:1] not in (b"", b" ", b"!")}


def _looked_up(connection: Connection, name: str, key: str, ids: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Run a command such as HEXISTS on the hash `key` for each id, and yield each id with its reply."""
    for start in range(0, len(ids), BATCH):
        part = ids[start : start + BATCH]
        connection.send(b"".join(command((pack((name, key, task_id)),)) for task_id in part))
        yield from [(task_id, connection.receive()) for task_id in part]
