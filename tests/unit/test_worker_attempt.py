"""An attempt, from the claim to the outcome. The worker process survives everything that happens during the attempt."""

import asyncio
import contextvars
import dataclasses
import os
import threading
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any

import pytest

from rota.child.slot_layout import PROCESS_ROW_BYTES, REGION_BYTES
from rota.child.slot_record import KillPolicy, TaskInSlot
from rota.child.slots import Slot, boottime_ns
from rota.client.status import attempts_of
from rota.client.task import Task
from rota.errors import Cancelled, Dead, Retry
from rota.protocol.body import Body, encode_body
from rota.protocol.entry import parse_entry
from rota.protocol.keys import UNKNOWN_TASK
from rota.protocol.outcome import (
    DONE,
    CancelledOutcome,
    DeadOutcome,
    Done,
    Expired,
    Outcome,
    RetryOutcome,
    read_attempt_records,
)
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import Store
from rota.protocol.turns import ThrottleStatus
from rota.soft_limit import soft_limit
from rota.tasks.claimed_call import MayStart, Preparer, StartSteps, take_steps
from rota.tasks.hooks import AttemptFailure, CurrentTask, Hooks, current_task
from rota.tasks.options import Rate, TaskOptions
from rota.tasks.registry import Registry
from rota.worker.application import NoCopies, Runner
from rota.worker.attempt import Attempt, AttemptMaker, ShortLimits
from rota.worker.claims import Claimed
from rota.worker.executor import Executor
from rota.worker.redis_times import Anchor
from support.child_settings import worker_settings

FLEET_LIMIT_SECONDS = 100.0
SECOND_NS = 1_000_000_000


class Bench:
    """The executor of a worker, without the rest of the worker. `seen_tasks` lists the content of the slot at each call
    of the application's code. `start_calls` lists the entries whose start was marked in Redis, and `throttle_calls` the
    entries whose rate was checked.
    """

    def __init__(self, registry: Registry | None = None) -> None:
        self.slot = Slot(memoryview(bytearray(REGION_BYTES)), memoryview(bytearray(PROCESS_ROW_BYTES)))
        self.hooks = Hooks()
        self.runner = Runner()
        self.claimed = 0
        self.rings: list[int] = []
        self.seen_tasks: list[TaskInSlot | None] = []
        self.start_calls: list[bytes] = []
        self.is_started = True
        self.throttle_calls: list[bytes] = []
        self.status = ThrottleStatus.START
        settings = worker_settings(time_limit_seconds=FLEET_LIMIT_SECONDS)
        self.registry = Registry() if registry is None else registry
        maker = AttemptMaker(
            round(FLEET_LIMIT_SECONDS * SECOND_NS),
            Preparer(self.registry, settings),
            self.hooks,
            lambda *_: None,
            NoCopies(),
            lambda: 0.5,
            ShortLimits(self.slot, lambda: self.rings.append(1)),
            max_result_kb=1,
            owner="",
        )
        self.executor = Executor(maker, self.slot.record(0), self.runner, self.check_start)

    def declare(self, function: Callable[..., Any], name: str = "", **options: Any) -> None:
        name = name or function.__name__
        self.registry.add(Task(function, name, TaskOptions(**options)))

    def check_start(self, attempt: Attempt) -> MayStart:
        """Take the steps before a start. `status` and `is_started` determine the replies of a fake Redis."""
        starts = StartSteps("owner", Store("n"), lambda: self.slot.is_intact, lambda *_: None)
        return take_steps(attempt.steps_to_start(starts), lambda step: self.reply(step, attempt.entry.text))

    def reply(self, command: ScriptCall[Any] | float, entry: bytes) -> Any:
        if isinstance(command, float):
            return None
        if command.script.name == "throttle":
            self.throttle_calls.append(entry)
            return self.status, 0
        self.start_calls.append(entry)
        return entry[:-1] + b"b" if self.is_started else None

    def note_task(self) -> None:
        self.seen_tasks.append(self.slot.record(0).current())

    def cancel(self) -> None:
        """Cancel the task as the master does, as if the signal arrived at once."""
        self.slot.record(0).cancelled = self.slot.record(0).number
        soft_limit.signalled()

    def attempt(self, body: bytes) -> Attempt:
        made = self.try_attempt(body, start_by_ns=boottime_ns() + 60 * SECOND_NS)
        assert isinstance(made, Attempt)
        return made

    def try_attempt(self, body: bytes, start_by_ns: int) -> Attempt | ThrottleStatus | None:
        self.claimed += 1
        entry = parse_entry(b"id-%d default i 1000 1000 0 0 0 0 -" % self.claimed)
        now_ns = boottime_ns()
        soft_limit._is_cancelled = self.slot.record(0).is_cancelled
        claimed = Claimed(entry, body, Anchor(2000, now_ns, now_ns), 3, start_by_ns)
        return self.executor.attempt(claimed, now_ns)


