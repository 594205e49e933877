"""Captures, which collect the calls that an application enqueues instead of sending them."""

import asyncio
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

import rota
from rota.client import default_clients
from rota.testing import Capture, EndlessDrain, NeedsServer, NotRun, capture
from support.prose import ROOT


@rota.task(name="captured_resize", queue="images", retries=3, result_ttl=60)
def resize(image: int, size: object = "s") -> list[object]:
    return [image, size, rota.current_task().kind, rota.current_task().attempt]


@rota.task(name="captured_once", unique=True)
def once(number: int) -> None:
    del number


@rota.task(name="captured_failing", retries=2, base=10, jitter=True)
def failing(why: str) -> None:
    raise ValueError(why)


@rota.task(name="captured_pay")
def pay(amount: Decimal) -> None:
    del amount


@rota.task(name="captured_chain")
def chain(left: int) -> None:
    if left:
        chain.enqueue(left - 1)


@rota.task(name="captured_hourly", cron="0 * * * *")
def hourly() -> None:
    pass


@rota.task(
    name="captured_in_may",
    schedules=[rota.Every(3600, end=datetime(2040, 5, 1, 12, tzinfo=UTC))],
)
def in_may() -> None:
    pass


@pytest.fixture(autouse=True)
def _nothing_is_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("REDIS_URL", "ROTA_REDIS_URL", "ROTA_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def calls() -> Iterator[Capture]:
    with capture(schedules=False) as calls:
        yield calls


# Collecting


def test_a_capture_collects_every_kind_of_enqueue_without_a_server(calls: Capture) -> None:
    resize.enqueue(1)
    resize.using(delay=60).enqueue(2)
    resize.enqueue_in(timedelta(minutes=1), 3)
    rota.enqueue_many([resize.call(4), resize.call(5)])
    with rota.Client("redis://nowhere.invalid") as own:
        own.enqueue(resize.call(6))
        own.enqueue("captured_resize", args=[7])
        own.execute_later("images", "captured_resize", [8], 5)
    assert [call.args for call in calls] == [[number] for number in range(1, 9)]
    assert [call.delay for call in calls] == [0, 60, 60, 0, 0, 0, 0, 5]


def test_a_capture_collects_enqueues_of_async_clients_with_handles(calls: Capture) -> None:
    async def enqueue() -> list[str]:
        handle = await resize.aenqueue(1)
        await rota.aenqueue_many([resize.call(2)])
        async with rota.AsyncClient("redis://nowhere.invalid") as own:
            await own.enqueue("captured_resize", args=[3])
            with pytest.raises(NeedsServer, match="'events'"):
                own.events()
        with pytest.raises(NotRun):
            await handle.result()
        before = (await handle.status()).state
        calls.drain()
        return [before, (await handle.status()).state, str(await handle.result())]

    assert asyncio.run(enqueue()) == ["ready", "done", "[1, 's', 'immediate', 1]"]
    assert [call.args for call in calls] == [[1], [2], [3]]


def test_a_capture_collects_enqueues_of_other_threads(calls: Capture) -> None:
    thread = threading.Thread(target=resize.enqueue, args=(1,))
    thread.start()
    thread.join()
    calls.assert_enqueued(resize, args=[1], times=1)


def test_a_captured_call_has_the_values_that_a_worker_sees(calls: Capture) -> None:
    resize.using(queue="bulk", id="one", retries=7, expires=30, front=True, unique=True, unique_for=9).enqueue(
        image=1, size={"a": [1.5, None]}
    )
    (call,) = calls
    assert (call.task, call.args, call.kwargs) == ("captured_resize", [], {"image": 1, "size": {"a": [1.5, None]}})
    assert (call.queue, call.id, call.retries, call.expires) == ("bulk", "one", 7, 30.0)
    assert (call.front, call.unique, call.unique_for, call.result_ttl) == (True, True, 9.0, 60.0)


def test_after_a_capture_block_clients_use_their_server_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_clients, "_default", default_clients.DefaultClient())
    with capture() as outer:
        with capture() as inner:
            resize.enqueue(1)
        resize.enqueue(2)
    assert ([call.args for call in inner], [call.args for call in outer]) == ([[1]], [[2]])
    with pytest.raises(rota.NotConfigured):
        resize.enqueue(3)


def test_a_capture_refuses_the_same_calls_as_a_client(calls: Capture) -> None:
    with pytest.raises(rota.InvalidArguments, match="set"):
        resize.enqueue({1})  # type: ignore[arg-type]
    with pytest.raises(rota.InvalidArguments, match="do not fit"):
        resize.enqueue()  # type: ignore[call-arg]
    with pytest.raises(rota.PayloadTooLarge):
        resize.enqueue(1, "x" * 300_000)
    with pytest.raises(ValueError, match="delay or at, not both"):
        resize.using(delay=1, at=datetime.now(UTC)).enqueue(1)
    with pytest.raises(rota.InvalidName, match="pass its queue"):
        rota.Client("redis://nowhere.invalid").enqueue("nobody_declared_it")
    calls.assert_not_enqueued()


