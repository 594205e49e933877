"""Calls that are collected, and run only when the test says so, and the clock by which they are due."""

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import count, islice, takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack, overload

from rota.client.default_clients import default_client
from rota.durations import MICROSECONDS, Duration, microseconds, unix_microseconds, utc_datetime
from rota.protocol.entry import Kind
from rota.protocol.new_tasks import NewTask
from rota.protocol.schedule_store import occurrence_id
from rota.protocol.task_states import State
from rota.tasks.registry import default_registry
from rota.testing.captured_calls import CapturedCall, Expected, WantedCalls, captured_call, said_of
from rota.testing.inline_runs import Manner, Ran, raise_failure, run_attempt
from rota.testing.kept_tasks import Books, KeptTask
from rota.testing.stand_in import StandIn, standing_in

if TYPE_CHECKING:
    from rota.client.task import Task

DEFAULT_MOST: Final = 1000
_LAST_SHOWN: Final = 5
_HOW_TO_RUN: Final = (
    "capture() runs nothing by itself. Have the test call drain() of what capture() gives, after clock.move(...) for "
    "what is not due yet; or run each call at once with eager()"
)
_MOST_OCCURRENCES: Final = 10_000


class CaptureClock:
    """Stands still, at the time when the capture began or at which it was to begin, until it is moved; then what is due
    by then may be run."""

    def __init__(self, moved: Callable[[int, int], None], at: datetime | None = None) -> None:
        self.now_us = round(time.time() * MICROSECONDS) if at is None else unix_microseconds(at, "at")
        self._moved = moved

    def __repr__(self) -> str:
        return f"<clock at {self.now.isoformat(sep=' ', timespec='milliseconds')}>"

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return utc_datetime(self.now_us)

    def move(self, by: Duration) -> datetime:
        """Move on by seconds or a timedelta; returns the time. Raises TypeError, or ValueError for a move back."""
        return self._move_to(self.now_us + microseconds(by, "by"))

    def move_to(self, when: datetime) -> datetime:
        """Move on to an aware datetime; returns the time. Raises TypeError, or ValueError for one that is naive, or
        before now."""
        return self._move_to(unix_microseconds(when, "when"))

    def _move_to(self, now_us: int) -> datetime:
        if now_us < self.now_us:
            raise ValueError(f"the clock only moves on: it is {self.now}, {utc_datetime(now_us)} is before that")
        before_us, self.now_us = self.now_us, now_us
        try:
            self._moved(before_us, now_us)
        except ValueError:  # too far at once
            self.now_us = before_us
            raise
        return self.now


def _occurrences_between(after_us: int, until_us: int) -> list[NewTask]:
    """Return the tasks of the declared schedules, in order. Raises ValueError for more than 10,000 of one schedule."""
    from rota.schedules.occurrences import body_of, occurrences  # noqa: PLC0415 - reads cron expressions

    found: list[tuple[int, NewTask]] = []
    for schedule in (each for task in default_registry for each in task.schedules):
        passed = takewhile(lambda each: each.at_us <= until_us, occurrences(schedule, after_us))
        at_most = list(islice(passed, _MOST_OCCURRENCES + 1))
        if len(at_most) > _MOST_OCCURRENCES:
            raise ValueError(
                f"the schedule {schedule.name!r} occurs more than {_MOST_OCCURRENCES:,} times: move the clock in "
                "steps, or have it begin where the test plays, as in capture(at=...)"
            )
        for each in at_most:
            task_id = occurrence_id(schedule.name, each.at_us)
            new = NewTask(task_id, schedule.queue, body_of(schedule, task_id), f"@{each.due_us}")
            found.append((each.due_us, new))
    return [new for _, new in sorted(found, key=lambda one: one[0])]


class EndlessDrain(RuntimeError):
    """A drain has made as many attempts as it may, and there is more to run."""


