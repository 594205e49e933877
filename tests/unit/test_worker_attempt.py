"""An attempt, from the claim to the outcome, in a process that lives on whatever it meets."""

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
from rota.protocol.command import Command
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


class Place:
    """A worker's executor without the worker. `looks`: what the slot showed whenever something of it was called;
    `begins`: the entries for which Redis was asked whether they may begin; `asks`: whether their rate lets them."""

    def __init__(self, registry: Registry | None = None) -> None:
        self.slot = Slot(memoryview(bytearray(REGION_BYTES)), memoryview(bytearray(PROCESS_ROW_BYTES)))
        self.hooks = Hooks()
        self.runner = Runner()
        self.claimed = 0
        self.rings: list[int] = []
        self.looks: list[TaskInSlot | None] = []
        self.begins: list[bytes] = []
        self.may_begin = True
        self.asks: list[bytes] = []
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
        self.executor = Executor(maker, self.slot.record(0), self.runner, self.ask)

    def declare(self, function: Callable[..., Any], name: str = "", **options: Any) -> None:
        name = name or function.__name__
        self.registry.add(Task(function, name, TaskOptions(**options)))

    def ask(self, attempt: Attempt) -> MayStart:
        """Takes the steps to a start, with `status` and `may_begin` for Redis."""
        starts = StartSteps("owner", Store("n"), lambda: self.slot.is_intact, lambda *_: None)
        return take_steps(attempt.steps_to_start(starts), lambda step: self.answer(step, attempt.entry.text))

    def answer(self, command: Command[Any] | float, entry: bytes) -> Any:
        if isinstance(command, float):
            return None
        if command.script.name == "throttle":
            self.asks.append(entry)
            return self.status, 0
        self.begins.append(entry)
        return entry[:-1] + b"b" if self.may_begin else None

    def look(self) -> None:
        self.looks.append(self.slot.record(0).current())

    def cancel(self) -> None:
        """As the master does, and as if its signal came at once."""
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
    def __init__(self, place: list[Place]) -> None:
        super().__init__()
        self._place = place

    def get(self, name: str) -> Task[..., Any] | None:
        del name
        self._place[0].look()
        raise RecursionError("nobody thought of this")


def test_a_task_that_cannot_even_be_prepared_is_named_before_and_dead_after() -> None:
    places: list[Place] = []
    place = Place(_Surprise(places))
    places.append(place)
    attempt = place.attempt(_body("any"))
    (seen,) = place.looks
    assert seen is not None
    assert (seen.id, seen.name, seen.queue) == ("id-1", UNKNOWN_TASK, "default")
    assert isinstance(attempt.outcome, DeadOutcome)
    assert attempt.reason == "garbage"
    assert "RecursionError: nobody thought of this" in attempt.error


def test_a_body_that_is_gone_is_a_cancelled_task() -> None:
    attempt = Place().attempt(b"")
    assert attempt.outcome == CancelledOutcome()
    assert (attempt.name, attempt.runtime_seconds) == ("", 0.0)


def test_the_function_runs_under_its_name_and_limit() -> None:
    place = Place()

    def resize() -> None:
        place.look()

    place.declare(resize, time_limit=7.0)
    attempt = place.attempt(_body("resize"))
    (seen,) = place.looks
    assert seen is not None
    assert (seen.id, seen.name, seen.deadline_ns - seen.started_ns) == ("id-1", "resize", 7 * SECOND_NS)
    assert attempt.outcome == Done()
    assert attempt.runtime_seconds > 0


def test_what_comes_too_late_is_not_run_and_not_left_in_the_slot() -> None:
    place = Place()

    def resize() -> None:
        place.look()

    place.declare(resize)
    assert place.try_attempt(_body("resize"), start_by_ns=boottime_ns() - 1) is None
    assert not place.looks
    assert place.slot.record(0).current() is None


def test_redis_is_told_before_a_task_starts_that_may_start_once_at_most() -> None:
    place = Place()

    def charge() -> None:
        place.look()

    place.declare(charge, crash_limit=0, time_limit=7.0)
    attempt = place.attempt(_body("charge"))
    (seen,) = place.looks
    assert seen is not None
    assert place.begins == [b"id-1 default i 1000 1000 0 0 0 0 -"]
    assert seen.entry == attempt.entry.text == b"id-1 default i 1000 1000 0 0 0 0 b"
    assert round((seen.deadline_ns - seen.started_ns) / SECOND_NS, 3) == 7.0
    assert seen.kill_policy == 0
    assert attempt.settlement().entry.text == seen.entry


