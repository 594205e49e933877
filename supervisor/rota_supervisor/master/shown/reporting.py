"""What signal USR1 has written to the log: how the fleet is, and where every child's threads are.

Beside the loop: children get a moment to answer in, and the lines are spread, as a pipe takes 64 KB at a time.
"""

import asyncio
from collections.abc import Callable
from operator import attrgetter
from typing import Final

from rota.telemetry import events, log
from rota_supervisor.control.port import Answer
from rota_supervisor.master.children.child import Child, State
from rota_supervisor.master.children.stacks import Stacks
from rota_supervisor.master.deaths.stack_text import shortened
from rota_supervisor.master.records import Records, now_seconds

ANSWER_SECONDS: Final = 0.2  # an answer takes 1 ms, more where hundreds answer at once
_STACK_CHARACTERS: Final = 3000  # of the 4,096 bytes of a line
_LINE_SECONDS: Final = 0.002
_DYING_SECONDS: Final = 1.0
_ALIVE: Final = frozenset({State.BOOTING, State.READY, State.DRAINING})


class Report:
    """Writes one report at a time; `status` is what the control socket shows."""

    def __init__(self, records: Records, stacks: Stacks, status: Callable[[], Answer]) -> None:
        self._records = records
        self._stacks = stacks
        self._status = status
        self._is_writing = False

    def begin(self) -> None:
        """Write one, unless one is being written."""
        if not self._is_writing:
            self._is_writing = True
            self._records.background.start(self._write())

    async def _write(self) -> None:
        try:
            shown = {key: value for key, value in self._status().items() if key not in ("children", "pid")}
            log.logger().info(events.FLEET_STATUS, **shown)
            await self._write_stacks()
        finally:
            self._is_writing = False

    async def _write_stacks(self) -> None:
        children = sorted((child for child in self._records.fleet if child.state in _ALIVE), key=attrgetter("slot"))
        asked = {child.nonce for child in children if not _is_dying(child) and self._stacks.ask(child)}
        await asyncio.sleep(ANSWER_SECONDS if asked else 0)
        for child in children:
            _write_stack(child, self._stack_of(child) if child.nonce in asked else _why_not(child))
            await asyncio.sleep(_LINE_SECONDS)

    def _stack_of(self, child: Child) -> str:
        if _is_dying(child):
            return "it is being killed: see the event of its death"
        return shortened(self._stacks.text(child), _STACK_CHARACTERS) or "it did not answer"


def _is_dying(child: Child) -> bool:
    """Whether it was asked for its stack because it is about to be killed; its death wants to tell that one."""
    return now_seconds() - child.dumped_at < _DYING_SECONDS


def _why_not(child: Child) -> str:
    return "it is stopped" if child.stopped_at is not None else "it cannot be asked, as while it starts"


def _write_stack(child: Child, stack: str) -> None:
    log.logger().info(
        events.WORKER_STACK,
        child=child.role.value,
        pool=child.pool,
        slot=child.slot,
        child_pid=child.pid,
        state=child.state.value,
        stack=stack,
    )
