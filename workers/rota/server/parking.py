"""How long a command is parked in the server, at a doorbell, and what it means when its answer does not come."""

from typing import Final

from rota.server.server_errors import REASON_SILENT, ConnectionLost

PARK_SECONDS: Final = 5  # whole: the same for every doorbell, so that a dead connection is found as soon
GRACE_SECONDS: Final = 3.0  # the server's own timers run up to 0.1 s late; the rest is for a busy one


def unanswered(seconds: float) -> ConnectionLost:
    """The error to raise when a command parked for so many seconds was not answered GRACE_SECONDS later."""
    return ConnectionLost(f"a wait of {seconds:g} s had no end", REASON_SILENT)
