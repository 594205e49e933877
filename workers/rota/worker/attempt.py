"""One attempt: from a claim to its outcome. Nothing here talks to Redis."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, assert_never

from rota.child.fence import NANOSECONDS
from rota.child.settings import WorkerSettings
from rota.child.slots import CurrentTask as SlotTask
from rota.child.slots import Slot, boottime_ns
from rota.current import CurrentTask, running
from rota.durations import utc_datetime
from rota.hooks import Hooks
from rota.protocol.entry import Entry
from rota.protocol.epitaph import Epitaph, error_line, traceback_text
from rota.protocol.outcome import Cancelled, Dead, Done, Expired, Outcome, Retry
from rota.registry import Registry
from rota.retry import GiveUp, decide
from rota.worker.application import NoCopies, call_hook
from rota.worker.holding import Claimed
from rota.worker.prepare import UNKNOWN_TASK, Fault, Ready, Unfit, prepare
from rota.worker.runner import Runner
from rota.worker.times import Times, times_of

NO_TASK: Final = ""  # the name, in metrics and logs, of a task whose body was never looked at


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an attempt ended. `reason` is that of a death, else ""; `error` what was wrong, in a line;
    `exception` what the task raised."""

    outcome: Outcome
    reason: str = ""
    error: str = ""
    exception: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that has ended. `times` are those of the call of the function, if it was called."""

    entry: Entry
    current: CurrentTask
    times: Times
    runtime_seconds: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Bench:
    """What attempts are made with. `started` is told of each start before the function is called, as a task that
    kills its worker has started too. `random` answers a number in [0, 1)."""

    settings: WorkerSettings
    registry: Registry
    hooks: Hooks
    slot: Slot
    runner: Runner
    started: Callable[[Entry, Times], None]
    random: Callable[[], float]


@dataclass(slots=True)
class _Course:
    """How an attempt goes: `times` of a start now, until the function is called."""

    times: Times
    runtime_seconds: float = 0.0


def make_attempt(bench: Bench, claimed: Claimed) -> Attempt:
    """Run what was claimed, unless it cannot be run; the slot names it from here on. Never raises for its sake."""
    entry = claimed.claim.entry
    # Before anything is looked at: whatever ends the process from here on, it is known which task it was.
    _publish(bench.slot, entry, UNKNOWN_TASK, bench.settings.time_limit_seconds)
    prepared = _prepare(bench, claimed.claim.body)
    limit_seconds = prepared.time_limit if isinstance(prepared, Ready) else bench.settings.time_limit_seconds
    name = NO_TASK if prepared is None else prepared.name
    _publish(bench.slot, entry, name, limit_seconds)
    course = _Course(times_of(entry, claimed.anchor, boottime_ns()))
    current = _current(entry, name, course.times, round(limit_seconds * NANOSECONDS), bench.slot)
    verdict = _carry_out(bench, claimed, prepared, current, course)
    return Attempt(entry, current, course.times, course.runtime_seconds, verdict)


def tell_of_death(bench: Bench, attempt: Attempt) -> None:
    """Call the hooks for a task that is dead, once its outcome is in the slot: if one kills the worker, the death
    counts. They have a time limit of their own, the fleet's."""
    if not isinstance(attempt.verdict.outcome, Dead):
        return
    bench.slot.extend_task(boottime_ns() + round(bench.settings.time_limit_seconds * NANOSECONDS))
    for hook in bench.hooks.dead:
        call_hook(hook, attempt.current, attempt.verdict.error)


def _publish(slot: Slot, entry: Entry, name: str, limit_seconds: float) -> None:
    now_ns = boottime_ns()
    slot.start_task(SlotTask(entry.id, name, entry.queue, now_ns, now_ns + round(limit_seconds * NANOSECONDS)))


def _prepare(bench: Bench, body: bytes) -> Ready | Unfit | None:
    """None for a task that was cancelled after the claim whose answer was lost: its body is gone."""
    if not body:
        return None
    try:
        return prepare(body, bench.registry, bench.settings)
    except Exception as error:  # noqa: BLE001 - the task boundary: a body nobody foresaw is no reason to end a worker
        return Unfit(Fault.GARBAGE, f"it cannot be prepared: {error_line(error)}")


def _carry_out(
    bench: Bench, claimed: Claimed, prepared: Ready | Unfit | None, current: CurrentTask, course: _Course
) -> Verdict:
    entry = claimed.claim.entry
    match prepared:
        case None:
            return Verdict(Cancelled())
        case Unfit(fault, error):
            return _dead(entry, fault, error, None)
        case Ready() if _has_expired(prepared, course.times.lag_seconds):
            return Verdict(Expired())
        case Ready():
            exception = _guarded(bench, current, lambda: _call(bench, claimed, prepared, current, course))
            return _judge(bench, prepared, entry, exception)
        case _:
            assert_never(prepared)


def _guarded(bench: Bench, current: CurrentTask, call: Callable[[], None]) -> BaseException | None:
    try:
        with NoCopies(), running(current), bench.hooks.wrapped(current):
            call()
    except BaseException as exception:  # noqa: BLE001 - the task boundary: SystemExit fails the attempt as well
        return exception
    return None


def _call(bench: Bench, claimed: Claimed, ready: Ready, current: CurrentTask, course: _Course) -> None:
    """The start, and nothing between it and the function: what hooks took before is lag."""
    entry = claimed.claim.entry
    course.times = times_of(entry, claimed.anchor, boottime_ns())
    current.lag_seconds = course.times.lag_seconds
    bench.started(entry, course.times)
    started = time.monotonic()
    try:
        with NoCopies():  # inside the hooks: what they do after a task is done once
            bench.runner.call(ready.task, ready.args, ready.kwargs)
    finally:
        course.runtime_seconds = time.monotonic() - started


def _judge(bench: Bench, ready: Ready, entry: Entry, exception: BaseException | None) -> Verdict:
    if exception is None:
        return Verdict(Done())
    with NoCopies():  # the back-off may be the application's function
        decided = decide(ready.options, entry.failures + 1, exception, bench.random)
    match decided:
        case Retry():
            return Verdict(decided, error=error_line(exception), exception=exception)
        case GiveUp(reason, why):
            return _dead(entry, reason, why, exception)
        case _:
            assert_never(decided)


def _dead(entry: Entry, reason: str, why: str, exception: BaseException | None) -> Verdict:
    trace = "" if exception is None else traceback_text(exception)
    epitaph = Epitaph(str(reason), why, entry.attempt, trace).to_json(datetime.now(UTC))
    return Verdict(Dead(epitaph), str(reason), why, exception)


def _current(entry: Entry, name: str, times: Times, limit_ns: int, slot: Slot) -> CurrentTask:
    limit = timedelta(microseconds=limit_ns // 1000)

    def extend() -> datetime:
        now_ns = boottime_ns()
        slot.beat()
        slot.extend_task(now_ns + limit_ns)
        return datetime.now(UTC) + limit

    return CurrentTask(
        entry.id,
        name,
        entry.queue,
        entry.kind.label,
        entry.attempt,
        entry.crashes,
        utc_datetime(entry.due_us),
        times.lag_seconds,
        utc_datetime(times.start_us) + limit,
        extend,
    )


def _has_expired(ready: Ready, lag_seconds: float) -> bool:
    return ready.options.expires is not None and lag_seconds > ready.options.expires
