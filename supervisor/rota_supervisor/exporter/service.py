"""The process of the exporter. One loop waits for HTTP clients, for signals, and for the death of the master. The
master starts the process as `python -P -m rota_supervisor.exporter.service`."""

import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Final

from rota.child import child_process
from rota.child.child_process import boottime_seconds
from rota.child.slot_memory import SharedText, SlotMemory
from rota.child.slots import MASTER_SLOT, Phase, Slot
from rota.telemetry import log, log_events
from rota.telemetry.metrics import REDIS_ROUND_TRIP, REDIS_UP, START_TIME
from rota.telemetry.recorder import Recorder
from rota_supervisor import child_start, layout
from rota_supervisor.exporter import endpoints, observer, queue_watch, redis_thread
from rota_supervisor.exporter.access import AccessRules
from rota_supervisor.exporter.exporter_settings import ExporterSettings, exporter_settings
from rota_supervisor.exporter.http_server import Server
from rota_supervisor.master_snapshot import MasterSnapshot
from rota_supervisor.process import show_title

HEARTBEAT_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 2.0
_SWITCH_SECONDS: Final = 0.0001  # the longest time the loop waits for another thread to offer the GIL; 5 ms by default
EXIT_NO_ACCESS: Final = 1
_NONCE: Final = 1


@dataclass(frozen=True, slots=True)
class ExporterProcess:
    """The connection of an exporter to its fleet: the shared memory, the exporter's own slot, and the master."""

    memory: SlotMemory  # the slots of the fleet
    master_pid: int
    slot: Slot  # the exporter's own slot
    death_fd: int = -1  # the descriptor that becomes readable when the master has ended, or -1 for none
    started: Callable[[], None] = lambda: None  # called when clients can connect


def serve(settings: ExporterSettings, access: AccessRules, process: ExporterProcess, listen_fd: int) -> int:
    """Serve on a listening socket until TERM or INT arrives. Exits at once if the master ends. Returns the exit
    code.
    """
    signals_fd = _catch_signals()
    sys.setswitchinterval(_SWITCH_SECONDS)
    watched = (signals_fd,) if process.death_fd < 0 else (signals_fd, process.death_fd)
    with closing(socket.socket(fileno=listen_fd)) as listener:
        server = Server(listener, _site(settings, process, access), watched, access.wrap)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        process.slot.phase = Phase.IDLE
        process.slot.heartbeat()
        process.started()
        log.logger().info(log_events.EXPORTER_STARTED, listen="{}:{}".format(*listener.getsockname()[:2]))
        return _serve(server, process, signals_fd)


def _site(settings: ExporterSettings, process: ExporterProcess, access: AccessRules) -> endpoints.Site:
    redis = redis_thread.RedisThread(redis_thread.connector(settings.server)) if settings.reads_redis else None
    watch = queue_watch.QueueWatch(settings, redis) if redis else None
    read_queues = watch.read if watch else lambda: None
    own = observer.OwnSlot.of(process.slot)
    if settings.is_standalone:
        read_queues = _without_master(read_queues, settings.server.namespace, process.slot, own.recorder)
    memory = process.memory
    master_pid = process.master_pid
    everything = observer.Observer(settings, memory, master_pid, read_queues, own)
    site = endpoints.Site(settings, observer.Probe(settings, memory, master_pid), everything, redis, access)

    def between() -> None:
        everything.note_history()
        if watch:
            watch.keep_fresh()

    # Without a master, `read_queues` also publishes the data for probes, and there is no history.
    site.between = read_queues if settings.is_standalone else between
    return site


Reader = Callable[[], queue_watch.QueueReading | None]


