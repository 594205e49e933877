"""Rota's tasks and its producer. If there are several queues, the producer uses them in turn."""

import itertools
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import rota

QUEUES = os.environ["BENCH_QUEUES"].split()
PROBE = import_module(os.environ["BENCH_TASKS"])
TASKS = {name: rota.task(name=name, queue=QUEUES[0])(getattr(PROBE, name)) for name in PROBE.NAMES}
_in_turn = itertools.cycle(QUEUES)


def enqueue(task: str, *args: Any) -> None:
    """Enqueue one task in one round trip."""
    TASKS[task].enqueue(*args)


def enqueue_many(task: str, rows: Sequence[Sequence[Any]]) -> None:
    """Enqueue many tasks at once."""
    function = TASKS[task]
    if len(QUEUES) == 1:
        rota.enqueue_many([function.call(*row) for row in rows])
    else:
        rota.enqueue_many([function.using(queue=next(_in_turn)).call(*row) for row in rows])


def enqueue_many_at(task: str, due_rows: Sequence[tuple[Any, ...]]) -> None:
    """Enqueue many tasks at once, each with its own due time."""
    function = TASKS[task]
    rota.enqueue_many([function.using(at=datetime.fromtimestamp(due, UTC)).call(*args) for due, *args in due_rows])
