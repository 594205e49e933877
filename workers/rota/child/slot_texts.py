"""Texts in shared memory: one that a process puts up for others, and lines of the log that are not written yet.

A worker holds the lines of several short tasks to write them at once. They stand in its slot too, so that the master
writes what a killed worker leaves behind.
"""

from typing import Final

from rota.child.slot_layout import HEADER, HELD_LINES_AT, LOG_BYTES

_WORD: Final = 8


class Board:
    """Two copies of the text, and a number that selects one of them, written last.

    A process that reads during a write finds the earlier text, and reads again if another write came meanwhile.
    """

    def __init__(self, area: memoryview) -> None:
        self._bytes = area
        self._words = area.cast("q")
        self._copy_bytes = (len(area) - _WORD) // 2 // _WORD * _WORD

    @property
    def room(self) -> int:
        """The largest text, in bytes."""
        return self._copy_bytes - _WORD

    def put_up(self, raw: bytes) -> None:
        """Replace the text. Raises ValueError if it does not fit."""
        if len(raw) > self.room:
            raise ValueError(f"{len(raw)} bytes do not fit on a board of {self.room}")
        number = self._words[0] + 1
        at = self._place_of(number)
        self._bytes[at + _WORD : at + _WORD + len(raw)] = raw
        self._words[at // _WORD] = len(raw)
        self._words[0] = number

    def read(self) -> bytes:
        """Return the current text, b"" if there is none."""
        while True:
            number = self._words[0]
            if number == 0:
                return b""
            at = self._place_of(number)
            raw = bytes(self._bytes[at + _WORD : at + _WORD + self._words[at // _WORD]])
            if self._words[0] == number:
                return raw

    def _place_of(self, number: int) -> int:
        return _WORD + (number & 1) * self._copy_bytes


_SIZE: Final = HEADER.held_lines


class HeldLines:
    """Up to LOG_BYTES of lines. A worker never reads them from the slot, where a task may have written over them."""

    __slots__ = ("_bytes", "_lines", "_size", "_words")

    def __init__(self, region: memoryview, words: memoryview) -> None:
        self._bytes = region
        self._words = words
        self._lines: list[bytes] = []
        self._size = 0

    def __len__(self) -> int:
        """How many lines are held."""
        return len(self._lines)

    def add(self, line: bytes) -> bool:
        """Hold a line; returns whether it fits."""
        begin = self._size
        end = begin + len(line)
        if end > LOG_BYTES:
            return False
        self._bytes[HELD_LINES_AT + begin : HELD_LINES_AT + end] = line
        self._lines.append(line)
        self._size = self._words[_SIZE] = end
        return True

    def text(self) -> bytes:
        """Return all of them."""
        return b"".join(self._lines)

    def clear(self) -> None:
        """They are written. Whoever is killed just before this has them written twice, and never not at all."""
        self._lines.clear()
        self._size = self._words[_SIZE] = 0

    def left_behind(self) -> bytes:
        """Return the lines that a process has left that is gone, whole ones only: master's side."""
        text = bytes(self._bytes[HELD_LINES_AT : HELD_LINES_AT + max(0, min(self._words[_SIZE], LOG_BYTES))])
        return text[: text.rfind(b"\n") + 1]