def test_what_may_not_begin_is_not_run_and_not_left_in_the_slot() -> None:
    place = Place()

    def charge() -> None:
        place.look()

    place.declare(charge, crash_limit=0)
    place.may_begin = False
    assert place.try_attempt(_body("charge"), start_by_ns=boottime_ns() + 60 * SECOND_NS) is None
    assert place.try_attempt(_body("charge"), start_by_ns=boottime_ns() - 1) is None  # nor asked for when it is late
    assert (place.looks, len(place.begins)) == ([], 1)
    assert place.slot.record(0).current() is None


def test_the_back_off_is_asked_once_for_each_number_of_failures_and_redis_by_no_other_task() -> None:
    place = Place()
    asked: list[int] = []

    def resize() -> None:
        place.look()

    def patience(failures: int) -> float:
        asked.append(failures)
        return 3.0

    place.declare(resize, backoff=patience, crash_limit=5)
    for _ in range(3):
        place.attempt(_body("resize"))
    kill_policies = [KillPolicy.from_word(seen.kill_policy) for seen in place.looks if seen is not None]
    assert kill_policies == [KillPolicy(True, 3_000_000, 5)] * 3
    assert (asked, place.begins) == ([1], [])


def test_the_slot_tells_how_many_of_the_claim_come_after_the_task() -> None:
    place = Place()

    def resize() -> None:
        place.look()

    place.declare(resize)
    before_ns = boottime_ns()
    place.attempt(_body("resize"))
    (seen,) = place.looks
    assert seen is not None
    assert seen.unstarted == 3
    assert before_ns <= seen.claimed_ns <= boottime_ns()


def test_a_beat_of_the_task_moves_its_deadline_in_the_slot_too() -> None:
    place = Place()
    deadlines: list[datetime | None] = []

    def resize() -> None:
        current = current_task()
        place.look()
        deadlines.append(current.deadline)
        current.beat()
        place.look()
        deadlines.append(current.deadline)

    place.declare(resize, time_limit=7.0)
    place.attempt(_body("resize"))
    before, after = place.looks
    assert before is not None
    assert after is not None
    assert after.deadline_ns > before.deadline_ns
    first, second = deadlines
    assert first is not None
    assert second is not None
    assert second > first


def test_a_beat_that_comes_after_its_task_has_ended_extends_no_other() -> None:
    place = Place()
    left_running: list[CurrentTask] = []

    def leave_something_running() -> None:
        left_running.append(current_task())

    def resize() -> None:
        place.look()
        left_running[0].beat()
        place.look()

    place.declare(leave_something_running, time_limit=7000.0, soft_time_limit=6000.0)
    place.declare(resize, time_limit=7.0, soft_time_limit=6.0)
    place.attempt(_body("leave_something_running"))
    place.attempt(_body("resize"))
    before, after = place.looks
    assert before is not None
    assert before == after


def test_an_expired_task_meets_no_hook() -> None:
    place = Place()

    def around(_task: CurrentTask) -> Generator[None, None, None]:
        place.look()
        yield

    def resize() -> None:
        place.look()

    place.hooks.around.append(around)
    place.declare(resize, expires=0.0005)
    assert place.attempt(_body("resize")).outcome == Expired()
    assert not place.looks


def test_the_hooks_for_the_dead_have_the_fleets_time_limit_anew() -> None:
    place = Place()

    def bury(_task: CurrentTask, _reason: str) -> None:
        place.look()

    def fail() -> None:
        raise ValueError

    place.hooks.dead.append(bury)
    place.declare(fail, retries=0, time_limit=0.001)
    attempt = place.attempt(_body("fail"))
    assert not place.looks
    before_ns = boottime_ns()
    place.executor.maker.call_failure_hooks(attempt)
    (seen,) = place.looks
    assert seen is not None
    assert seen.deadline_ns - before_ns >= FLEET_LIMIT_SECONDS * SECOND_NS


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (KeyError("x"), [("failed", "KeyError: 'x'", False)]),
        (OSError("gone"), [("dead_on", "OSError: gone", True)]),
        (Dead("no use"), [("asked", "no use", True)]),
        (Retry(delay=1), []),
        (None, []),
    ],
)
def test_the_hooks_for_failures_are_told_what_was_raised_and_what_follows(
    raised: Exception | None, told: list[tuple[str, str, bool]]
) -> None:
    place, failures = Place(), list[AttemptFailure]()

    def work() -> None:
        if raised is not None:
            raise raised

    place.hooks.failure.append(lambda _task, failure: failures.append(failure))
    place.declare(work, retries=1, dead_on=OSError)
    attempt = place.attempt(_body("work"))
    assert not failures
    place.executor.maker.call_failure_hooks(attempt)
    assert [(each.reason, each.error, each.is_dead) for each in failures] == told
    assert all(each.exception is raised for each in failures)


