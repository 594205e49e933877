"""One attempt: from a claim to its outcome. Nothing here talks to Redis."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import assert_never

from rota.child.fence import NANOSECONDS
from rota.child.settings import WorkerSettings
from rota.child.slots import CurrentTask as SlotTask
from rota.child.slots import Slot, boottime_ns
from rota.current import CurrentTask, running
from rota.durations import utc_datetime
from rota.hooks import Hooks
from rota.protocol.entry import Entry
from rota.protocol.epitaph import Epitaph, error_line, traceback_text
from rota.protocol.outcome import Dead, Done, Expired, Outcome, Retry
from rota.registry import Registry
from rota.retry import GiveUp, decide
from rota.telemetry import events, log
from rota.worker.holding import Claimed
from rota.worker.prepare import Ready, Unfit, prepare
from rota.worker.runner import Runner
from rota.worker.times import Times, times_of


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
    """An attempt that has ended."""

    entry: Entry
    task_name: str
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


def make_attempt(bench: Bench, claimed: Claimed) -> Attempt:
    """Run what was claimed, unless it cannot be run; the slot names it from here on. Never raises for its sake."""
    entry = claimed.claim.entry
    prepared = prepare(claimed.claim.body, bench.registry, bench.settings)
    start_ns = boottime_ns()
    times = times_of(entry, claimed.anchor, start_ns)
    limit = prepared.options.time_limit if isinstance(prepared, Ready) else bench.settings.time_limit_seconds
    limit_ns = round(limit * NANOSECONDS)
    bench.slot.start_task(SlotTask(entry.id, prepared.name, entry.queue, start_ns, start_ns + limit_ns))
    current = _current(entry, prepared.name, times, limit_ns, bench.slot)
    verdict, runtime_seconds = _carry_out(bench, current, prepared, entry, times)
    if isinstance(verdict.outcome, Dead):
        _tell_of_death(bench.hooks, current, verdict)
    return Attempt(entry, prepared.name, times, runtime_seconds, verdict)


def _carry_out(
    bench: Bench, current: CurrentTask, prepared: Ready | Unfit, entry: Entry, times: Times
) -> tuple[Verdict, float]:
    match prepared:
        case Unfit(fault, error):
            return _dead(entry, fault, error, None), 0.0
        case Ready() if _has_expired(prepared, times.lag_seconds):
            return Verdict(Expired()), 0.0
        case Ready():
            bench.started(entry, times)
            started = time.monotonic()
            exception = _guarded(bench, current, prepared)
            return _judge(bench, prepared, entry, exception), time.monotonic() - started
        case _:
            assert_never(prepared)


def _guarded(bench: Bench, current: CurrentTask, ready: Ready) -> BaseException | None:
    try:
        with running(current), bench.hooks.wrapped(current):
            bench.runner.call(ready.task, ready.args, ready.kwargs)
    except BaseException as exception:  # noqa: BLE001 - the task boundary: SystemExit fails the attempt as well
        return exception
    return None


def _judge(bench: Bench, ready: Ready, entry: Entry, exception: BaseException | None) -> Verdict:
    if exception is None:
        return Verdict(Done())
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


def _tell_of_death(hooks: Hooks, current: CurrentTask, verdict: Verdict) -> None:
    for hook in hooks.dead:
        try:
            hook(current, verdict.error)
        except BaseException as error:  # noqa: BLE001 - the application's code, after the task's end is decided
            log.logger().error(events.HOOK_FAILED, hook=f"{hook.__module__}.{hook.__qualname__}", exc_info=error)


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
