"""What the control socket can ask of the master."""

from collections.abc import Awaitable
from typing import Protocol


class ControlPort(Protocol):
    """The master as its control socket sees it. All calls are made in the master's loop and return at once."""

    def status(self) -> dict[str, object]:
        """The fleet as it stands, ready to be written as JSON."""

    def request_reload(self) -> Awaitable[dict[str, object]]:
        """Read the configuration again and apply what changed; resolves to what became of it: `result` is
        success or failure, `changes` says what, `faults` why not. Need not be awaited."""

    def request_stop(self, *, now: bool) -> None:
        """Drain and leave, or, `now`, kill everything at once and leave. May be repeated."""
