"""Where the parts of a slot are, and the one in which a worker leaves outcomes.

What its process has finished, and no turn's answer has confirmed yet, is settled from here when it dies.
"""

from typing import Final

from rota.child.slot_told import WORD, ToldSlot

REGION_BYTES: Final = 1 << 20
HEADER_WORDS: Final = 16
TASK_WORDS: Final = 80
OUTCOMES_AT: Final = (HEADER_WORDS + 2 * TASK_WORDS) * WORD
METRICS_AT: Final = 1 << 16
OUTCOMES_BYTES: Final = METRICS_AT - OUTCOMES_AT

# How many arguments the outcomes are and how many bytes, in one word of the header, so that a process killed between
# two writes never leaves a count with the length of another.
OUTCOMES_WORD: Final = 0
_COUNT_SHIFT: Final = 32
_LENGTH_MASK: Final = (1 << _COUNT_SHIFT) - 1


class OutcomesOfSlot(ToldSlot):
    """Outcomes finished and not yet known to be settled."""

    def add_outcomes(self, count: int, data: bytes) -> None:
        """Leave packed settlements, `count` arguments, for the master, behind those left before.

        What does not fit into OUTCOMES_BYTES is known to the process alone: killed before its turn is answered, those
        tasks run again.
        """
        left = self._words[OUTCOMES_WORD]
        length = left & _LENGTH_MASK
        end = length + len(data)
        if end <= OUTCOMES_BYTES:
            self._bytes[OUTCOMES_AT + length : OUTCOMES_AT + end] = data
            self._words[OUTCOMES_WORD] = left + (count << _COUNT_SHIFT) + len(data)

    def clear_outcomes(self) -> None:
        """Forget what was left: it is settled."""
        self._words[OUTCOMES_WORD] = 0

    @property
    def has_outcomes(self) -> bool:
        """Whether any are left here."""
        return self._words[OUTCOMES_WORD] != 0

    def outcomes(self) -> tuple[int, bytes]:
        """How many arguments were left, and their wire form. Right when the process is gone, or runs one and the same
        task meanwhile: it clears them between two tasks only."""
        left = self._words[OUTCOMES_WORD]
        if not self.is_intact:
            return 0, b""
        return left >> _COUNT_SHIFT, bytes(self.spare[: left & _LENGTH_MASK])

    @property
    def spare(self) -> memoryview:
        """Where a worker leaves its outcomes. Other roles have none; the master has its notice there."""
        return self._bytes[OUTCOMES_AT:METRICS_AT]
