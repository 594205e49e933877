"""The export of a namespace to a file."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import BinaryIO, Final

from rota import __version__
from rota.durations import MICROSECONDS
from rota.protocol.keys import PROTOCOL_VERSION
from rota.protocol.task_states import ENDS_OF_GONE
from rota.server.connection import Connection
from rota_supervisor.backup.namespace_reader import NamespaceReader, server_time_us
from rota_supervisor.backup.records import (
    FORMAT,
    MOST_VALUES,
    End,
    Header,
    Record,
    end_record,
    header_record,
    key_record,
    to_line,
)

Report = Callable[[int, int], object]
"""A function that shows the progress. Its arguments are the number of records so far and the expected number."""

_ACCEPTED: Final = "accepted:"
# The counter for tasks that `balance` counts as accepted. It cannot clash with the counter of a queue, because "*" is a
# pattern and not a valid queue name.
_AGAIN: Final = "accepted:*"
_REPORT_EVERY: Final = 1000
_INFLIGHT: Final = "inflight:"


class LineFile:
    """An export file during the export. It counts the records by kind, and computes the digest of all lines."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.counts = Counter[str]()

    @property
    def lines(self) -> int:
        """The number of lines written so far."""
        return self.counts.total()

    @property
    def sha256(self) -> str:
        """The digest of all lines written so far."""
        return self._digest.hexdigest()

    def write(self, record: Record) -> None:
        """Write a record as one line. Raises OSError."""
        line = to_line(record)
        self._digest.update(line)
        self._file.write(line)
        self.counts[record["record"]] += 1


def export_namespace(
    connection: Connection, namespace: str, server: str, file: BinaryIO, report: Report
) -> tuple[End, list[str]]:
    """Export a namespace to a file. Return the last record, and the keys that were omitted because another program has
    overwritten them. Raises ServerError and OSError."""
    reader = NamespaceReader(connection, namespace)
    activity, had_owners = reader.activity(), reader.has_owners()
    out = LineFile(file)
    out.write(header_record(_header(connection, namespace, server, reader.size)))
    running = 0
    for record in _reported(reader.tasks(), reader.size, report):
        out.write(record)
        running += record["record"] == "task" and record["in"].startswith(_INFLIGHT)
    for record in reader.copied_keys():
        out.write(record)
    for record in _totals(reader.totals(), out.counts["task"]):
        out.write(record)
    is_quiet = not (had_owners or reader.has_owners()) and reader.activity() == activity
    end = End(
        lines=out.lines,
        tasks=out.counts["task"],
        items=out.counts["item"],
        keys=out.counts["key"],
        running=running,
        is_quiet=is_quiet,
        at=_shown_time(server_time_us(connection)),
        sha256=out.sha256,
    )
    out.write(end_record(end))
    file.flush()
    return end, reader.left_out


def _header(connection: Connection, namespace: str, server: str, tasks: int) -> Header:
    now_us = server_time_us(connection)
    return Header(FORMAT, PROTOCOL_VERSION, namespace, __version__, server, _shown_time(now_us), now_us, tasks)


def _shown_time(us: int) -> str:
    return datetime.fromtimestamp(us / MICROSECONDS, UTC).isoformat(timespec="milliseconds")


def _reported(records: Iterator[Record], total: int, report: Report) -> Iterator[Record]:
    for count, record in enumerate(records, 1):
        yield record
        if count % _REPORT_EVERY == 0:
            report(count, total)


def _totals(totals: Mapping[str, int], tasks: int) -> Iterator[Record]:
    balanced = balance(totals, tasks)
    flat = [part for field, count in balanced.items() for part in (field.encode(), b"%d" % count)]
    yield from (key_record("totals", flat[at : at + MOST_VALUES]) for at in range(0, len(flat), MOST_VALUES))


def balance(totals: Mapping[str, int], tasks: int) -> dict[str, int]:
    """Return the counters of a namespace, corrected so that the number of accepted tasks equals the number of ended
    tasks plus `tasks`, the number of live tasks in the export.

    The numbers may differ slightly, because a fleet may change them while tasks and counters are read at different
    times. If the counters show too many accepted tasks, the difference is added to the number of tasks that are done.
    If they show too few, it is added to a separate counter of accepted tasks.
    """
    accepted = sum(count for field, count in totals.items() if field.startswith(_ACCEPTED))
    ended = sum(totals.get(how, 0) for how in ENDS_OF_GONE)
    surplus = accepted - ended - tasks
    if surplus == 0:
        return dict(totals)
    field = "done" if surplus > 0 else _AGAIN
    return {**totals, field: totals.get(field, 0) + abs(surplus)}
