"""The exporter's process: one loop waits for clients, for signals and for the death of the master."""

import os
import signal
import socket
import sys
import time
from contextlib import closing, suppress
from typing import Final

from rota.child import life, signals, slot_memory
from rota.child.slots import Phase, Slot
from rota.telemetry import events, log
from rota.telemetry.recorder import Recorder
from rota_supervisor import child, layout
from rota_supervisor.exporter import fleet, observer, queues, web
from rota_supervisor.exporter.server import Server
from rota_supervisor.exporter.settings import exporter_settings
from rota_supervisor.process import show_title

BEAT_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 2.0
_SWITCH_SECONDS: Final = 0.0001  # the loop waits so long for the renderer, at each call of the kernel; 5 ms by default


def main() -> int:
    """Serve until TERM or INT, and leave at once when the master is gone; return the exit code."""
    entrance = child.enter(os.getpid())
    settings, first, slot = exporter_settings(entrance.first.settings), entrance.first, entrance.slot
    show_title("exporter", settings.server.namespace)
    log.configure(settings.log, role=first.role, slot=first.slot, pid=os.getpid())
    signals_fd = _catch_signals()
    sys.setswitchinterval(_SWITCH_SECONDS)
    memory = slot_memory.SlotMemory.to_read(layout.SLOTS_FD)
    everything = observer.Observer(settings, memory, first.master_pid, queues.reader(settings), Recorder(slot.metrics))
    site = web.Site(settings, fleet.Probe(settings, memory, first.master_pid), everything)
    with closing(socket.socket(fileno=layout.LISTEN_FD)) as listener:
        server = Server(listener, site, (signals_fd, layout.DEATH_FD))
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        slot.phase = Phase.IDLE
        slot.beat()
        life.ring(layout.BELL_FD)
        log.logger().info(events.EXPORTER_STARTED, listen="{}:{}".format(*listener.getsockname()[:2]))
        return _serve(server, slot, signals_fd)


def _catch_signals() -> int:
    """Return a descriptor that becomes readable at TERM and INT, whose handlers run nothing.

    They stay blocked in the threads that are started next: one that wrote down the stacks of all, while the main thread
    ran on, would read frames that are gone, and end the process by SIGSEGV.
    """
    fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write_fd)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    for number in signals.OF_THE_MASTER:
        signal.signal(number, signal.SIG_IGN)  # a handler would write to the descriptor
    heard = {signal.SIGTERM, signal.SIGINT, signals.STACK_SIGNAL, *signals.OF_THE_MASTER}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    return fd


def _serve(server: Server, slot: Slot, signals_fd: int) -> int:
    while True:
        slot.beat()
        woken = server.turn(BEAT_SECONDS)
        if layout.DEATH_FD in woken:
            return life.EXIT_ORPHANED
        if signals_fd in woken:
            slot.phase = Phase.DRAINING
            return _drain(server, signals_fd)


def _drain(server: Server, signals_fd: int) -> int:
    """Finish the answers begun; clients who come now wait for the next exporter."""
    server.stop_listening()
    deadline = time.monotonic() + DRAIN_SECONDS
    while server.is_busy and (left := deadline - time.monotonic()) > 0:
        with suppress(BlockingIOError):
            os.read(signals_fd, 4096)  # it stays readable otherwise, and turns would not wait
        if layout.DEATH_FD in server.turn(left):
            return life.EXIT_ORPHANED
    return life.EXIT_DRAINED


if __name__ == "__main__":
    sys.exit(main())
