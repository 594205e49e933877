"""Troubles of the fleet and its surroundings: of processes, nodes, the server, the configuration file and the log."""

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

from rota import Call
from rota.telemetry import metrics as m
from support.fleet_process import LOG_FILE
from support.waiting import repeating
from troubles.scene import WORK_QUEUE, Scene, begun, coming, trouble


@trouble()
def redis_away(scene: Scene) -> Iterator[None]:
    """The server is gone."""
    scene.server.kill()
    begun(lambda: scene.fleet.metrics().total(m.REDIS_UP.name) == 0, "the master has seen it")
    yield
    scene.server.start()


@trouble(nodes=2)
def node_lost(scene: Scene) -> Iterator[None]:
    """One of two nodes is gone with all its processes; the other one continues."""
    lost = scene.nodes[1]
    lost.kill_all()
    yield
    lost.start()


@trouble()
def fleet_absent(scene: Scene) -> Iterator[None]:
    """The whole fleet is gone, so nothing can be scraped."""
    scene.fleet.kill_all()
    yield
    scene.fleet.start()


@trouble()
def pollers_stuck(scene: Scene) -> Iterator[None]:
    """No poller can work: each one is stopped as soon as it has started."""
    later = Call("note", ["later"], queue=WORK_QUEUE, delay=1)
    with coming(scene, later, per_second=2), repeating(lambda: _stop_pollers(scene), 0.1):
        begun(lambda: scene.fleet.metrics().total(m.QUEUE_OVERDUE.name) >= 2, "two tasks are overdue")
        yield


def _stop_pollers(scene: Scene) -> None:
    for pid in scene.fleet.pids("poller"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)


@trouble()
def bad_reload(scene: Scene) -> Iterator[None]:
    """A mistake is written into the file, and the file is loaded."""
    scene.fleet.edit(workers="many")
    scene.fleet.hup()
    begun(lambda: scene.fleet.log("config.rejected"), "it is refused")
    yield
    scene.fleet.edit(workers=2)
    scene.fleet.hup()


def _log_through_reader(scene: Scene) -> subprocess.Popen[bytes]:
    """Let the fleet log to a pipe that can hold only a few lines, and copy the output of the pipe to the log file."""
    with (scene.fleet.folder / LOG_FILE).open("ab") as file:
        reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file)
    scene.closing.enter_context(reader)
    scene.closing.callback(reader.kill)
    assert reader.stdin is not None
    scene.fleet.log_fd = reader.stdin.fileno()
    fcntl.fcntl(scene.fleet.log_fd, fcntl.F_SETPIPE_SZ, os.sysconf("SC_PAGESIZE"))
    return reader


@trouble(prepare=_log_through_reader)
def log_blocked(scene: Scene) -> Iterator[None]:
    """The reader of the fleet's log stops reading, so lines are dropped."""
    os.kill(scene.prepared.pid, signal.SIGSTOP)
    with coming(scene, Call("note", ["told of in the log"], queue=WORK_QUEUE), per_second=10):
        begun(lambda: scene.fleet.metrics().total(m.LOG_LINES_DROPPED.name) >= 1, "a line is lost")
        yield
    os.kill(scene.prepared.pid, signal.SIGCONT)
