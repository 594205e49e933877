"""A text in shared memory that one process puts up and others read."""

from typing import Final

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
