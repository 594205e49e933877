"""What the task that runs in a slot says of its progress: one record, written by any thread of the task, and by
processes that it forks.

A record is its checksum, the length of its text, the number of the task that it is of, and the text. It is written by
one assignment, which copies its bytes; that may be under way while another process reads. So a reader looks again until
the checksum agrees. A lock would not do: a fork that another thread makes meanwhile would keep it locked in the copy.
"""

from typing import Final
from zlib import crc32

from rota.child.roster import RosterPart
from rota.child.slot_layout import HEADER, PROGRESS_BYTES, REGION, TASK, WORD, task_at
from rota.protocol.progress import LONGEST

_AT: Final = REGION.progress * WORD
_LENGTH_AT, _NUMBER_AT, _TEXT_AT = 4, 8, 16
_LOOKS: Final = 16  # as for a task
_NUMBER_MASK: Final = (1 << 64) - 1


class ProgressPart(RosterPart):
    """A slot's record of progress. Nothing of it is touched for a task that reports none."""

    def report_progress(self, entry: bytes, text: bytes) -> None:
        """Publish how far the task of this entry is. Nothing is written when another one runs, or none: then whoever
        says so was left behind by an earlier task."""
        number = self._number_of(entry)
        if number and len(text) <= LONGEST:
            body = b"%b%b%b" % (_word(len(text), 4), _word(number & _NUMBER_MASK, 8), text)
            record = _word(crc32(body), 4) + body
            self._bytes[_AT : _AT + len(record)] = record

    def progress_of(self, entry: bytes) -> bytes:
        """How far the task of this entry says it is; b"" when it says nothing, or does not run."""
        if not (self.has_progress and self.is_intact):
            return b""
        number = self._number_of(entry)
        for _ in range(_LOOKS):
            record = bytes(self._bytes[_AT : _AT + PROGRESS_BYTES])
            body = record[_LENGTH_AT : _TEXT_AT + min(_number(record[_LENGTH_AT:_NUMBER_AT]), LONGEST)]
            if crc32(body) == _number(record[:_LENGTH_AT]):
                is_its_own = number and _number(record[_NUMBER_AT:_TEXT_AT]) == number & _NUMBER_MASK
                return body[_TEXT_AT - _LENGTH_AT :] if is_its_own else b""
        return b""

    @property
    def has_progress(self) -> bool:
        """Whether a task of this life reported any; a look at one word."""
        return self._words[REGION.progress] != 0

    def _forget_progress(self) -> None:
        self._words[REGION.progress] = 0

    def _number_of(self, entry: bytes) -> int:
        """The number of the task that runs, if its entry is this one; else 0."""
        number = self._words[HEADER.task_number]
        at = (task_at(number) + TASK.entry + 1) * WORD
        return number if number % 2 and self._bytes[at : at + len(entry)] == entry else 0


def _word(number: int, size: int) -> bytes:
    return number.to_bytes(size, "little")


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "little")