def test_the_hooks_for_failures_are_told_of_what_could_not_be_run() -> None:
    place, failures = Place(), list[AttemptFailure]()
    place.hooks.failure.append(lambda _task, failure: failures.append(failure))
    place.executor.maker.call_failure_hooks(place.attempt(_body("unheard_of")))
    [failure] = failures
    assert (failure.reason, failure.exception, failure.is_dead) == ("unknown_task", None, True)


def test_no_hook_is_told_of_a_task_that_lives() -> None:
    place = Place()

    def resize() -> None: ...

    def bury(_task: CurrentTask, _reason: str) -> None:
        place.look()

    place.hooks.dead.append(bury)
    place.declare(resize)
    place.executor.maker.call_failure_hooks(place.attempt(_body("resize")))
    assert not place.looks


def test_a_task_says_how_far_it_is_from_its_threads_and_coroutines_too() -> None:
    place = Place()
    said: list[bytes] = []

    def look() -> None:
        running = place.slot.record(0).current()
        assert running is not None
        said.append(place.slot.record(0).progress_of(running.entry))

    def steps() -> None:
        current_task().progress(1, 3)
        look()
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(lambda: current_task().progress(2, 3, "thread"),))
        thread.start()
        thread.join()
        look()

    async def coroutine() -> None:
        await asyncio.create_task(_say_progress(3))
        look()

    place.declare(steps)
    place.declare(coroutine)
    assert place.attempt(_body("steps")).outcome == Done()
    assert place.attempt(_body("coroutine")).outcome == Done()
    place.runner.close()
    assert [(text.split(b" ")[:2], text.split(b" ")[3]) for text in said] == [
        ([b"1", b"3"], b""), ([b"2", b"3"], b"thread"), ([b"3", b"-"], b""),
    ]  # fmt: skip


async def _say_progress(done: float) -> None:
    current_task().progress(done)


def test_a_task_that_says_what_is_no_number_fails() -> None:
    place = Place()

    def wrong() -> None:
        current_task().progress("half")  # type: ignore[arg-type]  # that is the claim

    place.declare(wrong, retries=0)
    outcome = place.attempt(_body("wrong")).outcome
    assert isinstance(outcome, DeadOutcome)
    assert b"a number from 0 to 9e15, not 'half'" in outcome.record


def test_what_is_kept_of_a_failed_attempt_says_where_and_for_how_long() -> None:
    place = Place()
    place.executor = dataclasses.replace(
        place.executor, maker=dataclasses.replace(place.executor.maker, owner="node:8:1")
    )

    def fails() -> None:
        raise ValueError("bad")

    place.declare(fails, retries=1)
    outcome = place.attempt(_body("fails")).outcome
    assert isinstance(outcome, RetryOutcome)
    [record] = attempts_of(read_attempt_records(outcome.record, "why"))
    assert (record.attempt, record.reason, record.error) == (1, "failed", "ValueError: bad")
    assert (record.node, record.pid) == ("node", os.getpid())
    assert record.run_seconds > 0


def test_what_a_task_returns_is_encoded_only_when_it_is_to_be_kept() -> None:
    place = Place()

    def unasked() -> object:
        return object()

    def asked() -> dict[str, list[int]]:
        return {"a": [1]}

    place.declare(unasked)
    place.declare(asked, result_ttl=1.5)
    assert place.attempt(_body("unasked")).outcome is DONE
    assert place.attempt(_body("asked")).outcome == Done(b'{"a":[1]}', 1500)


class _Odd(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("nobody looks in here")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "result is of type object; a result must be JSON"),
        ({"a": [1, {2}]}, "result.a[1] is of type set (pass a list); a result must be JSON"),
        ("x" * 1023, "it has 1,025 bytes, the limit is 1 KiB (max_result_kb)"),
        (_Odd(a=1), "it cannot be written as JSON: RuntimeError: nobody looks in here"),
    ],
)
def test_a_result_is_refused_with_the_reason(value: object, said: str) -> None:
    place = Place()
    place.declare(lambda: value, name="give", result_ttl=60.0)
    attempt = place.attempt(_body("give"))
    assert attempt.outcome == Done(refused=said)
    assert attempt.settlement().run.endswith(f" give {said}".encode())


