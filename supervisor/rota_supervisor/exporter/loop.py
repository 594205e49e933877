"""The exporter's loop: one wait for clients, for signals and for the death of the master."""

import os
import select
import signal
import socket
import time
from contextlib import closing
from typing import Final

from rota.child.life import EXIT_DRAINED, EXIT_ORPHANED
from rota.child.signals import OF_THE_MASTER
from rota.child.slots import Phase
from rota.protocol.store import Store
from rota.telemetry import events, log
from rota_supervisor.child import Entrance
from rota_supervisor.exporter.observer import Observer, Watch
from rota_supervisor.exporter.queues import QueueWatch, connector
from rota_supervisor.exporter.server import Server
from rota_supervisor.exporter.settings import ExporterSettings
from rota_supervisor.exporter.web import Site
from rota_supervisor.layout import BELL_FD, DEATH_FD, LISTEN_FD

BEAT_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 2.0
_FULL_SECONDS: Final = 0.05  # how soon to look again whether an answer has ended


def run_exporter(settings: ExporterSettings, entrance: Entrance) -> int:
    """Serve until TERM or INT; answers the exit code."""
    first, slot = entrance.first, entrance.slot
    log.configure(settings.log, role=first.role, slot=first.slot, pid=os.getpid())
    signals = _Signals()
    observer = Observer(settings, entrance.memory, first.master_pid, _watch(settings))
    with closing(socket.socket(fileno=LISTEN_FD)) as listener, Server(listener, Site(settings, observer)) as server:
        slot.phase = Phase.IDLE
        slot.beat()
        os.eventfd_write(BELL_FD, 1)
        log.logger().info(events.EXPORTER_STARTED, listen="{}:{}".format(*listener.getsockname()[:2]))
        return _serve(server, signals, entrance, observer)


class _Signals:
    """TERM and INT, as a descriptor that becomes readable. Handlers run nothing."""

    def __init__(self) -> None:
        self.fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_fd)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        for number in OF_THE_MASTER:
            signal.signal(number, signal.SIG_IGN)  # a handler would write to the descriptor


class _NoWatch:
    """For a master that does not want the queues' gauges here."""

    def read(self) -> None:
        return None


def _watch(settings: ExporterSettings) -> Watch:
    if not settings.ask_redis:
        return _NoWatch()
    names = tuple(queue.name for queue in settings.queues)
    return QueueWatch(Store(settings.server.namespace), names, connector(settings.server))


def _serve(server: Server, signals: _Signals, entrance: Entrance, observer: Observer) -> int:
    while True:
        entrance.slot.beat()
        observer.note_lag()
        fds = [signals.fd, DEATH_FD]
        readable = _readable(fds, _FULL_SECONDS) if server.is_full else _readable([*fds, LISTEN_FD], BEAT_SECONDS)
        if DEATH_FD in readable:
            return EXIT_ORPHANED
        if signals.fd in readable:
            entrance.slot.phase = Phase.DRAINING
            return _drain(server)
        if LISTEN_FD in readable:
            server.handle_request()


def _drain(server: Server) -> int:
    """Finish the answers begun; clients who come now wait for the next exporter."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while server.busy and time.monotonic() < deadline:
        if _readable([DEATH_FD], _FULL_SECONDS):
            return EXIT_ORPHANED
    return EXIT_DRAINED


def _readable(fds: list[int], seconds: float) -> set[int]:
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return {fd for fd, _ in poller.poll(seconds * 1000)}
