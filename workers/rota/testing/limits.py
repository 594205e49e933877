"""The soft time limit of tasks that a test runs, and their cancellation, told by a signal as by a master."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from rota.child.child_signals import SOFT_LIMIT_SIGNAL
from rota.child.slot_record import TaskRecord
from rota.child.slots import boottime_ns
from rota.soft_limit import soft_limit

_LOOK_SECONDS: Final = 0.005
_running: Final[list[TaskRecord]] = []


def is_in_main_thread() -> bool:
    """Whether this thread can be told: Python runs handlers of signals in the main one alone."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def limit_enforced(record: TaskRecord) -> Iterator[None]:
    """Have what the record shows to run be told when it is over its soft limit. To be used in the main thread."""
    _install()
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(record, over), name="rota-testing-limit", daemon=True)
    _running.append(record)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()
        _running.remove(record)


@cache  # the handler stays, as those that are to be called at forks do
def _install() -> None:
    soft_limit.install(SOFT_LIMIT_SIGNAL, lambda: any(record.is_cancelled() for record in _running))


def _watch(record: TaskRecord, over: threading.Event) -> None:
    main = threading.main_thread().ident
    assert main is not None
    while not over.wait(_LOOK_SECONDS):
        times = record.times()
        is_over = times is not None and 0 < times.soft_deadline_ns <= boottime_ns()
        if is_over or record.is_cancelled():
            signal.pthread_kill(main, SOFT_LIMIT_SIGNAL)
