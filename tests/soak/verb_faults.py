"""Requests that an operator makes to a running node by control commands and signals: a different number of workers, a
quiet period, a restart with fresh code, and reports.
"""

import signal
from collections.abc import Callable
from random import Random
from typing import Final

from soak.act import Act
from soak.faults import Fault
from soak.node import Node

_MOST_WORKERS: Final = 6


def choose(fault: Fault, node: Node, random: Random) -> Act | None:
    """Return the steps of a request to a node, or None if the node's master is stopped or has never been ready."""
    return None if node.is_stopped or not node.has_been_ready() else _ACTS[fault](node, random)


def _scale(node: Node, random: Random) -> Act:
    count = random.randint(0, _MOST_WORKERS)

    def back() -> bool:
        return bool(node.request("scale", pool="main", workers=node.settings["pools"]["main"]["workers"]).get("ok"))

    return Act(
        lambda: node.request("scale", pool="main", workers=count),
        is_over=_of_its_life(node, back),
        detail=f"{count} workers",
    )


def _quiet(node: Node, random: Random) -> Act:
    by_signal = random.random() < 0.5

    def do() -> None:
        if by_signal:
            node.signal(signal.SIGTSTP)
        else:
            node.request("quiet")

    def undo() -> None:
        if by_signal:
            node.signal(signal.SIGCONT)

    def resumed() -> bool:  # repeated, because a SIGCONT may have no effect if another signal follows at once
        return bool(node.request("resume").get("ok"))

    return Act(do, undo=undo, is_over=_of_its_life(node, resumed), detail="by signal" if by_signal else "by verb")


def _restart(node: Node, random: Random) -> Act:
    if random.random() < 0.5:
        return Act(lambda: node.signal(signal.SIGUSR2), detail="by signal")
    return Act(lambda: node.request("restart"), detail="by verb")


def _report(node: Node, _random: Random) -> Act:
    return Act(lambda: node.signal(signal.SIGUSR1))


def _of_its_life(node: Node, is_undone: Callable[[], bool]) -> Callable[[], bool]:
    """Return a function that returns whether the effects of a request to the node are over. `is_undone` requests the
    opposite, and returns whether this succeeded. A restart of the node also ends the effects, because the new master
    never received the request.
    """
    pid = node.pid
    return lambda: node.pid != pid or (not node.is_stopped and is_undone())


_ACTS: Final[dict[Fault, Callable[[Node, Random], Act]]] = {
    Fault.SCALE: _scale,
    Fault.QUIET: _quiet,
    Fault.RESTART: _restart,
    Fault.REPORT: _report,
}
