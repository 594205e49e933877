"""What a task in a slot says of its progress: one text, written by any thread of the task, and by processes that it
forks.

It stands with its checksum, its length, and the mark of the task that it is of: the life and the number, so that
nothing of an earlier task or life is taken for it. It is written by one assignment, which copies its bytes; that may be
under way while another process reads. So a reader looks again until the checksum agrees. A lock would not do: a fork
that another thread makes meanwhile would keep it locked in the copy.
"""

from typing import Final
from zlib import crc32

from rota.child.slot_layout import HEADER, PROGRESS_BYTES, RECORD, TASK, TASK_WORDS, WORD, mark_at, record_at
from rota.protocol.progress import LONGEST

_LENGTH_AT, _MARK_AT, _TEXT_AT = 4, 8, 16
_LOOKS: Final = 16  # as for a task
_LIFE_SHIFT: Final = 40  # a place of a life sees fewer tasks
_WORD_MASK: Final = (1 << 64) - 1


class ProgressPart:
    """A record's part for progress. Nothing of it is touched for a task that reports none."""

    __slots__ = ("_bytes", "_copies_at", "_number_at", "_progress_at", "_words", "place")

    def __init__(self, place: int, region: memoryview, words: memoryview) -> None:
        self.place = place
        self._bytes = region
        self._words = words
        self._number_at = mark_at(place)
        self._copies_at = record_at(place) + RECORD.copies
        self._progress_at = record_at(place) + RECORD.progress

    def report_progress(self, entry: bytes, text: bytes) -> None:
        """Publish how far the task of this entry is. Nothing is written when another one runs here, or none: then
        whoever says so was left behind by an earlier task."""
        mark = self._mark_of(entry)
        if mark and len(text) <= LONGEST:
            body = b"%b%b%b" % (_word(len(text), 4), _word(mark, 8), text)
            said = _word(crc32(body), 4) + body
            at = self._progress_at * WORD
            self._bytes[at : at + len(said)] = said

    def progress_of(self, entry: bytes) -> bytes:
        """How far the task of this entry says it is; b"" when it says nothing, or does not run here."""
        if not self.has_progress:
            return b""
        mark, at = self._mark_of(entry), self._progress_at * WORD
        for _ in range(_LOOKS):
            said = bytes(self._bytes[at : at + PROGRESS_BYTES])
            body = said[_LENGTH_AT : _TEXT_AT + min(_number(said[_LENGTH_AT:_MARK_AT]), LONGEST)]
            if crc32(body) == _number(said[:_LENGTH_AT]):
                is_its_own = mark and _number(said[_MARK_AT:_TEXT_AT]) == mark
                return body[_TEXT_AT - _LENGTH_AT :] if is_its_own else b""
        return b""

    @property
    def has_progress(self) -> bool:
        """Whether a task ever reported any here; a look at one word."""
        return self._words[self._progress_at] != 0

    def _mark_of(self, entry: bytes) -> int:
        """What tells the task that runs from all before it, if its entry is this one; else 0."""
        number = self._words[self._number_at]
        at = (self.copy_at(number) + TASK.entry + 1) * WORD
        is_it = number % 2 and self._bytes[at : at + len(entry)] == entry
        return (self._words[HEADER.seal] << _LIFE_SHIFT | number) & _WORD_MASK if is_it else 0

    def copy_at(self, number: int) -> int:
        """The word at which the copy stands that this number publishes."""
        return self._copies_at + ((number >> 1) & 1) * TASK_WORDS


def _word(number: int, size: int) -> bytes:
    return number.to_bytes(size, "little")


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "little")
