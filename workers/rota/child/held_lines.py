"""Lines of the log that a worker has not written yet, as it writes those of several short tasks at once. They stand in
its slot too, so that the master writes what a worker that is killed leaves behind."""

from typing import Final

from rota.child.slot_layout import HEADER, HELD_LINES_AT, LOG_BYTES

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
