"""Faults of single processes: one or several children of a node are killed or stopped at the same time."""

import time
from collections.abc import Callable
from random import Random
from typing import Any, Final

from soak.act import Act, kill, living, stop
from soak.faults import Fault
from soak.node import Node

_PATIENCE_SECONDS: Final = 0.4  # the longest time that a fault waits for a worker that is running a task
_TICK_SECONDS: Final = 0.02
_BUSY_SHARE: Final = 0.8  # the share of these faults that hit a worker with a running task, if there is one


def choose(fault: Fault, node: Node, random: Random) -> Act | None:
    """Return the steps of a fault that affects processes of a node, or None if the node has no such process."""
    return None if node.is_stopped else _ACTS[fault](node, random)


def _kill_worker(node: Node, random: Random) -> Act | None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    rows = node.living("worker")
    while not any(row["tasks"] for row in rows) and time.monotonic() < deadline:
        time.sleep(_TICK_SECONDS)
        rows = node.living("worker")
    return _of_rows(kill, _prefer_busy(rows, random)[:1])


def _kill_several(node: Node, random: Random) -> Act | None:
    return _of_rows(kill, _prefer_busy(node.living("worker"), random)[:2])


def _kill_workers(node: Node, _random: Random) -> Act | None:
    return _of_rows(kill, node.living("worker"))


def _kill_children(node: Node, _random: Random) -> Act | None:
    return _of_rows(kill, [row for role in ("worker", "poller", "exporter", "zygote") for row in node.living(role)])


def _kill_one(role: str) -> Callable[[Node, Random], Act | None]:
    return lambda node, random: _of_rows(kill, _shuffled(node.living(role), random)[:1])


def _stop_worker(node: Node, random: Random) -> Act | None:
    return _of_rows(stop, _prefer_busy(node.living("worker"), random)[:1])


def _stop_poller(node: Node, random: Random) -> Act | None:
    return _of_rows(stop, _shuffled(node.living("poller"), random)[:1])


_ACTS: Final[dict[Fault, Callable[[Node, Random], Act | None]]] = {
    Fault.KILL_WORKER: _kill_worker,
    Fault.KILL_SEVERAL: _kill_several,
    Fault.KILL_WORKERS: _kill_workers,
    Fault.KILL_CHILDREN: _kill_children,
    Fault.STOP_WORKER: _stop_worker,
    Fault.STOP_POLLER: _stop_poller,
    Fault.KILL_ZYGOTE: _kill_one("zygote"),
    Fault.KILL_POLLER: _kill_one("poller"),
    Fault.KILL_EXPORTER: _kill_one("exporter"),
}


def _of_rows(make: Callable[..., Act], rows: list[dict[str, Any]]) -> Act | None:
    found = living(row["pid"] for row in rows)
    ran = " ".join(task["task"]["id"] for row in rows for task in row["tasks"])
    return make(found, f"ran {ran}" if ran else "") if found else None


def _prefer_busy(rows: list[dict[str, Any]], random: Random) -> list[dict[str, Any]]:
    shuffled = _shuffled(rows, random)
    prefers = random.random() < _BUSY_SHARE
    return sorted(shuffled, key=lambda row: not row["tasks"]) if prefers else shuffled


def _shuffled(rows: list[dict[str, Any]], random: Random) -> list[dict[str, Any]]:
    return random.sample(rows, len(rows))