class Capture(Sequence[CapturedCall]):
    """The calls that were enqueued, in order, without duplicates; `clock` is the time by which they are due.

    A test has it of `capture()`.
    """

    def __init__(self, *, at: datetime | None = None, schedules: bool = True) -> None:
        self.clock = CaptureClock(self._moved, at)
        self._schedules = schedules
        self._calls: list[CapturedCall] = []
        self._books = Books(lambda: self.clock.now_us)
        self._waiting = WaitingTasks(self._books)
        self._stand_in = StandIn(self._books, self._accepted, _HOW_TO_RUN)

    # The calls

    @overload
    def __getitem__(self, at: int, /) -> CapturedCall: ...
    @overload
    def __getitem__(self, at: slice, /) -> list[CapturedCall]: ...
    def __getitem__(self, at: int | slice, /) -> CapturedCall | list[CapturedCall]:
        return self._calls[at]

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"<capture of {list(map(str, self._calls))}>"

    def clear(self) -> None:
        """Forget all calls and their tasks; the clock stays where it is."""
        self._calls.clear()
        self._stand_in.clear()
        self._waiting.clear()

    def of(self, task: "Task[..., Any] | str", **expected: Unpack[Expected]) -> list[CapturedCall]:
        """The calls of a task, or of a name, that are as expected: see `Expected`."""
        return self._found(WantedCalls(task, expected))

    def assert_enqueued(
        self, task: "Task[..., Any] | str", *, times: int | None = None, **expected: Unpack[Expected]
    ) -> list[CapturedCall]:
        """Assert that a call of the task was enqueued that is as expected, just so many `times` where it is said;
        returns those calls. The AssertionError says what was enqueued instead.

        Raises InvalidArguments for arguments that no call of the task could have.
        """
        __tracebackhide__ = True
        wanted = WantedCalls(task, expected)
        found = self._found(wanted)
        if not found and times is None:
            raise AssertionError(f"no call of {wanted} was enqueued; {said_of(self._calls, wanted)}")
        if times is not None and len(found) != times:
            raise AssertionError(
                f"{len(found)} calls of {wanted} were enqueued, not {times}; {said_of(self._calls, wanted)}"
            )
        return found

    def assert_not_enqueued(self, task: "Task[..., Any] | str | None" = None, **expected: Unpack[Expected]) -> None:
        """Assert that no call of the task was enqueued that is as expected; without a task, that nothing was."""
        __tracebackhide__ = True
        if task is None and expected:
            raise TypeError(f"say of which task no call is to have {', '.join(expected)}")
        found = self._calls if task is None else self._found(WantedCalls(task, expected))
        if found:
            lines = "\n".join(f"  {call}" for call in found)
            raise AssertionError(f"{len(found)} calls were enqueued that should not have been:\n{lines}")

    # Running them

    def drain(self, *, raises: bool = True, limits: bool = False, most: int = DEFAULT_MOST) -> list[Ran]:
        """Run what is due by the clock, and what that enqueues, until nothing is left; returns the attempts in order.

        `raises`: what a task raises comes out of this, and the rest stays to be drained; else it is told in the
        attempt. A failed one that has retries left is due again after its back-off, without luck: the longest that
        jitter draws. `limits`: the soft time limit is raised. Raises EndlessDrain after `most` attempts.
        """
        ran: list[Ran] = []
        while (kept := self._waiting.next(self.clock.now_us)) is not None:
            if len(ran) == most:
                self._waiting.put_back(kept)
                raise EndlessDrain(_endless(ran, most))
            attempt = run_attempt(self._books, kept, self.clock.now_us, Manner(retries=True, limits=limits))
            ran.append(attempt)
            if kept.state is State.SCHEDULED:
                self._waiting.add(kept)
            if raises and attempt.has_failed:
                raise_failure(attempt, kept)
        return ran

    def _found(self, wanted: WantedCalls) -> list[CapturedCall]:
        return [call for call in self._calls if not wanted.differences(call)]

    def _accepted(self, namespace: str, tasks: Sequence[tuple[NewTask, KeptTask]]) -> None:
        for new, kept in tasks:
            self._calls.append(captured_call(namespace, new, kept.entry.kind))
            self._waiting.add(kept)

    def _moved(self, before_us: int, now_us: int) -> None:
        if not self._schedules or not any(task.schedules for task in default_registry):
            return
        namespace = default_client().namespace
        for new in _occurrences_between(before_us, now_us):
            _, kept = self._books.accept(namespace, new, Kind.PERIODIC)
            if kept is not None:
                self._accepted(namespace, [(new, kept)])


class WaitingTasks:
    """What waits to be drained: what is ready, in its order, and what is due later."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._ready: deque[KeptTask] = deque()
        self._scheduled: list[_Due] = []
        self._numbers = count()

    def clear(self) -> None:
        """Nothing waits."""
        self._ready.clear()
        self._scheduled.clear()

    def add(self, kept: KeptTask) -> None:
        """It waits from now on: behind the others, or before them if it was enqueued so."""
        if kept.state is State.SCHEDULED:
            heapq.heappush(self._scheduled, _Due(kept.entry.due_us, next(self._numbers), kept))
        elif kept.is_front:
            self._ready.appendleft(kept)
        else:
            self._ready.append(kept)

    def next(self, now_us: int) -> KeptTask | None:
        """Take the next that is ready by now; None when none is."""
        while self._scheduled and self._scheduled[0].due_us <= now_us:
            kept = heapq.heappop(self._scheduled).kept
            if kept.state is State.SCHEDULED:
                self._books.promote(kept)
                self.add(kept)
        while self._ready:
            kept = self._ready.popleft()
            if kept.state is State.READY:  # else it was cancelled
                return kept
        return None

    def put_back(self, kept: KeptTask) -> None:
        """It is the next one again."""
        self._ready.appendleft(kept)


class _Due(NamedTuple):
    due_us: int
    number: int
    kept: KeptTask


def _endless(ran: Sequence[Ran], most: int) -> str:
    last = ", ".join(f"{each.task} ({each.outcome})" for each in ran[-_LAST_SHOWN:])
    return (
        f"{most:,} attempts were made, and there is more to run; the last were {last}. Does a task enqueue itself, or "
        "is it tried again without a delay? drain(most=...) allows more"
    )


@contextmanager
def capture(*, at: datetime | None = None, schedules: bool = True) -> Iterator[Capture]:
    """Collect what is enqueued in the block, by whichever client of this process, instead of sending it; no server and
    no configuration is needed. Gives the calls, with a clock to move and `drain` to run them.

    `at`: an aware datetime at which the clock is to begin, instead of now. `schedules`: whether the declared tasks' own
    occur as the clock is moved. Handles answer inside the block: `status` and `cancel` as with a server; `wait` and
    `result` raise NotRun for what was not drained.
    """
    calls = Capture(at=at, schedules=schedules)
    with standing_in(calls._stand_in):  # noqa: SLF001 - of this module
        yield calls
