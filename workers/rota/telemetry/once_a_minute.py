"""What is said at most once a minute: an outage is one event, not one for each of our rounds that met it."""

import time
from collections.abc import Callable
from typing import Final

REPEAT_SECONDS: Final = 60.0


class OnceAMinute:
    """Says whether something is to be told, by the words that name it. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: set[tuple[str, ...]] = set()
        self._since = clock()

    def is_due(self, *what: str) -> bool:
        """Whether it was not told within the last minute; it counts as told then."""
        if self._clock() - self._since > REPEAT_SECONDS:
            self._told.clear()
            self._since = self._clock()
        is_new = what not in self._told
        self._told.add(what)
        return is_new
