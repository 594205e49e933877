"""The exporter's loop: one wait for clients, for signals and for the death of the master."""

import os
import signal
import socket
import sys
import time
from contextlib import closing, suppress
from typing import Final

from rota.child.life import EXIT_DRAINED, EXIT_ORPHANED, ring
from rota.child.signals import OF_THE_MASTER, STACK_SIGNAL
from rota.child.slot_memory import SlotMemory
from rota.child.slots import Phase
from rota.protocol.store import Store
from rota.telemetry import events, log
from rota_supervisor.child import Entrance
from rota_supervisor.exporter.observer import Observer, Watch
from rota_supervisor.exporter.probe import Probe
from rota_supervisor.exporter.queues import QueueWatch, connector
from rota_supervisor.exporter.server import Server
from rota_supervisor.exporter.settings import ExporterSettings
from rota_supervisor.exporter.web import Site
from rota_supervisor.layout import BELL_FD, DEATH_FD, LISTEN_FD, SLOTS_FD

BEAT_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 2.0
_SWITCH_SECONDS: Final = 0.0001  # the loop waits so long for the renderer, at each call of the kernel; 5 ms by default


def run_exporter(settings: ExporterSettings, entrance: Entrance) -> int:
    """Serve until TERM or INT; answers the exit code."""
    first, slot = entrance.first, entrance.slot
    log.configure(settings.log, role=first.role, slot=first.slot, pid=os.getpid())
    signals = _Signals()
    sys.setswitchinterval(_SWITCH_SECONDS)
    memory = SlotMemory.to_read(SLOTS_FD)
    site = Site(
        settings,
        Probe(settings, memory, first.master_pid),
        Observer(settings, memory, first.master_pid, _watch(settings)),
    )
    with closing(socket.socket(fileno=LISTEN_FD)) as listener:
        server = Server(listener, site, (signals.fd, DEATH_FD))
        signals.let_in()
        slot.phase = Phase.IDLE
        slot.beat()
        ring(BELL_FD)
        log.logger().info(events.EXPORTER_STARTED, listen="{}:{}".format(*listener.getsockname()[:2]))
        return _serve(server, signals, entrance)


class _Signals:
    """TERM and INT, as a descriptor that becomes readable. Handlers run nothing.

    All are blocked until `let_in`, and stay so in the threads that are started before: a thread that wrote down the
    stacks of all, while the main thread ran on, would read frames that are gone, and end the process by SIGSEGV.
    """

    def __init__(self) -> None:
        self.fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_fd)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        for number in OF_THE_MASTER:
            signal.signal(number, signal.SIG_IGN)  # a handler would write to the descriptor
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, STACK_SIGNAL, *OF_THE_MASTER})

    def let_in(self) -> None:
        """Have the calling thread hear them."""
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def empty(self) -> None:
        """Have the descriptor wait for the next."""
        with suppress(BlockingIOError):
            os.read(self.fd, 4096)


class _NoWatch:
    """For a master that does not want the queues' gauges here."""

    def read(self) -> None:
        return None


def _watch(settings: ExporterSettings) -> Watch:
    if not settings.ask_redis:
        return _NoWatch()
    names = tuple(queue.name for queue in settings.queues)
    return QueueWatch(Store(settings.server.namespace), names, connector(settings.server))


def _serve(server: Server, signals: _Signals, entrance: Entrance) -> int:
    while True:
        entrance.slot.beat()
        woken = server.turn(BEAT_SECONDS)
        if DEATH_FD in woken:
            return EXIT_ORPHANED
        if signals.fd in woken:
            entrance.slot.phase = Phase.DRAINING
            return _drain(server, signals)


def _drain(server: Server, signals: _Signals) -> int:
    """Finish the answers begun; clients who come now wait for the next exporter."""
    server.stop_listening()
    deadline = time.monotonic() + DRAIN_SECONDS
    while server.is_busy and (left := deadline - time.monotonic()) > 0:
        signals.empty()
        if DEATH_FD in server.turn(left):
            return EXIT_ORPHANED
    return EXIT_DRAINED
