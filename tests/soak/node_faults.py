"""Faults of whole nodes. The master or all processes are stopped or killed, a node is drained and started again
(perhaps with a different version), or the link of a host is taken down.
"""

import dataclasses
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

import psutil

from soak.act import Act, lives, send, stop
from soak.faults import Fault
from soak.node import Node

_RUN_SECONDS: Final = 0.2  # in this load, a task that has already run for this long will run for some time longer
_WAIT_SECONDS: Final = 5.0  # the longest time that a fault waits for such a task
_TICK_SECONDS: Final = 0.002
# The longest time for which a child may outlive its master. Rota promises 2 s; a busy machine may need 0.5 s more.
_GONE_SECONDS: Final = 2.5


def choose(fault: Fault, node: Node, _random: Random) -> Act | None:
    """Return the steps of a fault that affects a node, or None if the node has ended in the meantime."""
    processes = node.processes()
    alive = bool(processes) and processes[0].pid == node.pid
    return _ACTS[fault](node, processes) if alive else None


def _stop_master(node: Node, processes: list[psutil.Process]) -> Act:
    return _stopped(node, processes[:1])


def _stop_node(node: Node, processes: list[psutil.Process]) -> Act:
    return _stopped(node, processes)


def _stopped(node: Node, processes: list[psutil.Process]) -> Act:
    act = stop(processes)

    def do() -> None:
        node.is_stopped = True
        act.do()

    def undo() -> None:
        act.undo()
        node.is_stopped = False

    return dataclasses.replace(act, do=do, undo=undo)


def _kill_master(node: Node, processes: list[psutil.Process]) -> Act:
    return _killed(node, processes, processes[:1])


def _kill_node(node: Node, processes: list[psutil.Process]) -> Act:
    return _killed(node, processes, processes)


def _killed(node: Node, die: list[psutil.Process], struck: list[psutil.Process]) -> Act:
    struck_at = float("inf")

    def do() -> None:
        nonlocal struck_at
        node.is_wanted = False
        send(struck, signal.SIGKILL)
        struck_at = time.monotonic()

    def odd() -> str:
        left = [process for process in die if lives(process)]
        return f"left of it: {left}" if left and time.monotonic() - struck_at > _GONE_SECONDS else ""

    def undo() -> None:
        node.is_wanted = True

    pids = tuple(process.pid for process in die)
    return Act(do, undo=undo, is_over=_new_master(node), odd=odd, pids=pids)


def _term_node(node: Node, processes: list[psutil.Process]) -> Act:
    def do() -> None:
        node.is_leaving = True
        node.signal(signal.SIGTERM)

    pids = tuple(process.pid for process in processes)
    return Act(do, is_over=_new_master(node), pids=pids)


def _upgrade(node: Node, processes: list[psutil.Process]) -> Act:
    return _another_version(node, processes, ())


def _roll_back(node: Node, processes: list[psutil.Process]) -> Act:
    return _another_version(node, processes, node.earlier)


def _another_version(node: Node, processes: list[psutil.Process], roots: Sequence[Path]) -> Act:
    act = _term_node(node, processes)

    def do() -> None:
        node.run_from(roots)
        act.do()

    return dataclasses.replace(act, do=do)


def _partition(node: Node, _processes: list[psutil.Process]) -> Act:
    host = node.host
    assert host is not None
    return Act(host.unplug, undo=host.plug, is_over=lambda: host.reaches(node.server_port))


def _lose_host(node: Node, _processes: list[psutil.Process]) -> Act:
    host = node.host
    assert host is not None
    _wait_for_a_long_task(node)  # without such a task, an idle host would have no task to lose
    act = _kill_node(node, node.processes())

    def do() -> None:
        host.unplug()  # unplugged before the kill, so that the server does not see the connections end
        act.do()
        send(node.processes(), signal.SIGKILL)  # kills also the processes that were started in the meantime

    def undo() -> None:
        host.plug()
        act.undo()

    return dataclasses.replace(act, do=do, undo=undo)


def _wait_for_a_long_task(node: Node) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not node.runs_for(_RUN_SECONDS) and time.monotonic() < deadline:
        time.sleep(_TICK_SECONDS)


def _new_master(node: Node) -> Callable[[], bool]:
    old = node.pid
    return lambda: node.pid != old and node.has_been_ready()


_ACTS: Final[dict[Fault, Callable[[Node, list[psutil.Process]], Act]]] = {
    Fault.STOP_MASTER: _stop_master,
    Fault.STOP_NODE: _stop_node,
    Fault.KILL_MASTER: _kill_master,
    Fault.KILL_NODE: _kill_node,
    Fault.TERM_NODE: _term_node,
    Fault.UPGRADE: _upgrade,
    Fault.ROLL_BACK: _roll_back,
    Fault.PARTITION: _partition,
    Fault.LOSE_HOST: _lose_host,
}