def test_a_capture_refuses_commands_that_need_a_server(calls: Capture) -> None:
    client = rota.Client("redis://nowhere.invalid")
    with pytest.raises(NeedsServer, match=r"'pause' needs a server.*rota_client"):
        client.pause("images")
    with pytest.raises(NeedsServer, match="'events'"):
        client.events()
    assert len(calls) == 0


# Asserting


def test_assert_enqueued_compares_arguments_by_parameter(calls: Capture) -> None:
    resize.enqueue(1, size="b")
    (found,) = calls.assert_enqueued(resize, args=[1, "b"])
    assert found is calls[0]
    calls.assert_enqueued(resize, kwargs={"image": 1, "size": "b"})
    calls.assert_not_enqueued(resize, args=[1])
    with pytest.raises(rota.InvalidArguments):
        calls.assert_enqueued(resize, args=[1, "b", 3])


def test_assert_enqueued_compares_typed_arguments_as_the_task_receives_them(calls: Capture) -> None:
    pay.enqueue(Decimal("1.50"))
    assert calls[0].args == ["1.50"]
    calls.assert_enqueued(pay, args=[Decimal("1.5")])
    with pytest.raises(AssertionError, match=r"captured_pay\(Decimal\('1.50'\)\) queue=default  <- other arguments"):
        calls.assert_enqueued(pay, args=[Decimal(2)])
    with pytest.raises(rota.InvalidArguments, match="would arrive as Decimal"):
        # The client would have refused such a call, because the argument must be a Decimal.
        calls.assert_enqueued(pay, args=["1.50"])


def test_a_failed_assert_enqueued_lists_the_enqueued_calls(calls: Capture) -> None:
    once.enqueue(1)
    resize.using(delay=60).enqueue(8)
    with pytest.raises(AssertionError) as failure:
        calls.assert_enqueued(resize, args=[7], delay=timedelta(minutes=1))
    first, *lines = str(failure.value).splitlines()
    assert first.startswith(
        "no call of captured_resize with args=[7], delay=datetime.timedelta(seconds=60) was enqueued"
    )
    assert lines == [
        "  captured_resize(8) queue=images delay=60  <- other arguments",
        "  captured_once(1) queue=default unique",
    ]
    with pytest.raises(AssertionError, match=r"expected 2 calls of captured_once, got 1; these calls were enqueued:"):
        calls.assert_enqueued(once, times=2)
    with pytest.raises(AssertionError, match=r"expected no calls of captured_resize, got 1:\n  captured_resize\(8\)"):
        calls.assert_not_enqueued(resize)


def test_an_assertion_about_an_impossible_call_raises_an_error(calls: Capture) -> None:
    with pytest.raises(TypeError, match="a call has no property 'countdown'; its properties are args, kwargs, queue"):
        calls.assert_enqueued(resize, countdown=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="pass the task that must not be enqueued"):
        calls.assert_not_enqueued(delay=60)
    calls.assert_enqueued("captured_resize", times=0)


def test_assert_enqueued_accepts_only_a_task_or_its_name(calls: Capture) -> None:
    with pytest.raises(TypeError, match=r"expected a task, declared with @rota.task, or its name, got <built-in"):
        calls.assert_enqueued(len)  # type: ignore[arg-type]
    resize.enqueue(1)
    with pytest.raises(TypeError, match=r"pass the task and .*, as in \(captured_resize, args=\[7\]\), got Call"):
        calls.assert_enqueued(resize.call(2))  # type: ignore[arg-type]


# Running


def test_drain_runs_due_tasks_and_stores_results(calls: Capture) -> None:
    now, later = resize.enqueue(1), resize.using(delay=60).enqueue(2)
    (ran,) = calls.drain()
    assert (ran.task, ran.outcome, ran.result) == ("captured_resize", "done", [1, "s", "immediate", 1])
    assert (now.result(), now.status().state, later.status().state) == (ran.result, "done", "scheduled")
    calls.clock.move(59.9)
    assert calls.drain() == []
    with pytest.raises(NotRun, match=r"is scheduled: .* clock\.move"):
        later.result(timeout=1)
    calls.clock.move(0.1)
    assert [each.result for each in calls.drain()] == [[2, "s", "delayed", 1]]