def _body(name: str) -> bytes:
    return encode_body(Body("id-1", "default", name, []))


class _Surprise(Registry):
    def __init__(self, bench: list[Bench]) -> None:
        super().__init__()
        self._bench = bench

    def get(self, name: str) -> Task[..., Any] | None:
        del name
        self._bench[0].note_task()
        raise RecursionError("nobody thought of this")


def test_a_task_whose_preparation_raises_is_dead() -> None:
    benches: list[Bench] = []
    bench = Bench(_Surprise(benches))
    benches.append(bench)
    attempt = bench.attempt(_body("any"))
    (seen,) = bench.seen_tasks
    assert seen is not None
    assert (seen.id, seen.name, seen.queue) == ("id-1", UNKNOWN_TASK, "default")
    assert isinstance(attempt.outcome, DeadOutcome)
    assert attempt.reason == "garbage"
    assert "RecursionError: nobody thought of this" in attempt.error


def test_a_task_without_a_body_is_cancelled() -> None:
    attempt = Bench().attempt(b"")
    assert attempt.outcome == CancelledOutcome()
    assert (attempt.name, attempt.runtime_seconds) == ("", 0.0)


def test_while_a_task_runs_its_slot_shows_its_name_and_deadline() -> None:
    bench = Bench()

    def resize() -> None:
        bench.note_task()

    bench.declare(resize, time_limit=7.0)
    attempt = bench.attempt(_body("resize"))
    (seen,) = bench.seen_tasks
    assert seen is not None
    assert (seen.id, seen.name, seen.deadline_ns - seen.started_ns) == ("id-1", "resize", 7 * SECOND_NS)
    assert attempt.outcome == Done()
    assert attempt.runtime_seconds > 0


def test_a_task_claimed_too_long_ago_is_neither_run_nor_left_in_the_slot() -> None:
    bench = Bench()

    def resize() -> None:
        bench.note_task()

    bench.declare(resize)
    assert bench.try_attempt(_body("resize"), start_by_ns=boottime_ns() - 1) is None
    assert not bench.seen_tasks
    assert bench.slot.record(0).current() is None


def test_redis_marks_an_at_most_once_task_before_it_starts() -> None:
    bench = Bench()

    def charge() -> None:
        bench.note_task()

    bench.declare(charge, crash_limit=0, time_limit=7.0)
    attempt = bench.attempt(_body("charge"))
    (seen,) = bench.seen_tasks
    assert seen is not None
    assert bench.start_calls == [b"id-1 default i 1000 1000 0 0 0 0 -"]
    assert seen.entry == attempt.entry.text == b"id-1 default i 1000 1000 0 0 0 0 b"
    assert round((seen.deadline_ns - seen.started_ns) / SECOND_NS, 3) == 7.0
    assert seen.kill_policy == 0
    assert attempt.settlement().entry.text == seen.entry


def test_a_task_whose_start_redis_refuses_is_neither_run_nor_left_in_the_slot() -> None:
    bench = Bench()

    def charge() -> None:
        bench.note_task()

    bench.declare(charge, crash_limit=0)
    bench.is_started = False
    assert bench.try_attempt(_body("charge"), start_by_ns=boottime_ns() + 60 * SECOND_NS) is None
    # If the task has expired, Redis is not called.
    assert bench.try_attempt(_body("charge"), start_by_ns=boottime_ns() - 1) is None
    assert (bench.seen_tasks, len(bench.start_calls)) == ([], 1)
    assert bench.slot.record(0).current() is None


def test_the_back_off_function_is_called_once_per_number_of_failures() -> None:
    bench = Bench()
    calls: list[int] = []

    def resize() -> None:
        bench.note_task()

    def patience(failures: int) -> float:
        calls.append(failures)
        return 3.0

    bench.declare(resize, backoff=patience, crash_limit=5)
    for _ in range(3):
        bench.attempt(_body("resize"))
    kill_policies = [KillPolicy.from_word(seen.kill_policy) for seen in bench.seen_tasks if seen is not None]
    assert kill_policies == [KillPolicy(True, 3_000_000, 5)] * 3
    assert (calls, bench.start_calls) == ([1], [])


