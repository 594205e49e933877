"""Back-off: how long to wait before something is tried again, twice as long after each failure in a row."""

import random
from collections.abc import Callable
from typing import Final

_MOST_DOUBLINGS: Final = 64  # beyond, a wait is as long as it may be, and floats would overflow


def doubled(first_seconds: float, most_seconds: float, doublings: int) -> float:
    """The first wait doubled so many times, as far as `most_seconds`."""
    return min(first_seconds * 2.0 ** min(doublings, _MOST_DOUBLINGS), most_seconds)


class Backoff:
    """Delays for connections, each drawn from the upper half of a wait that doubles, so that a fleet that lost its
    server together does not come back together."""

    def __init__(
        self, first_seconds: float, most_seconds: float, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._first = first_seconds
        self._most = most_seconds
        self._uniform = uniform
        self._failures = 0

    def next_seconds(self) -> float:
        """The delay before the next try, after one more failure."""
        whole = doubled(self._first, self._most, self._failures)
        self._failures += 1
        return self._uniform(whole / 2, whole)

    def reset(self) -> None:
        """After a success: begin again at the shortest."""
        self._failures = 0
