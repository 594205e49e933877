"""The soft time limit and cancellation. Whenever the signal arrives, the exception is raised in the intended call and
nowhere else.
"""

import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from rota.child.child_process import SOFT_LIMIT_SIGNAL
from rota.child.slots import boottime_ns
from rota.errors import Cancelled, TimeLimit
from rota.soft_limit import SoftLimit, soft_limit, time_limit_deferred
from rota.telemetry.log import ForeignHandler, Logger

MILLISECOND_NS = 1_000_000
_LATER_NS = 3600 * 10**9


def _forever() -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        time.sleep(0.001)


def _send_signal() -> None:
    os.kill(os.getpid(), SOFT_LIMIT_SIGNAL)


@pytest.fixture
def limit() -> Iterator[SoftLimit]:
    """Yield the soft limit of this process. It is the same object that the client defers during its calls. While the
    test runs, this object handles the signal of the time limit.
    """
    # `install` installs this handler too, but also registers functions to be called at forks, which could not be
    # removed after the test.
    before = signal.signal(SOFT_LIMIT_SIGNAL, soft_limit.signalled)
    soft_limit._thread = threading.get_ident()
    hook = sys.unraisablehook
    send = partial(signal.pthread_kill, threading.get_ident(), SOFT_LIMIT_SIGNAL)
    sys.unraisablehook = partial(soft_limit.dropped, send, hook)
    yield soft_limit
    sys.unraisablehook = hook
    signal.signal(SOFT_LIMIT_SIGNAL, before)


class Cancels:
    """A stand-in for the slot, which has the number of the running task, and for the process table, which has the
    number of the task that was cancelled last. The running task is cancelled if both numbers are equal.
    """

    running = cancelled = 0

    def is_cancelled(self) -> bool:
        return self.running == self.cancelled

    def cancel(self, number: int) -> None:
        """Cancel the task as the master does."""
        self.cancelled = number
        _send_signal()


@pytest.fixture
def cancels(limit: SoftLimit, monkeypatch: pytest.MonkeyPatch) -> Cancels:
    cancels = Cancels()
    cancels.running = 1
    monkeypatch.setattr(limit, "_is_cancelled", cancels.is_cancelled)
    return cancels


def test_a_soft_limit_signal_too_early_or_between_tasks_has_no_effect(limit: SoftLimit) -> None:
    def task() -> str:
        _send_signal()
        return "done"

    _send_signal()
    assert limit.call(boottime_ns() + _LATER_NS, task, (), {}) == "done"
    _send_signal()


def test_a_soft_limit_signal_after_the_deadline_ends_the_task(limit: SoftLimit) -> None:
    with pytest.raises(TimeLimit):
        limit.call(boottime_ns(), _forever, (), {})  # the deadline has already passed, so no signal is needed
    deadline_ns = boottime_ns() + 20 * MILLISECOND_NS
    threading.Timer(0.1, _send_signal).start()
    with pytest.raises(TimeLimit):
        limit.call(deadline_ns, _forever, (), {})
    assert boottime_ns() > deadline_ns


def test_the_soft_limit_is_raised_once_per_deadline(limit: SoftLimit) -> None:
    caught = []

    def listen() -> None:
        try:
            _send_signal()
            caught.append("went on")
        except TimeLimit:
            caught.append("told")

    def task() -> None:
        for _ in range(2):
            limit.extend(boottime_ns() - 1)
            listen()
            listen()

    limit.call(boottime_ns() + _LATER_NS, task, (), {})
    assert caught == ["told", "went on"] * 2


def test_a_client_call_finishes_before_the_soft_limit_is_raised(limit: SoftLimit) -> None:
    done = []

    def task() -> None:
        with time_limit_deferred:
            limit.extend(boottime_ns() - 1)
            with time_limit_deferred:
                _send_signal()
            done.append("both")
        done.append("more")

    with pytest.raises(TimeLimit):
        limit.call(boottime_ns() + _LATER_NS, task, (), {})
    assert done == ["both"]