def test_while_a_task_runs_its_slot_shows_the_number_of_waiting_claimed_tasks() -> None:
    bench = Bench()

    def resize() -> None:
        bench.note_task()

    bench.declare(resize)
    before_ns = boottime_ns()
    bench.attempt(_body("resize"))
    (seen,) = bench.seen_tasks
    assert seen is not None
    assert seen.unstarted == 3
    assert before_ns <= seen.claimed_ns <= boottime_ns()


def test_a_heartbeat_of_the_task_moves_its_deadline_in_the_slot() -> None:
    bench = Bench()
    deadlines: list[datetime | None] = []

    def resize() -> None:
        current = current_task()
        bench.note_task()
        deadlines.append(current.deadline)
        current.heartbeat()
        bench.note_task()
        deadlines.append(current.deadline)

    bench.declare(resize, time_limit=7.0)
    bench.attempt(_body("resize"))
    before, after = bench.seen_tasks
    assert before is not None
    assert after is not None
    assert after.deadline_ns > before.deadline_ns
    first, second = deadlines
    assert first is not None
    assert second is not None
    assert second > first


def test_a_heartbeat_of_an_ended_task_does_not_extend_the_next_one() -> None:
    bench = Bench()
    left_running: list[CurrentTask] = []

    def leave_something_running() -> None:
        left_running.append(current_task())

    def resize() -> None:
        bench.note_task()
        left_running[0].heartbeat()
        bench.note_task()

    bench.declare(leave_something_running, time_limit=7000.0, soft_time_limit=6000.0)
    bench.declare(resize, time_limit=7.0, soft_time_limit=6.0)
    bench.attempt(_body("leave_something_running"))
    bench.attempt(_body("resize"))
    before, after = bench.seen_tasks
    assert before is not None
    assert before == after


def test_an_expired_task_runs_no_hook() -> None:
    bench = Bench()

    def around(_task: CurrentTask) -> Generator[None, None, None]:
        bench.note_task()
        yield

    def resize() -> None:
        bench.note_task()

    bench.hooks.around.append(around)
    bench.declare(resize, expires=0.0005)
    assert bench.attempt(_body("resize")).outcome == Expired()
    assert not bench.seen_tasks


def test_dead_hooks_run_under_the_time_limit_of_the_fleet() -> None:
    bench = Bench()

    def bury(_task: CurrentTask, _reason: str) -> None:
        bench.note_task()

    def fail() -> None:
        raise ValueError

    bench.hooks.dead.append(bury)
    bench.declare(fail, retries=0, time_limit=0.001)
    attempt = bench.attempt(_body("fail"))
    assert not bench.seen_tasks
    before_ns = boottime_ns()
    bench.executor.maker.call_failure_hooks(attempt)
    (seen,) = bench.seen_tasks
    assert seen is not None
    assert seen.deadline_ns - before_ns >= FLEET_LIMIT_SECONDS * SECOND_NS


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (KeyError("x"), [("failed", "KeyError: 'x'", False)]),
        (OSError("gone"), [("dead_on", "OSError: gone", True)]),
        (Dead("no use"), [("asked", "no use", True)]),
        (Retry(delay=1), []),
        (None, []),
    ],
)
def test_failure_hooks_receive_the_exception_and_whether_it_is_final(
    raised: Exception | None, expected: list[tuple[str, str, bool]]
) -> None:
    bench, failures = Bench(), list[AttemptFailure]()

    def work() -> None:
        if raised is not None:
            raise raised

    bench.hooks.failure.append(lambda _task, failure: failures.append(failure))
    bench.declare(work, retries=1, dead_on=OSError)
    attempt = bench.attempt(_body("work"))
    assert not failures
    bench.executor.maker.call_failure_hooks(attempt)
    assert [(each.reason, each.error, each.is_dead) for each in failures] == expected
    assert all(each.exception is raised for each in failures)


def test_failure_hooks_receive_tasks_that_could_not_run() -> None:
    bench, failures = Bench(), list[AttemptFailure]()
    bench.hooks.failure.append(lambda _task, failure: failures.append(failure))
    bench.executor.maker.call_failure_hooks(bench.attempt(_body("unheard_of")))
    [failure] = failures
    assert (failure.reason, failure.exception, failure.is_dead) == ("unknown_task", None, True)


