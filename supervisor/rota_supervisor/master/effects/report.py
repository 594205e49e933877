"""What signal USR1 has written to the log: how the fleet is, and where every child's threads are.

Beside the loop: children get a moment to answer in, and the lines are spread, as a pipe takes 64 KB at a time.
"""

import asyncio
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from rota.child.slot_memory import SlotMemory
from rota.telemetry import events, log
from rota_supervisor.master.core.children import AT_WORK, Child, ChildState
from rota_supervisor.master.core.effects import WriteReport
from rota_supervisor.master.core.stack_text import shortened
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.status import status
from rota_supervisor.master.effects.background import Background
from rota_supervisor.master.effects.slots import glance_at, now_seconds
from rota_supervisor.master.effects.stacks import Stacks

ANSWER_SECONDS: Final = 0.2  # an answer takes 1 ms, more where hundreds answer at once
_STACK_CHARACTERS: Final = 3000  # of the 4,096 bytes of a line
_LINE_SECONDS: Final = 0.002
_DYING_SECONDS: Final = 1.0
_ALIVE: Final = AT_WORK | {ChildState.BOOTING}


class StackReport:
    """Writes one report at a time."""

    def __init__(self, state: MasterState, memory: SlotMemory, stacks: Stacks, background: Background) -> None:
        self._state = state
        self._memory = memory
        self._stacks = stacks
        self._background = background
        self._is_writing = False

    @property
    def handlers(self) -> Mapping[type, Callable[[Any], None]]:
        """Who carries out which effect."""
        return {WriteReport: self._begin}

    def _begin(self, _effect: WriteReport) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._background.start(self._write())

    async def _write(self) -> None:
        try:
            fleet = status(self._state, glance_at(self._state, self._memory))
            log.logger().info(
                events.FLEET_STATUS, **{key: value for key, value in fleet.items() if key not in ("children", "pid")}
            )
            await self._write_stacks()
        finally:
            self._is_writing = False

    async def _write_stacks(self) -> None:
        children = sorted((child for child in self._state.children if child.state in _ALIVE), key=attrgetter("slot"))
        asked = {child.nonce for child in children if self._ask(child)}
        await asyncio.sleep(ANSWER_SECONDS if asked else 0)
        for child in children:
            _write_stack(child, self._stack_of(child) if child.nonce in asked else _why_not(child))
            await asyncio.sleep(_LINE_SECONDS)

    def _ask(self, child: Child) -> bool:
        return not _is_dying(child) and child.stopped_at is None and self._stacks.ask(child.ref)

    def _stack_of(self, child: Child) -> str:
        if _is_dying(child):
            return "it is being killed: see the event of its death"
        return shortened(self._stacks.text(child.ref), _STACK_CHARACTERS) or "it did not answer"


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