def test_a_client_call_in_another_thread_does_not_delay_the_soft_limit(limit: SoftLimit) -> None:
    entered, leave = threading.Event(), threading.Event()

    def in_thread() -> None:
        with time_limit_deferred:
            entered.set()
            leave.wait()

    def task() -> None:
        entered.wait()
        limit.extend(boottime_ns() - 1)
        _send_signal()
        pytest.fail("deferred for another thread")

    thread = threading.Thread(target=in_thread)
    thread.start()
    with pytest.raises(TimeLimit):
        limit.call(boottime_ns() + _LATER_NS, task, (), {})
    leave.set()
    thread.join()


# Cancellation


def test_a_cancellation_is_raised_once_with_or_without_a_soft_limit(limit: SoftLimit, cancels: Cancels) -> None:
    def task() -> None:
        with pytest.raises(Cancelled):
            cancels.cancel(1)
        _send_signal()  # the master sends the signal again, because a renewal also names the task
        raise KeyError("went on")

    for deadline_ns in (0, boottime_ns() + _LATER_NS):
        cancels.cancelled = 0
        with pytest.raises(KeyError):
            limit.call(deadline_ns, task, (), {})


def test_a_task_cancelled_before_its_call_is_not_called(limit: SoftLimit, cancels: Cancels) -> None:
    cancels.cancel(1)
    with pytest.raises(Cancelled):
        limit.call(0, pytest.fail, ("it was called",), {})


def test_cancelling_one_task_does_not_end_another(limit: SoftLimit, cancels: Cancels) -> None:
    def task() -> str:
        _send_signal()
        return "done"

    cancels.cancel(1)  # too late, because the call of task 1 has already returned
    cancels.running = 3
    assert limit.call(0, task, (), {}) == "done"


def test_a_task_past_its_soft_limit_can_still_be_cancelled(limit: SoftLimit, cancels: Cancels) -> None:
    def task() -> None:
        limit.extend(boottime_ns() - 1)
        with pytest.raises(TimeLimit):
            _send_signal()
        cancels.cancel(1)

    with pytest.raises(Cancelled):
        limit.call(boottime_ns() + _LATER_NS, task, (), {})


# The following code runs in a separate process, because its fork handlers cannot be removed.

_FORKS = """
import os, signal
from rota.child.child_process import SOFT_LIMIT_SIGNAL
from rota.child.slots import boottime_ns
from rota.errors import TimeLimit
from rota.soft_limit import soft_limit

def before():
    if told:
        os.kill(os.getpid(), SOFT_LIMIT_SIGNAL)  # as if it came in the middle of the fork
        done.append("before")

told, done = [], []
os.register_at_fork(before=before)
soft_limit.install(SOFT_LIMIT_SIGNAL, lambda: False)

def task():
    soft_limit.extend(boottime_ns() - 1)
    told.append(True)
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), SOFT_LIMIT_SIGNAL)
        os._exit(7)  # the copy heard nothing of it
    raise AssertionError("went on after the fork")

try:
    soft_limit.call(boottime_ns() + 10**12, task, (), {})
except TimeLimit:
    done.append("told")
print(*done, os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_soft_limit_signal_during_a_fork_is_deferred_in_the_parent_only() -> None:
    answer = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, check=True)
    assert (answer.stdout.split(), answer.stderr) == (["before", "told", "7"], "")


class _SlowFinalizer:
    def __init__(self, finalize: Callable[[], object]) -> None:
        self.finalize = finalize

    def __del__(self) -> None:
        self.finalize()


@pytest.mark.parametrize("expected", [TimeLimit, Cancelled])
def test_a_soft_limit_that_python_drops_in_a_finalizer_is_raised_again(
    limit: SoftLimit, cancels: Cancels, expected: type[BaseException]
) -> None:
    finalized: list[str] = []

    def finalize() -> None:
        try:
            if expected is Cancelled:
                cancels.cancel(1)
            _forever()
        except expected:
            finalized.append("interrupted")
            raise

    def task() -> None:
        doomed = _SlowFinalizer(finalize)
        del doomed
        finalized.append("went on")
        time.sleep(60)

    watch = threading.Timer(0.05, _send_signal)
    watch.start()
    began = time.monotonic()
    with pytest.raises(expected):
        limit.call(boottime_ns() + 20 * MILLISECOND_NS if expected is TimeLimit else 0, task, (), {})
    assert time.monotonic() < began + 30, "the exception did not end the blocking call"
    watch.join()
    assert finalized == ["interrupted", "went on"]


def test_a_soft_limit_that_python_drops_is_not_raised_after_the_call_or_a_new_deadline(limit: SoftLimit) -> None:
    def finalize() -> None:
        time.sleep(0.002)
        _send_signal()

    def task() -> str:
        doomed = _SlowFinalizer(finalize)
        del doomed
        limit.extend(boottime_ns() + _LATER_NS)
        time.sleep(0.05)
        return "done"

    assert limit.call(boottime_ns() + MILLISECOND_NS, task, (), {}) == "done"
    assert limit.call(boottime_ns() + MILLISECOND_NS, lambda: _SlowFinalizer(finalize) and "over", (), {}) == "over"
    limit.call(0, time.sleep, (0.05,), {})


def test_other_exceptions_that_python_drops_are_still_reported(
    limit: SoftLimit, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    hook = partial(limit.dropped, _send_signal, lambda args: reported.append(args.exc_type))
    monkeypatch.setattr(sys, "unraisablehook", hook)
    doomed = _SlowFinalizer(lambda: 1 / 0)
    del doomed
    assert reported == [ZeroDivisionError]


# Thousands of signals that arrive at any step

_SIGNAL_STORM = """
import os, random, sys, time
pid, number = int(sys.argv[1]), int(sys.argv[2])
print("raining", flush=True)
while os.getppid() == pid:
    os.kill(pid, number)
    until = time.perf_counter() + random.random() * 2e-5
    while time.perf_counter() < until:
        pass