def test_the_account_of_a_run_says_when_it_began_how_long_it_took_and_who_ran_it() -> None:
    place = Place()
    place.declare(lambda: None, name="work")
    place.declare(lambda: None, name="forget", remember=False)
    attempt = place.attempt(_body("work"))
    start_us, run_us = attempt.times.start_us, int(attempt.runtime_seconds * 1e6)
    assert attempt.settlement().run == f" {start_us} {run_us} {os.getpid()} work".encode()
    assert place.attempt(_body("forget")).settlement().run == b""
    place.declare(lambda: None, name="late", expires=0.000001)
    assert place.attempt(_body("late")).settlement().run == f" 0 0 {os.getpid()} late".encode()
    assert place.attempt(b"").settlement().run == f" 0 0 {os.getpid()} -".encode()


# Cancelled while it ran


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [(None, Done), (Cancelled(), CancelledOutcome), (ValueError(), CancelledOutcome), (Retry(5), CancelledOutcome),
     (Dead("why"), CancelledOutcome), (SystemExit(), CancelledOutcome)],
)  # fmt: skip
def test_a_cancelled_task_has_no_next_attempt_whatever_it_raises_and_is_done_when_it_returns(
    raised: BaseException | None, outcome: type[Outcome]
) -> None:
    place, seen = Place(), []

    def linger() -> None:
        try:
            place.cancel()
        except Cancelled:
            seen.append(current_task().cancelled)
        if raised is not None:
            raise raised

    place.declare(linger, retries=5)
    attempt = place.attempt(_body("linger"))
    assert (type(attempt.outcome), attempt.exception) == (outcome, raised)
    assert seen == [True]


def test_a_coroutine_is_cancelled_through_its_loop_and_cancelled_comes_out_of_it() -> None:
    place, seen = Place(), []

    async def linger() -> None:
        asyncio.get_running_loop().call_later(0.01, place.cancel)
        try:
            await asyncio.gather(asyncio.sleep(600), asyncio.sleep(600))
        except asyncio.CancelledError:
            seen.append("cleaned up")
            raise

    place.declare(linger)
    attempt = place.attempt(_body("linger"))
    place.runner.close()
    assert (attempt.outcome, type(attempt.exception), seen) == (CancelledOutcome(), Cancelled, ["cleaned up"])


def test_a_coroutine_that_somebody_else_cancels_has_failed() -> None:
    place = Place()

    async def give_up() -> None:
        raise asyncio.CancelledError

    place.declare(give_up, retries=0)
    attempt = place.attempt(_body("give_up"))
    place.runner.close()
    assert isinstance(attempt.outcome, DeadOutcome)


def test_hooks_see_that_a_task_was_cancelled() -> None:
    place, seen = Place(), []

    def around(_task: CurrentTask) -> Generator[None, None, None]:
        try:
            yield
        except Cancelled as told:
            seen.append(str(told))
            raise

    place.hooks.around.append(around)
    place.declare(place.cancel)
    assert place.attempt(_body("cancel")).outcome == CancelledOutcome()
    assert seen == ["the task was cancelled"]


def test_a_slot_that_was_wiped_cancels_nothing() -> None:
    place = Place()

    def wipe(_failures: int) -> float:  # asked for the back-off before the function is called
        place.slot._bytes[:] = bytes(REGION_BYTES)
        return 7.0

    def fail() -> None:
        raise ValueError

    place.declare(fail, backoff=wipe)
    assert isinstance(place.attempt(_body("fail")).outcome, RetryOutcome)


def test_a_task_that_asks_is_told_of_its_own_cancel_alone() -> None:
    place, asked = Place(), []

    def ask() -> None:
        asked.append(current_task().cancelled)

    place.declare(ask)
    place.declare(place.cancel)
    for name in ("ask", "cancel", "ask"):
        place.attempt(_body(name))
    assert asked == [False, False]
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
def test_a_task_with_a_rate_is_asked_for_before_it_begins(status: ThrottleStatus, ended: object) -> None:
    place, calls = Place(), list[str]()
    place.declare(lambda: calls.append("called"), "slow", rate=Rate(100_000, 1), crash_limit=0)
    place.status = status
    made = place.try_attempt(_body("slow"), start_by_ns=boottime_ns() + 60 * SECOND_NS)
    assert (made.outcome if isinstance(made, Attempt) else made) == ended
    started = status is ThrottleStatus.START
    assert (len(place.asks), len(place.begins), len(calls)) == (1, started, started)


def test_a_task_without_a_rate_asks_nobody() -> None:
    place = Place()
    place.declare(lambda: None, "plain")
    place.attempt(_body("plain"))
    assert place.asks == []
