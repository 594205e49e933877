"""Faults of a node's `rota.toml`. The file gets a different number of workers, text that is not TOML, a module that
does not exist, or several of these in a row.
"""

import signal
from collections.abc import Callable
from random import Random
from typing import Final

from soak.act import Act
from soak.faults import Fault
from soak.node import WORKERS, Node
from support.fleet_process import toml

_MOST_WORKERS: Final = WORKERS + 2


def choose(fault: Fault, node: Node, random: Random) -> Act:
    """Return the steps of a fault of a node's `rota.toml`."""
    return _ACTS[fault](node, random)


def _resize(node: Node, random: Random) -> Act:
    count = random.choice([number for number in range(1, _MOST_WORKERS + 1) if number != WORKERS])
    return Act(lambda: _apply(node, count), undo=lambda: _apply(node, WORKERS), detail=f"{count} workers")


def _storm(node: Node, random: Random) -> Act:
    def again() -> None:
        _apply(node, random.randint(1, _MOST_WORKERS))

    return Act(again, again=again, undo=lambda: _apply(node, WORKERS))


def _bad_toml(node: Node, _random: Random) -> Act:
    return _bad(node, "workers = = 3\n")


def _bad_import(node: Node, _random: Random) -> Act:
    return _bad(node, toml(node.settings | {"imports": ["soak.tasks", "soak.no_such_module"]}))


def _bad(node: Node, text: str) -> Act:
    def do() -> None:
        node.has_good_file = False
        node.may_have_read_bad_file = True
        node.write(text)
        node.signal(signal.SIGHUP)

    def undo() -> None:
        _apply(node, WORKERS)
        node.has_good_file = True

    return Act(do, undo=undo)


def _apply(node: Node, workers: int) -> None:
    node.resize(workers)
    node.signal(signal.SIGHUP)


_ACTS: Final[dict[Fault, Callable[[Node, Random], Act]]] = {
    Fault.RESIZE: _resize,
    Fault.HUP_STORM: _storm,
    Fault.BAD_TOML: _bad_toml,
    Fault.BAD_IMPORT: _bad_import,
}
