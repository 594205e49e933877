"""The poller's loop: promote a chunk of what is due, do a step of the rounds, rest until there is more to do.

Neither waits for the end of the other: a hundred thousand overdue tasks hold up no sweep, and a hundred lost owners no
task that is due.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from rota.child.life import EXIT_DRAINED, Life
from rota.child.signals import StopSignals
from rota.child.slots import Phase
from rota.child.wait import Waiter
from rota.poller.bell import PollerBell
from rota.poller.promoting import Promoting
from rota.poller.rounds import Rounds
from rota.server.link import Link
from rota.server.server_errors import ServerError
from rota.telemetry import events, log


@dataclass(frozen=True, slots=True)
class PollerTools:
    """What the loop works with; `link` is the connection to work on, the bell has its own. `clock` is monotonic."""

    life: Life
    link: Link
    bell: PollerBell
    waiter: Waiter
    signals: StopSignals
    promoting: Promoting
    rounds: Rounds
    rank: int
    clock: Callable[[], float] = time.monotonic


class PollerLoop:
    """One life of a poller."""

    def __init__(self, tools: PollerTools) -> None:
        self._tools = tools
        self._ready = False
        self._rested = False

    def run(self) -> int:
        """Work until a stop signal; answers the exit code. Raises Orphaned."""
        tools = self._tools
        while not tools.signals.asked:
            tools.life.slot.beat()
            try:
                self._work()
            except ServerError as error:
                tools.promoting.lost()
                tools.waiter.pause(tools.link.failed(error))
                continue
            tools.link.worked()
            self._rest()
        tools.life.slot.phase = Phase.DRAINING
        tools.life.ring_master()
        return EXIT_DRAINED

    def _work(self) -> None:
        tools = self._tools
        connection = tools.link.connection()
        if tools.promoting.due_at() <= tools.clock():
            tools.promoting.step(connection, rested=self._rested)
        self._rested = False
        outlook = tools.rounds.step(connection)
        if outlook is not None:
            tools.promoting.told(outlook)
        if not self._ready:
            self._say_ready()

    def _rest(self) -> None:
        tools = self._tools
        seconds = min(tools.promoting.due_at(), tools.rounds.next_at) - tools.clock()
        if tools.bell.rest(max(0.0, seconds)):
            tools.promoting.heard()
        else:
            self._rested = seconds > 0

    def _say_ready(self) -> None:
        self._ready = True
        self._tools.life.slot.phase = Phase.IDLE
        self._tools.life.ring_master()
        log.logger().info(events.POLLER_STARTED, rank=self._tools.rank)
