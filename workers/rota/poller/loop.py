"""The poller's loop: promote a chunk of what is due, do a step of the rounds, rest until there is more to do.

Neither waits for the end of the other: a hundred thousand overdue tasks hold up no sweep, and a hundred lost owners no
task that is due.
"""

import time
from dataclasses import dataclass

from rota.child.life import EXIT_DRAINED, Life
from rota.child.signals import StopSignals
from rota.child.slots import Phase
from rota.child.wait import Waiter
from rota.poller.bell import PollerBell
from rota.poller.report import PollerReport
from rota.poller.rest import Outlook, Standby, outlook_of
from rota.poller.rounds import Rounds
from rota.protocol.store import Store
from rota.server.connection import Connection
from rota.server.link import Link
from rota.server.server_errors import ServerError
from rota.telemetry import events, log


@dataclass(frozen=True, slots=True)
class PollerTools:
    """What the loop works with; `link` is the connection to work on, the bell has its own."""

    life: Life
    store: Store
    link: Link
    bell: PollerBell
    waiter: Waiter
    signals: StopSignals
    standby: Standby
    rounds: Rounds
    report: PollerReport


class PollerLoop:
    """One life of a poller."""

    def __init__(self, tools: PollerTools) -> None:
        self._tools = tools
        self._ready = False
        self._rang = False

    def run(self) -> int:
        """Work until a stop signal; answers the exit code. Raises Orphaned."""
        tools = self._tools
        while not tools.signals.asked:
            tools.life.slot.beat()
            try:
                outlook = self._work()
            except ServerError as error:
                tools.waiter.pause(tools.link.failed(error))
                continue
            tools.link.worked()
            self._rang = tools.bell.rest(self._rest_seconds(outlook))
        tools.life.slot.phase = Phase.DRAINING
        tools.life.ring_master()
        return EXIT_DRAINED

    def _work(self) -> Outlook:
        tools = self._tools
        connection = tools.link.connection()
        outlook = self._promote(connection)
        if self._rang:
            tools.standby.heard(outlook.next_due_us)
        tools.rounds.step(connection)
        if not self._ready:
            self._say_ready()
        return outlook

    def _promote(self, connection: Connection) -> Outlook:
        sent_at = time.monotonic()
        promoted = connection.run(self._tools.store.promote())
        seen_at = time.monotonic()
        self._tools.report.promoted(promoted, seen_at - sent_at)
        return outlook_of(promoted, seen_at)

    def _rest_seconds(self, outlook: Outlook) -> float:
        now = time.monotonic()
        rest = outlook.rest_seconds(now, self._tools.standby.seconds(outlook.next_due_us))
        return min(rest, max(0.0, self._tools.rounds.next_at - now))

    def _say_ready(self) -> None:
        self._ready = True
        self._tools.life.slot.phase = Phase.IDLE
        self._tools.life.ring_master()
        log.logger().info(events.POLLER_STARTED, rank=self._tools.standby.rank)