def test_drain_runs_front_tasks_first_and_skips_cancelled_ones(calls: Capture) -> None:
    handles = [resize.enqueue(1), resize.using(front=True).enqueue(2), resize.enqueue(3)]
    assert handles[0].cancel() == "cancelled"
    assert [ran.id for ran in calls.drain()] == [handles[1].id, handles[2].id]
    with pytest.raises(rota.TaskCancelled):
        handles[0].result()


def test_a_failed_attempt_is_due_again_after_its_longest_back_off(calls: Capture) -> None:
    handle = failing.enqueue("broken")
    with pytest.raises(ValueError, match="broken"):
        calls.drain()
    assert (handle.status().state, handle.status().attempt) == ("scheduled", 2)
    outcomes = []
    for seconds in (10, 20):
        calls.clock.move(seconds)
        outcomes += [(ran.outcome, ran.attempt) for ran in calls.drain(raises=False)]
    assert outcomes == [("retry", 2), ("dead", 3)]
    with pytest.raises(rota.TaskDead, match="attempt 3 of 3: ValueError: broken"):
        handle.result()


def test_drain_does_not_run_an_expired_task(calls: Capture) -> None:
    handle = resize.using(expires=30).enqueue(1)
    calls.clock.move(31)
    assert [ran.outcome for ran in calls.drain()] == ["expired"]
    with pytest.raises(rota.TaskExpired):
        handle.result()


def test_drain_runs_tasks_enqueued_by_tasks_and_stops_an_endless_loop(calls: Capture) -> None:
    chain.enqueue(3)
    assert len(calls.drain()) == len(calls) == 4
    chain.enqueue(1000)
    with pytest.raises(EndlessDrain, match=r"10 attempts .* captured_chain \(done\)"):
        calls.drain(most=10)
    calls.clear()
    assert (len(calls), calls.drain()) == (0, [])


def test_an_undeclared_task_fails_in_a_capture_as_in_a_worker(calls: Capture) -> None:
    rota.Client("redis://nowhere.invalid").enqueue("nobody_declared_it", queue="images")
    with pytest.raises(rota.TaskDead, match="declares a task named 'nobody_declared_it'"):
        calls.drain()


_SLIM = """
import sys
import rota
from rota.testing import capture, eager

@rota.task
def resize(image): pass

with capture() as calls:
    resize.enqueue(1)
    assert len(calls.drain()) == 1
    calls.clock.move(60)
with eager() as ran:
    resize.enqueue(1)
    assert len(ran) == 1
print(*{name.split(".")[0] for name in sys.modules})
"""


def test_capture_imports_no_dependency_of_rota() -> None:
    done = subprocess.run([sys.executable, "-c", _SLIM], capture_output=True, text=True, check=True, timeout=60)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"\W", each.replace("-", "_"))[0] for each in project["dependencies"]}
    assert names & set(done.stdout.split()) <= {"hiredis"}  # hiredis is imported if it is installed


# The clock


def test_moving_the_clock_of_a_capture_enqueues_scheduled_tasks() -> None:
    with capture(at=datetime(2040, 5, 1, 10, 30, tzinfo=UTC)) as calls:
        calls.clock.move(timedelta(hours=2))
        found = calls.of(hourly)
        assert [call.at for call in found] == [datetime(2040, 5, 1, hour, tzinfo=UTC) for hour in (11, 12)]
        assert {call.kind for call in found} == {"periodic"}
        assert [call.at for call in calls.of(in_may)] == [datetime(2040, 5, 1, 11, tzinfo=UTC)]
        assert [ran.outcome for ran in calls.drain() if ran.task == "captured_hourly"] == ["done", "done"]


def test_moving_the_clock_over_too_many_occurrences_raises_an_error() -> None:
    with capture() as calls:
        before = calls.clock.now
        with pytest.raises(ValueError, match=r"'captured_hourly' occurs more than 10,000 times"):
            calls.clock.move_to(datetime(2040, 5, 1, tzinfo=UTC))
        assert (calls.clock.now, len(calls)) == (before, 0)


def test_the_clock_of_a_capture_moves_only_forward(calls: Capture) -> None:
    before = calls.clock.now
    assert calls.clock.now == before
    with pytest.raises(ValueError, match="only moves forward"):
        calls.clock.move(-1)
    with pytest.raises(ValueError, match="no time zone"):
        calls.clock.move_to(datetime(2040, 1, 1))  # noqa: DTZ001 - a naive datetime is the point of the test
    assert calls.clock.move(1) == before + timedelta(seconds=1)


def test_a_task_due_at_a_past_time_is_due_in_a_capture(calls: Capture) -> None:
    while datetime.now(UTC) <= calls.clock.now:
        pass
    resize.enqueue_at(datetime.now(UTC), 1)
    assert len(calls.drain()) == 1
