"""The check of an export file, before anything is imported from it."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

from rota.protocol.keys import PROTOCOL_VERSION
from rota.protocol.transfers import ImportedItem, ImportedKey
from rota_supervisor.backup.records import FORMAT, End, Header, Parsed, RecordError, parse_line

MOST_FAULTS: Final = 20
_REPORT_EVERY: Final = 1000


class FileFault(Exception):
    """Raised if a file cannot be imported. `faults` contains the reasons, with line numbers."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class CheckedFile(NamedTuple):
    """A file that is complete and contains only valid lines."""

    header: Header
    end: End


@dataclass(slots=True)
class _Reading:
    """The state of an unfinished check: the first and the last record, once they have been read, and the number of
    lines so far."""

    header: Header | None = None
    end: End | None = None
    lines: int = 0


def check_file(lines: Iterable[bytes], report: Callable[[int], object]) -> CheckedFile:
    """Check every line of a file, and the totals and the digest in its last line. `report` is called with the number of
    bytes read so far. Raises FileFault with up to MOST_FAULTS reasons."""
    reading = _Reading()
    faults: list[str] = []
    counts = Counter[type]()
    digest, digest_before_end = hashlib.sha256(), ""
    size = 0
    for number, line in enumerate(lines, 1):
        try:
            counts[type(_take(reading, line))] += 1
        except RecordError as error:
            faults.append(f"line {number}: {error}")
            if len(faults) == MOST_FAULTS or number == 1:
                break
        if reading.end is not None and not digest_before_end:
            digest_before_end = digest.hexdigest()
        digest.update(line)
        size += len(line)
        reading.lines = number
        if number % _REPORT_EVERY == 0:
            report(size)
    faults += [] if faults else _faults_of_whole(reading, counts, digest_before_end)
    if faults or reading.header is None or reading.end is None:
        raise FileFault(faults)
    return CheckedFile(reading.header, reading.end)


def _take(reading: _Reading, line: bytes) -> Parsed:
    """Parse the next line of the file. Raises RecordError if the line is not valid, or not allowed at this position.
    For example, a second header is not allowed."""
    parsed = parse_line(line)
    if reading.end is not None:
        raise RecordError("the line comes after the last record")
    match parsed:
        case Header():
            if reading.lines:
                raise RecordError("only the first line may be a header")
            _check_versions(parsed)
            reading.header = parsed
        case End():
            reading.end = parsed
        case ImportedItem() | ImportedKey():
            pass
        case _:
            assert_never(parsed)
    if reading.header is None:
        raise RecordError("the file does not begin with the header of an export")
    return parsed


def _check_versions(header: Header) -> None:
    if header.format != FORMAT:
        raise RecordError(f"the file has format {header.format}, but this version of Rota reads {FORMAT}")
    if header.protocol != PROTOCOL_VERSION:
        raise RecordError(
            f"the file has protocol {header.protocol}, but this version of Rota uses {PROTOCOL_VERSION}: import it "
            f"with Rota {header.rota}, which wrote it"
        )


def _faults_of_whole(reading: _Reading, counts: Counter[type], sha256: str) -> list[str]:
    """Return the faults of the file as a whole, for example missing lines. This function must only be called if each
    line is valid."""
    if reading.header is None:
        return ["the file is empty"]
    end = reading.end
    if end is None:
        cause = "the export was interrupted, or a part is missing"
        return [f"the file ends at line {reading.lines} without its last record: {cause}"]
    found = reading.lines - 1, counts[ImportedItem], counts[ImportedKey], sha256
    expected = end.lines, end.tasks + end.items, end.keys, end.sha256
    if found != expected:
        names = ("lines", "tasks and items", "keys", "sha256")
        differences = [f"{name}: {a} of {b}" for name, a, b in zip(names, found, expected, strict=True) if a != b]
        return [f"the file does not match its last record: {', '.join(differences)}"]
    return []


class NumberedRecord(NamedTuple):
    """A record of a file, with its line number and its size in bytes."""

    number: int
    parsed: Parsed
    size: int


def records_after(lines: Iterable[bytes], before: int) -> Iterator[NumberedRecord]:
    """Yield the records of a checked file that come after the first `before` lines."""
    for number, line in enumerate(lines, 1):
        if number > before:
            yield NumberedRecord(number, parse_line(line), len(line))
