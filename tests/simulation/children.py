"""The children that a master spawns: the exporter, the poller and the zygote. The poller runs the product's sweeps."""

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any

from rota.child.child_process import EXIT_DRAINED
from rota.child.child_settings import poller_settings_from_json
from rota.durations import Backoff
from rota.poller.poller_bell import BellState
from rota.poller.rounds import Leadership, SweepRound
from rota.server.server_errors import ConnectionLost, ServerError
from rota_supervisor import messages
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child
from simulation.calls import CALLS, PollerConnection, SilentReport
from simulation.process import Code, Process, code_of, tick_of
from simulation.timeline import MICROSECOND
from simulation.workers import Worker, settings_of


class Exporter(Process):
    """An exporter, which runs until it is ordered to exit."""

    role = Role.EXPORTER

    def start(self, seconds: float) -> None:
        self.later(seconds, self._boot)

    def _boot(self) -> None:
        if self.enter_slot():
            self.show_ready()


class Poller(Process):
    """A poller, which sweeps with the product's `SweepRound`, and reaps owners."""

    role = Role.POLLER

    def start(self, seconds: float, settings: str) -> None:
        self._settings = poller_settings_from_json(settings)
        self._backoff = Backoff(0.05, 2.0, self.world.random.uniform)
        self.later(seconds, self._boot)

    def _boot(self) -> None:
        if self.enter_slot():
            self._sweeping = SweepRound(
                self._settings, CALLS, SilentReport(), Leadership(BellState()), self.node.boottime()
            )
            self._sweep()

    def _sweep(self) -> None:
        now = self.node.boottime()
        wait = self._sweeping.due_at - now
        if wait > 0:
            self.later(wait + MICROSECOND, self._sweep)
        elif self.stop_requested:
            self.exit(EXIT_DRAINED)
        else:
            self.world.network.call(self, lambda arrives: self._step(reply_arrives=arrives, read_at=now), self._swept)

    def _step(self, *, reply_arrives: bool, read_at: float) -> None:
        with contextlib.suppress(ConnectionLost):
            self._sweeping.step(PollerConnection(self.world.server, reply_arrives=reply_arrives), read_at)

    def _swept(self, reply: ServerError | None) -> None:
        if isinstance(reply, ServerError):
            self.later(self._backoff.next_seconds(), self._sweep)
            return
        self._backoff.reset()
        if not self.was_ready:
            self.show_ready()
        self._sweep()


class Zygote(Process):
    """A zygote, which imports the application and then forks workers on request."""

    role = Role.ZYGOTE

    def start(self, seconds: float, settings: dict[str, Any]) -> None:
        self.line = Line(self)
        self.code = code_of(settings["imports"])
        self._module = settings["imports"][0]
        self._requests: deque[tuple[Child, str, str]] = deque()
        self.later(0.02, lambda: self._boot(seconds))

    def _boot(self, seconds: float) -> None:
        if self.enter_slot():
            if self.code is Code.HANGS:
                self.hang()
            else:
                self.later(seconds, self._imported)

    def _imported(self) -> None:
        if self.code is Code.DIES:
            self.exit(1)
        elif self.code is Code.RAISES:
            self.line.send(messages.ImportFailed(self._module, "ImportError: no", ""))
            self.exit(1)
        else:
            queue = "nowhere" if self.code is Code.UNSERVED else "default"
            self.line.send(messages.Imported((("work", queue),)))
            self.line.send(messages.Scheduled("tick", tick_of(self._module)))
            self.line.send(messages.Ready(1, 1))
            self.show_ready()
            self._serve()

    def request_worker(self, child: Child, owner: str, settings: str) -> None:
        """Send the zygote a packet that requests a new worker."""
        self._requests.append((child, owner, settings))
        if self.was_ready:
            self.later(0.0, self._serve)

    def receive_term(self) -> None:
        """Exit soon after the order, but fork all workers that were requested earlier first."""
        if self.was_ready:
            self.later(self.world.random.uniform(0.001, 0.01), self._leave)

    def _leave(self) -> None:
        self._serve()
        self.exit(EXIT_DRAINED)

    def _serve(self) -> None:
        while self.alive and self._requests:
            self._fork(*self._requests.popleft())

    def _fork(self, child: Child, owner: str, settings: str) -> None:
        draw = self.world.random.random()
        if draw < self.world.trouble.fork_fails:
            self.line.send(messages.ForkFailed(child.slot, child.nonce, "EAGAIN"))
            return
        worker = Worker(self.node, child)
        worker.start(owner, settings_of(settings), self.code)
        if draw < self.world.trouble.fork_fails + self.world.trouble.reports_lost:
            reason = "the intermediate ended with wait status 9"
            self.line.send(messages.ForkFailed(child.slot, child.nonce, reason))
        else:
            self.line.send(messages.Spawned(child.slot, child.nonce, worker.pid))


class Line:
    """The channel from a zygote to the master, as the master sees it. It closes shortly before or after the zygote is
    reaped.
    """

    def __init__(self, zygote: Zygote) -> None:
        self.zygote = zygote
        self.is_open = True
        self._waiting: deque[messages.Message | None] = deque()

    def send(self, message: messages.Message | None) -> None:
        """Send a packet to the master, or close the channel if `message` is None."""
        self._waiting.append(message)
        self.zygote.node.ring()

    def read(self) -> Iterator[messages.Message | None]:
        """Yield the packets that have arrived, and then None if the channel is closed."""
        while self.is_open and self._waiting:
            message = self._waiting.popleft()
            self.is_open = message is not None
            yield message
