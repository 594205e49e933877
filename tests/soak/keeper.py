"""The keeper of a node. It restarts a master that has ended, as an init system does, and reports each end that it did
not expect.
"""

import time
from typing import Final

from rota_supervisor.exits import ExitCode
from soak.node import Node

_PAUSE_SECONDS: Final = 0.3
_LEAVE_SECONDS: Final = 40.0  # much longer than the drain limit of 6 s
# Exit codes of a master that was never ready, because it could not reach the server or because faults disturbed its
# first start until it gave up.
_AT_START: Final = frozenset({ExitCode.UNREACHABLE, ExitCode.GAVE_UP})


class Keeper:
    """The keeper of one node. Its method `check` must be called repeatedly."""

    def __init__(self, node: Node, oddities: list[str]) -> None:
        self._node = node
        self._oddities = oddities
        self._again_at = 0.0
        self._stop_requested_at: float | None = None

    def check(self) -> None:
        """Restart the node's master shortly after it has ended, and record the end if it was unexpected."""
        node = self._node
        now = time.monotonic()
        code = node.ended_with()
        if code is None:
            self._watch_leaving(now)
        elif self._again_at:
            if now >= self._again_at and node.is_wanted:
                self._again_at = 0.0
                node.start()
        else:
            self._note_end(code)
            self._stop_requested_at = None
            node.is_leaving = False
            self._again_at = now + _PAUSE_SECONDS

    def _watch_leaving(self, now: float) -> None:
        if not self._node.is_leaving:
            return
        self._stop_requested_at = self._stop_requested_at or now
        if now - self._stop_requested_at > _LEAVE_SECONDS:
            self._oddities.append(f"node {self._node.name}: no end {_LEAVE_SECONDS:g} s after TERM")
            self._stop_requested_at = now

    def _note_end(self, code: int) -> None:
        node = self._node
        if not node.is_wanted or (node.is_leaving and code == ExitCode.CLEAN):
            return
        if not node.has_been_ready() and (
            code in _AT_START or (code == ExitCode.CONFIG and node.may_have_read_bad_file)
        ):
            return
        self._oddities.append(f"node {node.name}: its master {node.pid} ended with exit code {code}")
