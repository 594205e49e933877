"""Eager tasks, which run at once when they are enqueued. The worker's code runs them."""

import asyncio
import contextvars
import signal
import threading
import time
from collections.abc import Generator
from decimal import Decimal

import pytest

import rota
from rota.tasks.hooks import default_hooks
from rota.testing import NotRun, eager

seen: list[object] = []
_where: contextvars.ContextVar[str] = contextvars.ContextVar("where")


@rota.task(name="eager_double", result_ttl=60)
def double(number: int) -> int:
    task = rota.current_task()
    seen.append((task.name, task.kind, task.attempt))
    return number * 2


@rota.task(name="eager_price", result_ttl=60)
def price(each: Decimal) -> Decimal:
    return each * 2


@rota.task(name="eager_forgets")
def forgets(number: int) -> int:
    return number


@rota.task(name="eager_fetch", result_ttl=60)
async def fetch(url: str) -> list[str]:
    await asyncio.sleep(0)
    return [url, threading.current_thread().name, rota.current_task().name, _where.get("")]


@rota.task(name="eager_flaky", retries=5, result_ttl=60)
def flaky(failures: int) -> int:
    attempt = rota.current_task().attempt
    if attempt <= failures:
        raise ConnectionError(f"attempt {attempt}")
    return attempt


@rota.task(name="eager_outer")
def outer(*, waits: bool = False) -> None:
    seen.append("outer begins")
    handle = double.enqueue(1)
    if waits:
        handle.result(timeout=1)
    seen.append("outer ends")


@rota.task(name="eager_nests")
def nests() -> None:
    with eager() as ran:
        double.enqueue(1)
        seen.append(f"{len(ran)} ran inside")


@rota.task(name="eager_cancels")
def cancels() -> None:
    seen.append(double.enqueue(1).cancel())
    rota.Client("redis://nowhere.invalid").cancel(rota.current_task().id)
    seen.append(rota.current_task().cancelled)


@rota.task(name="eager_slow", soft_time_limit=0.05, retries=0)
def slow() -> None:
    time.sleep(30)


@rota.task(name="eager_slow_async", soft_time_limit=0.05, retries=0)
async def slow_async() -> None:
    await asyncio.sleep(30)


@rota.task(name="eager_interrupted")
def interrupted() -> None:
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def _seen_is_empty() -> None:
    seen.clear()


def test_an_eager_task_has_run_when_its_enqueue_returns() -> None:
    with eager() as ran:
        handle = double.using(delay=60).enqueue(4)
        assert (handle.result(), handle.status().state, handle.status().attempt) == (8, "done", 1)
        assert [each.result() for each in rota.enqueue_many([double.call(1), double.call(2)])] == [2, 4]
    assert seen[0] == ("eager_double", "delayed", 1)
    assert [(each.task, each.outcome, each.result) for each in ran] == [("eager_double", "done", n) for n in (8, 2, 4)]


def test_eager_stores_a_result_as_a_worker_does() -> None:
    with eager():
        handle = forgets.enqueue(1)
        with pytest.raises(rota.ResultNotStored, match="result_ttl"):
            handle.result()


def test_an_eager_enqueue_raises_the_exception_of_its_task() -> None:
    with eager() as ran, pytest.raises(ConnectionError, match="attempt 1"):
        flaky.enqueue(1)
    assert [each.outcome for each in ran] == ["dead"]


def test_without_raises_an_eager_dead_task_holds_its_exception() -> None:
    with eager(raises=False) as ran:
        handle = flaky.enqueue(1)
        assert handle.status().state == "dead"
        with pytest.raises(rota.TaskDead, match="ConnectionError: attempt 1"):
            handle.result()
    assert isinstance(ran[0].exception, ConnectionError)


def test_eager_retries_a_failed_task_at_once() -> None:
    with eager(retries=True) as ran:
        assert flaky.enqueue(2).result() == 3
        with pytest.raises(ConnectionError, match="attempt 6"):
            flaky.enqueue(9)
    assert [each.outcome for each in ran] == ["retry", "retry", "done", *["retry"] * 5, "dead"]


def test_tasks_enqueued_by_an_eager_task_run_after_it() -> None:
    with eager():
        outer.enqueue()
        assert seen == ["outer begins", "outer ends", ("eager_double", "immediate", 1)]
        with pytest.raises(NotRun, match="runs them only after that task has ended"):
            outer.enqueue(waits=True)


def test_a_nested_eager_block_runs_only_its_own_tasks() -> None:
    with eager() as ran:
        nests.enqueue()
    assert (seen[-1], [each.task for each in ran]) == ("1 ran inside", ["eager_nests"])


def test_results_of_eager_tasks_have_the_annotated_type() -> None:
    with eager() as ran:
        handle = price.enqueue(Decimal("1.50"))
        assert (handle.result(), ran[0].result) == (Decimal("3.00"), Decimal("3.00"))


def test_eager_cancelled_tasks_do_not_run_and_running_ones_notice() -> None:
    with eager() as ran:
        assert cancels.enqueue().status().state == "done"
    assert (seen, len(ran)) == (["cancelled", True], 1)


def test_eager_runs_the_hooks_around_each_attempt() -> None:
    def around(task: rota.CurrentTask) -> Generator[None, None, None]:
        seen.append(f"before {task.name}")
        yield
        seen.append("after")

    default_hooks.around.append(around)
    try:
        with eager():
            double.enqueue(1)
    finally:
        default_hooks.around.remove(around)
    assert seen == ["before eager_double", ("eager_double", "immediate", 1), "after"]


def test_eager_runs_async_tasks_with_or_without_a_running_event_loop() -> None:
    main = threading.current_thread().name
    with eager():
        assert fetch.enqueue("u").result() == ["u", main, "eager_fetch", ""]

        async def enqueues() -> list[str]:
            _where.set("outside")
            handle = await fetch.aenqueue("v")
            return await handle.result()

        url, thread, name, where = asyncio.run(enqueues())
    assert (url, name, where) == ("v", "eager_fetch", "outside")
    assert thread != main


@pytest.mark.parametrize("task", [slow, slow_async])
def test_eager_applies_the_soft_limit_if_limits_are_enabled(task: rota.Task[[], None]) -> None:
    began = time.monotonic()
    with eager(limits=True), pytest.raises(rota.TimeLimit):
        task.enqueue()
    assert time.monotonic() - began < 20  # the task would sleep for 30 s


def test_an_eager_time_limit_leaves_no_signal_handler_and_no_thread() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with eager(limits=True) as ran:
        double.enqueue(1)
    assert [each.outcome for each in ran] == ["done"]
    assert signal.getsignal(signal.SIGALRM) is before
    assert not [thread for thread in threading.enumerate() if thread.name == "rota-testing-limit"]


def test_a_keyboard_interrupt_is_not_a_failed_attempt() -> None:
    with eager(retries=True, raises=False), pytest.raises(KeyboardInterrupt):
        interrupted.enqueue()