def _without_master(read: Reader, namespace: str, slot: Slot, own: Recorder) -> Reader:
    """Return a function for an exporter without a master. It reads the queues with `read`, and publishes in `slot` what
    a master would publish: its start time, whether Redis replied, and how fast.
    """
    own.gauge(START_TIME).set(time.time())
    redis_up = own.gauge(REDIS_UP)
    round_trip = own.gauge(REDIS_ROUND_TRIP)
    shared_text = SharedText(slot.far_spare)
    snapshot = MasterSnapshot(fleet=namespace, started_at=boottime_seconds())

    def read_and_publish() -> queue_watch.QueueReading | None:
        reading = read()
        seconds = None if reading is None else reading.round_trip_seconds
        redis_up.set(reading is not None)
        round_trip.set(math.nan if seconds is None else seconds)
        published = replace(snapshot, redis_up=reading is not None, redis_round_trip_seconds=seconds)
        shared_text.publish(published.to_json(shared_text.capacity))
        return reading

    return read_and_publish


def _catch_signals() -> int:
    """Return a descriptor that becomes readable when TERM or INT arrives. The handlers of these signals do nothing
    else.

    The signals stay blocked in threads that are started later. If a signal handler in such a thread wrote the stacks of
    all threads while the main thread continued, it could read frames that no longer exist, and the process would crash
    with SIGSEGV.
    """
    fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write_fd)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    for number in child_process.IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # With a handler, this signal would make the descriptor readable.
    blocked = {signal.SIGTERM, signal.SIGINT, child_process.STACK_SIGNAL, *child_process.IGNORED_SIGNALS}
    signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    return fd


def _serve(server: Server, process: ExporterProcess, signals_fd: int) -> int:
    while True:
        process.slot.heartbeat()
        woken = server.serve_ready(HEARTBEAT_SECONDS)
        if process.death_fd in woken:
            return child_process.EXIT_ORPHANED
        if signals_fd in woken:
            process.slot.phase = Phase.DRAINING
            return _drain(server, process, signals_fd)


def _drain(server: Server, process: ExporterProcess, signals_fd: int) -> int:
    """Finish the responses in progress, and return the exit code. New clients wait for the next exporter."""
    server.stop_listening()
    deadline = time.monotonic() + DRAIN_SECONDS
    while server.is_busy and (left := deadline - time.monotonic()) > 0:
        with suppress(BlockingIOError):
            os.read(signals_fd, 4096)  # While the descriptor is readable, the loop does not wait.
        if process.death_fd in server.serve_ready(left):
            return child_process.EXIT_ORPHANED
    return child_process.EXIT_DRAINED


def main() -> int:
    """Serve until TERM or INT arrives. Exits at once if the master ends. Returns the exit code."""
    entered = child_start.enter(os.getpid())
    settings = exporter_settings(entered.first.settings)
    first = entered.first
    show_title("exporter", settings.server.namespace)
    log.configure(settings.log, **log.of_process(first.role, settings.server.namespace, first.node, slot=first.slot))
    given = entered.descriptors
    assert given.listen is not None, "an exporter needs the descriptor of a listening socket"
    memory = SlotMemory.to_read(given.slots)
    try:
        access = AccessRules(settings)
    except OSError as error:
        child_start.write_exit_reason(given.stack, f"[http] cannot be used: {error}")
        return EXIT_NO_ACCESS
    process = ExporterProcess(
        memory, first.master_pid, entered.slot, layout.DEATH_FD, lambda: child_process.ring(given.bell)
    )
    return serve(settings, access, process, given.listen)


def serve_standalone(settings: ExporterSettings, access: AccessRules, listen_fd: int) -> int:
    """Serve a fleet that runs elsewhere, as `rota exporter` does, until TERM or INT. Returns the exit code."""
    show_title("exporter", settings.server.namespace)
    log.configure(settings.log, **log.of_process("exporter", settings.server.namespace, os.uname().nodename))
    memory = SlotMemory.create(1)
    own = memory.slot(MASTER_SLOT)  # This process acts as the master, so its loop sends the heartbeat.
    own.assign(_NONCE)
    own.enter(_NONCE, os.getpid())
    standalone = replace(settings, is_standalone=True, reads_redis=True, tick_seconds=HEARTBEAT_SECONDS)
    return serve(standalone, access, ExporterProcess(memory, os.getpid(), own), listen_fd)


if __name__ == "__main__":
    sys.exit(main())
