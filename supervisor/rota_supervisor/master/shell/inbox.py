"""The one way in: whatever happens is taken in by the core, and what follows from it is carried out."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.layout import TICK_SECONDS
from rota_supervisor.master.core.effects import Effect, Leave
from rota_supervisor.master.core.events import Event, LeasesRenewed, Ticked
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.take import take
from rota_supervisor.master.core.ticking import wake_at
from rota_supervisor.master.effects.slots import now_seconds
from rota_supervisor.master.shell.recording import EventRecorder

Handlers = Mapping[type, Callable[[Any], None]]


class Inbox:
    """Takes events one after another. One that comes of an effect waits until all before it are carried out.

    `handlers`: who carries out which effect. `wake`: set when something has happened that a tick has not seen.
    `recorder`: who keeps what happened. `has_left`, `failure`: the master is to end.
    """

    def __init__(self, state: MasterState, recorder: EventRecorder | None = None) -> None:
        self.state = state
        self.handlers: dict[type, Callable[[Any], None]] = {Leave: self._leave}
        self.wake = asyncio.Event()
        self._recorder = recorder
        self.has_left = False
        self.failure: Failure | None = None
        self._waiting: deque[Event] = deque()
        self._is_taking = False

    def happened(self, event: Event) -> None:
        """Take it in, and carry out what follows. A renewal wakes nobody whose next tick is soon enough."""
        self._take(event)
        if not isinstance(event, LeasesRenewed) or wake_at(self.state) < now_seconds() + TICK_SECONDS:
            self.wake.set()

    def tick(self, redis_silent_since: float) -> None:
        """Everything that has happened is taken in."""
        self.wake.clear()
        self._take(Ticked(redis_silent_since))

    def _take(self, event: Event) -> None:
        self._waiting.append(event)
        if self._is_taking:
            return
        self._is_taking = True
        try:
            while self._waiting:
                event, now = self._waiting.popleft(), now_seconds()
                effects = take(self.state, event, now)
                if self._recorder is not None:
                    self._recorder.took(event, now, effects)
                self._carry_out(effects)
        finally:
            self._is_taking = False

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.handlers[type(effect)](effect)

    def _leave(self, effect: Leave) -> None:
        self.has_left = True
        if effect.code is not ExitCode.CLEAN:
            self.failure = Failure(effect.code, *effect.messages)
