"""The fence: a worker whose master may have lost its lease starts nothing.

Both sides use CLOCK_BOOTTIME, which goes on while a machine sleeps. What counts is when the last successful
renewal was *sent*: the server cannot have received it earlier, so the lease cannot end earlier than we think.
"""

from typing import Final

from rota.child.slots import Slot

NANOSECONDS: Final = 1_000_000_000
_MARGIN_SHARE: Final = 0.1  # of the lease: time to get from the look at the clock into the task


class Fence:
    """Whether this life's lease may have run out."""

    def __init__(self, slot: Slot, lease_seconds: float) -> None:
        self._slot = slot
        self._allowed_ns = fence_ns(lease_seconds)

    def is_up(self, at_ns: int) -> bool:
        """Whether nothing may be started at this time (CLOCK_BOOTTIME)."""
        return at_ns - self._slot.renewed_ns > self._allowed_ns


def fence_ns(lease_seconds: float) -> int:
    """How long after a renewal was sent tasks may still be started, in nanoseconds."""
    return round(lease_seconds * (1 - _MARGIN_SHARE) * NANOSECONDS)