def test_no_dead_hook_is_called_for_a_live_task() -> None:
    bench = Bench()

    def resize() -> None: ...

    def bury(_task: CurrentTask, _reason: str) -> None:
        bench.note_task()

    bench.hooks.dead.append(bury)
    bench.declare(resize)
    bench.executor.maker.call_failure_hooks(bench.attempt(_body("resize")))
    assert not bench.seen_tasks


def test_a_task_reports_progress_from_its_threads_and_coroutines() -> None:
    bench = Bench()
    reported: list[bytes] = []

    def note_task() -> None:
        running = bench.slot.record(0).current()
        assert running is not None
        reported.append(bench.slot.record(0).progress_of(running.entry))

    def steps() -> None:
        current_task().progress(1, 3)
        note_task()
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(lambda: current_task().progress(2, 3, "thread"),))
        thread.start()
        thread.join()
        note_task()

    async def coroutine() -> None:
        await asyncio.create_task(_report_progress(3))
        note_task()

    bench.declare(steps)
    bench.declare(coroutine)
    assert bench.attempt(_body("steps")).outcome == Done()
    assert bench.attempt(_body("coroutine")).outcome == Done()
    bench.runner.close()
    assert [(text.split(b" ")[:2], text.split(b" ")[3]) for text in reported] == [
        ([b"1", b"3"], b""), ([b"2", b"3"], b"thread"), ([b"3", b"-"], b""),
    ]  # fmt: skip


async def _report_progress(done: float) -> None:
    current_task().progress(done)


def test_a_task_that_reports_progress_other_than_a_number_fails() -> None:
    bench = Bench()

    def wrong() -> None:
        current_task().progress("half")  # type: ignore[arg-type]  # that is the claim

    bench.declare(wrong, retries=0)
    outcome = bench.attempt(_body("wrong")).outcome
    assert isinstance(outcome, DeadOutcome)
    assert b"a number from 0 to 9e15, not 'half'" in outcome.record


def test_the_record_of_a_failed_attempt_contains_owner_and_run_time() -> None:
    bench = Bench()
    bench.executor = dataclasses.replace(
        bench.executor, maker=dataclasses.replace(bench.executor.maker, owner="node:8:1")
    )

    def fails() -> None:
        raise ValueError("bad")

    bench.declare(fails, retries=1)
    outcome = bench.attempt(_body("fails")).outcome
    assert isinstance(outcome, RetryOutcome)
    [record] = attempts_of(read_attempt_records(outcome.record, "why"))
    assert (record.attempt, record.reason, record.error) == (1, "failed", "ValueError: bad")
    assert (record.node, record.pid) == ("node", os.getpid())
    assert record.run_seconds > 0


def test_a_result_is_encoded_only_if_it_is_stored() -> None:
    bench = Bench()

    def without_ttl() -> object:
        return object()

    def with_ttl() -> dict[str, list[int]]:
        return {"a": [1]}

    bench.declare(without_ttl)
    bench.declare(with_ttl, result_ttl=1.5)
    assert bench.attempt(_body("without_ttl")).outcome is DONE
    assert bench.attempt(_body("with_ttl")).outcome == Done(b'{"a":[1]}', 1500)


class _Odd(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("nobody looks in here")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "result is of type object; a result must be JSON"),
        ({"a": [1, {2}]}, "result.a[1] is of type set (pass a list); a result must be JSON"),
        ("x" * 1023, "the result has 1,025 bytes, but the limit is 1 KiB (max_result_kb)"),
        (_Odd(a=1), "the result cannot be written as JSON: RuntimeError: nobody looks in here"),
    ],
)
def test_an_invalid_result_is_refused_with_the_reason(value: object, message: str) -> None:
    bench = Bench()
    bench.declare(lambda: value, name="give", result_ttl=60.0)
    attempt = bench.attempt(_body("give"))
    assert attempt.outcome == Done(refused=message)
    assert attempt.settlement().run.endswith(f" give {message}".encode())


def test_the_run_record_of_a_task_has_its_start_run_time_and_pid() -> None:
    bench = Bench()
    bench.declare(lambda: None, name="work")
    bench.declare(lambda: None, name="forget", remember=False)
    attempt = bench.attempt(_body("work"))
    start_us, run_us = attempt.times.start_us, int(attempt.runtime_seconds * 1e6)
    assert attempt.settlement().run == f" {start_us} {run_us} {os.getpid()} work".encode()
    assert bench.attempt(_body("forget")).settlement().run == b""
    bench.declare(lambda: None, name="late", expires=0.000001)
    assert bench.attempt(_body("late")).settlement().run == f" 0 0 {os.getpid()} late".encode()
    assert bench.attempt(b"").settlement().run == f" 0 0 {os.getpid()} -".encode()