"""


@contextmanager
def _signal_storm() -> Iterator[None]:
    argv = [sys.executable, "-c", _SIGNAL_STORM, str(os.getpid()), str(SOFT_LIMIT_SIGNAL)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


class _Counts:
    """Two counts that `protocol_call` increases one after the other while the time limit is deferred. If the counts
    differ, an exception has interrupted `protocol_call`.
    """

    first = second = 0

    def protocol_call(self) -> None:
        with time_limit_deferred:
            self.first += 1
            for _ in range(random.randrange(50)):
                pass
            self.second += 1


def test_thousands_of_soft_limit_signals_never_interrupt_protocol_calls(limit: SoftLimit, cancels: Cancels) -> None:
    counts, outcomes = _Counts(), {"done": 0, "over": 0, "cancelled": 0}

    def task(steps: int, cancelled_at: int) -> None:
        for step in range(steps):
            if step == cancelled_at:
                # From now on, the next of the constantly sent signals is meant for this task.
                cancels.cancelled = cancels.running
            counts.protocol_call()

    with _signal_storm():
        for number in range(1, 40_000, 2):
            # This loop represents the worker's loop. Any exception outside the try fails the test.
            deadline_ns = boottime_ns() + random.randrange(100_000) if random.random() < 0.7 else 0
            cancels.running = number
            outcome = "done"
            try:
                limit.call(deadline_ns, task, (random.randrange(12), random.randrange(24)), {})
            except TimeLimit:
                outcome = "over" if 0 < deadline_ns <= boottime_ns() else "over too early"
            except Cancelled:
                outcome = "cancelled" if cancels.cancelled == number else "another was"
            outcomes[outcome] += 1
            assert counts.first == counts.second
    assert min(outcomes.values()) > 500, outcomes


def test_the_soft_limit_does_not_interrupt_a_log_call_of_the_application(limit: SoftLimit) -> None:
    lines: list[str] = []

    class SignallingLogger(Logger):
        def info(self, event: str, /, **_fields: object) -> None:
            _send_signal()
            lines.append(event)

    handler = ForeignHandler(lambda: SignallingLogger.__new__(SignallingLogger))

    def task() -> None:
        time.sleep(0.002)
        handler.handle(logging.LogRecord("theirs", logging.INFO, "", 0, "said", (), None))
        lines.append("went on")

    with pytest.raises(TimeLimit):
        limit.call(boottime_ns() + MILLISECOND_NS, task, (), {})
    assert lines == ["said"]
