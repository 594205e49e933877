"""Back-off with jitter, so that a fleet that lost its server together does not come back together."""

import random
from collections.abc import Callable


class Backoff:
    """Delays that double from `first_seconds` to `most_seconds`, each drawn from its upper half."""

    def __init__(
        self, first_seconds: float, most_seconds: float, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._first = first_seconds
        self._most = most_seconds
        self._uniform = uniform
        self._failures = 0

    def next_seconds(self) -> float:
        """The delay before the next try, after one more failure."""
        whole = min(self._most, self._first * 2.0 ** min(self._failures, 64))
        self._failures += 1
        return self._uniform(whole / 2, whole)

    def reset(self) -> None:
        """After a success: begin again at the shortest."""
        self._failures = 0
