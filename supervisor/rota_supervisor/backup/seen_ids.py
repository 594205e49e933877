"""A set of ids that needs only 16 to 32 bytes per id, regardless of how long the ids are."""

from array import array
from typing import Final

_FEWEST: Final = 1024
_EMPTY: Final = 0
_BITS: Final = (1 << 64) - 1


class SeenIds:
    """A set of ids, stored as 64-bit hashes in a table with open addressing. With a million ids, the probability that a
    new id is mistaken for one in the set is below one in ten million. The hashes differ from process to process.
    """

    def __init__(self, expected: int) -> None:
        self._count = 0
        self._slots = _empty(max(_FEWEST, 2 * expected))

    def __len__(self) -> int:
        return self._count

    def add(self, member: bytes) -> bool:
        """Add an id. Return False if the set already contains this id."""
        at, is_new = self._find(_hash_of(member))
        if is_new:
            self._slots[at] = _hash_of(member)
            self._count += 1
            if 2 * self._count > len(self._slots):
                self._grow()
        return is_new

    def __contains__(self, member: bytes) -> bool:
        return not self._find(_hash_of(member))[1]

    def _find(self, number: int) -> tuple[int, bool]:
        """Return the position at which a hash is stored in the table and False, or the empty position at which to store
        it and True."""
        slots = self._slots
        mask = len(slots) - 1
        at = number & mask
        while slots[at] not in (_EMPTY, number):
            at = (at + 1) & mask
        return at, slots[at] == _EMPTY

    def _grow(self) -> None:
        numbers = self._slots
        self._slots = _empty(2 * len(numbers))
        for number in filter(None, numbers):
            self._slots[self._find(number)[0]] = number


def _hash_of(member: bytes) -> int:
    return hash(member) & _BITS or 1


def _empty(least: int) -> "array[int]":
    return array("Q", bytes(8 << (least - 1).bit_length()))