# Cancellation of a running task


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [(None, Done), (Cancelled(), CancelledOutcome), (ValueError(), CancelledOutcome), (Retry(5), CancelledOutcome),
     (Dead("why"), CancelledOutcome), (SystemExit(), CancelledOutcome)],
)  # fmt: skip
def test_a_cancelled_task_is_done_if_it_returns_and_otherwise_cancelled(
    raised: BaseException | None, outcome: type[Outcome]
) -> None:
    bench, seen = Bench(), []

    def linger() -> None:
        try:
            bench.cancel()
        except Cancelled:
            seen.append(current_task().cancelled)
        if raised is not None:
            raise raised

    bench.declare(linger, retries=5)
    attempt = bench.attempt(_body("linger"))
    assert (type(attempt.outcome), attempt.exception) == (outcome, raised)
    assert seen == [True]


def test_a_coroutine_is_cancelled_through_its_loop() -> None:
    bench, seen = Bench(), []

    async def linger() -> None:
        asyncio.get_running_loop().call_later(0.01, bench.cancel)
        try:
            await asyncio.gather(asyncio.sleep(600), asyncio.sleep(600))
        except asyncio.CancelledError:
            seen.append("cleaned up")
            raise

    bench.declare(linger)
    attempt = bench.attempt(_body("linger"))
    bench.runner.close()
    assert (attempt.outcome, type(attempt.exception), seen) == (CancelledOutcome(), Cancelled, ["cleaned up"])


def test_a_coroutine_cancelled_by_other_code_has_failed() -> None:
    bench = Bench()

    async def give_up() -> None:
        raise asyncio.CancelledError

    bench.declare(give_up, retries=0)
    attempt = bench.attempt(_body("give_up"))
    bench.runner.close()
    assert isinstance(attempt.outcome, DeadOutcome)


def test_hooks_see_that_a_task_was_cancelled() -> None:
    bench, seen = Bench(), []

    def around(_task: CurrentTask) -> Generator[None, None, None]:
        try:
            yield
        except Cancelled as error:
            seen.append(str(error))
            raise

    bench.hooks.around.append(around)
    bench.declare(bench.cancel)
    assert bench.attempt(_body("cancel")).outcome == CancelledOutcome()
    assert seen == ["the task was cancelled"]


def test_a_slot_that_was_overwritten_with_zeros_cancels_no_task() -> None:
    bench = Bench()

    def wipe(_failures: int) -> float:  # the worker calls the back-off even before the task's function
        bench.slot._bytes[:] = bytes(REGION_BYTES)
        return 7.0

    def fail() -> None:
        raise ValueError

    bench.declare(fail, backoff=wipe)
    assert isinstance(bench.attempt(_body("fail")).outcome, RetryOutcome)


def test_a_task_sees_only_its_own_cancellation() -> None:
    bench, seen = Bench(), []

    def check() -> None:
        seen.append(current_task().cancelled)

    bench.declare(check)
    bench.declare(bench.cancel)
    for name in ("check", "cancel", "check"):
        bench.attempt(_body(name))
    assert seen == [False, False]
    assert not CurrentTask("id", "name", "queue", "immediate", 1, 0, datetime.now(UTC), 0.0).cancelled


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        (ThrottleStatus.START, DONE),
        (ThrottleStatus.LATE, Expired()),
        (ThrottleStatus.THROTTLED, ThrottleStatus.THROTTLED),
        (ThrottleStatus.GONE, None),
    ],
)
def test_a_task_with_a_rate_starts_only_if_redis_permits_it(status: ThrottleStatus, ended: object) -> None:
    bench, calls = Bench(), list[str]()
    bench.declare(lambda: calls.append("called"), "slow", rate=Rate(100_000, 1), crash_limit=0)
    bench.status = status
    made = bench.try_attempt(_body("slow"), start_by_ns=boottime_ns() + 60 * SECOND_NS)
    assert (made.outcome if isinstance(made, Attempt) else made) == ended
    started = status is ThrottleStatus.START
    assert (len(bench.throttle_calls), len(bench.start_calls), len(calls)) == (1, started, started)


def test_a_task_without_a_rate_starts_without_asking_redis() -> None:
    bench = Bench()
    bench.declare(lambda: None, "plain")
    bench.attempt(_body("plain"))
    assert bench.throttle_calls == []
