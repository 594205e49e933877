"""What a worker process makes of tasks: outcomes, epitaphs, hooks, lines in the log."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import Bench, settings_for, until
from rota.child.slots import Phase
from rota.protocol.store import Blame, QueueShare, Turn, domain_of, pack_tiers
from rota.protocol.wire import Packed
from rota.telemetry.metrics import TASK_LAG
from rota_supervisor.exporter.samples import RegionReader
from servers import Server


@pytest.fixture
def bench(server: Server, namespace: str, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(server, namespace, tmp_path)
    yield made
    made.close()


def test_enqueued_tasks_run_in_order_between_the_workers_hooks(bench: Bench) -> None:
    for number in range(5):
        bench.enqueue("note", str(number))
    worker = bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: "4" in bench.ran())
    worker.terminate()
    assert worker.exit_code() == 0
    assert bench.ran() == ["worker start", "0", "1", "2", "3", "4", "worker stop"]
    assert bench.run(bench.store.audit()).missing == 0
    assert bench.run(bench.store.audit()).done == 5
    assert bench.inflight(worker.owner) == 0


def test_a_task_enqueued_while_the_worker_sleeps_wakes_it(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace, "high", "low")).until_phase(Phase.IDLE)
    task_id = bench.enqueue("note", "woken", queue="low")
    until(lambda: bench.ran()[1:] == ["woken"])
    until(lambda: bench.state(task_id) == "unknown")
    line = until(lambda: bench.events("task.done"))[0]
    assert (line["task_id"], line["task"], line["queue"], line["kind"]) == (task_id, "note", "low", "immediate")
    assert (line["attempt"], line["outcome"], line["slot"]) == (1, "done", 1)
    assert 0 <= line["lag_seconds"] < 20
    assert line["runtime_seconds"] > 0
    assert line["pid"] == worker.process.pid
    assert "woken" not in str(line)


@pytest.mark.parametrize(
    ("name", "args", "reason", "said"),
    [
        ("no_such_task", [], "unknown_task", "no_such_task"),
        ("note", [], "arguments", "missing a required argument"),
        ("note", ["a", "b"], "arguments", "too many positional"),
        ("leave", [], "retries", "SystemExit: a task that leaves"),
        ("give_up", [], "asked", "no such image"),
        ("never_again", [], "backoff", "SystemExit: no more"),
        ("fail_mutely", [], "retries", "Mute"),
    ],
)
def test_what_can_never_run_is_dead_with_the_reason(
    bench: Bench, name: str, args: list[str], reason: str, said: str
) -> None:
    task_id = bench.enqueue(name, *args)
    bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: bench.state(task_id) == "dead")
    epitaph = bench.epitaph(task_id)
    assert epitaph["reason"] == reason
    assert said in epitaph["error"]
    assert epitaph["attempt"] == 1
    assert until(lambda: bench.events("task.dead"))[0]["reason"] == reason
    assert any(line.startswith("buried") for line in bench.ran())


def test_garbage_is_dead_with_its_bytes_and_the_worker_goes_on(bench: Bench) -> None:
    lane = bench.store.keys.ready_lane("default")
    planted = {b"\xff\x00 not json", b'["only one"]', b"[" * 5000, b'{"a": NaN}'}
    for garbage in planted:
        bench.connection.execute("RPUSH", lane, garbage)
    bench.connection.execute("RPUSH", lane, '["note", ["after"]]')
    bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: "after" in bench.ran())
    until(lambda: len(bench.run(bench.store.dead_page(0, 10)).tasks) == len(planted))
    page = bench.run(bench.store.dead_page(0, 10))
    assert {task.body for task in page.tasks} == planted
    assert all(b'"garbage"' in task.epitaph for task in page.tasks)


def test_a_failing_task_is_retried_and_then_dead_with_its_traceback(bench: Bench) -> None:
    task_id = bench.enqueue("fail")
    bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: bench.state(task_id) == "scheduled")
    until(lambda: bench.run(bench.store.promote()).moved)
    until(lambda: bench.state(task_id) == "dead")
    epitaph = bench.epitaph(task_id)
    assert (epitaph["reason"], epitaph["attempt"]) == ("retries", 2)
    assert epitaph["traceback"].endswith("ValueError: no good")
    assert bench.ran()[1:] == ["failing", "failing", "buried fail attempt 2 of 2"]
    (retried,) = until(lambda: bench.events("task.retried"))
    assert retried["error"] == "ValueError: no good"
    assert "no good" in retried["exception"]


def test_a_task_that_asks_for_a_retry_gets_its_delay(bench: Bench) -> None:
    task_id = bench.enqueue("again_later", 3600)
    bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: bench.state(task_id) == "scheduled")
    due_seconds = bench.run(bench.store.status(task_id)).due_us / 1e6
    now = int(bench.connection.execute("TIME")[0])
    assert due_seconds - now == pytest.approx(3600, abs=60)


def test_an_async_task_runs_in_the_workers_loop(bench: Bench) -> None:
    bench.enqueue("sleep_a_little", "one")
    bench.enqueue("sleep_a_little", "two")
    bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: bench.ran()[1:] == ["one sleep_a_little", "two sleep_a_little"])


def test_an_async_function_under_a_plain_wrapper_is_awaited(bench: Bench) -> None:
    task_id = bench.enqueue("wrapped_sleep", "one")
    bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: bench.state(task_id) == "unknown")
    assert bench.ran()[1:] == ["one wrapped_sleep"]


def test_a_task_that_waited_too_long_is_not_started(bench: Bench) -> None:
    task_id = bench.enqueue("fresh_only")
    bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: bench.state(task_id) == "unknown")
    assert bench.ran() == ["worker start"]
    assert bench.run(bench.store.audit()).expired == 1
    assert until(lambda: bench.events("task.expired"))


def test_a_delayed_task_is_never_early_by_redis_time(bench: Bench) -> None:
    bench.start(settings_for(bench.server, bench.namespace)).until_phase(Phase.IDLE)
    for milliseconds in range(5, 100, 10):
        bench.enqueue("start_time", due=f"+{milliseconds * 1000}")

    def all_ran() -> list[str]:
        bench.run(bench.store.promote())
        return bench.ran()[1:] if len(bench.ran()) == 11 else []

    for line in until(all_ran):
        start_us, due_us = map(int, line.split())
        assert start_us >= due_us
    lags = [line["promotion_lag_seconds"] for line in bench.events("task.done")]
    assert len(lags) == 10
    assert all(lag >= 0 for lag in lags)


def test_a_task_cancelled_while_it_waits_is_dropped_and_said(bench: Bench) -> None:
    cancelled = bench.enqueue("note", "never")
    bench.run(bench.store.cancel(cancelled))
    bench.enqueue("note", "still")
    bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: bench.ran()[1:] == ["still"])
    assert until(lambda: bench.events("task.cancelled"))[0]["task_id"] == cancelled


def test_a_task_that_enqueues_a_task_reaches_its_own_fleet(bench: Bench) -> None:
    bench.enqueue("pass_on", "passed on")
    bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: "passed on" in bench.ran())


def test_a_start_is_counted_though_the_task_kills_its_worker(bench: Bench) -> None:
    bench.enqueue("hold", "a")
    worker = bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: "start a 1" in bench.ran())
    worker.kill()
    (lag,) = (numbers for of, _, numbers in RegionReader(worker.slot.metrics).read() if of is TASK_LAG)
    assert sum(lag[:-1]) == 1


@pytest.mark.parametrize(
    ("name", "how", "code"),
    [
        ("fork", "exit", 3),
        ("fork", "return", 0),
        ("fork", "raise", 1),
        ("fork", "natively", 0),
        ("fork_in_loop", "return", 0),
    ],
)
def test_a_copy_that_a_task_forked_ends_with_the_task(bench: Bench, name: str, how: str, code: int) -> None:
    task_id = bench.enqueue(name, how)
    bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: bench.state(task_id) == "unknown")
    bench.enqueue("note", "after")
    until(lambda: "after" in bench.ran())
    told = ["after fork in its worker"] if name == "fork" else []
    assert bench.ran() == ["worker start", f"copy {how} {code}", *told, "after"]
    until(lambda: bench.run(bench.store.audit()).done == 2)
    assert len(bench.events("task.done")) == 2


def test_a_copy_that_a_hook_forked_ends_with_the_hook(bench: Bench) -> None:
    task_id = bench.enqueue("fork_in_hook")
    bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: bench.state(task_id) == "dead")
    bench.enqueue("note", "after")
    until(lambda: "after" in bench.ran())
    assert bench.ran()[1:] == ["buried fork_in_hook attempt 1 of 1", "copy return 0", "after"]
    assert len(bench.events("task.dead")) == 1


def test_a_process_that_a_task_forked_can_be_stopped_at_once(bench: Bench) -> None:
    bench.enqueue("stop_a_process")
    worker = bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: f"process {-signal.SIGTERM}" in bench.ran())
    bench.enqueue("note", "after")  # nor was its worker asked to leave
    until(lambda: "after" in bench.ran())
    assert worker.process.poll() is None


def test_a_hook_that_kills_the_worker_charges_the_dead_task_with_no_crash(bench: Bench) -> None:
    task_id = bench.enqueue("die_with_hook")
    worker = bench.start(settings_for(bench.server, bench.namespace))
    assert worker.exit_code() == 9
    current = worker.slot.current_task()
    assert current is not None
    assert current.id == task_id
    blame = Blame(ran=((task_id, b"{}"),), crash_limit=1)
    retired = bench.run(bench.store.retire_exited(worker.owner, blame, Packed(*worker.slot.outcomes())))
    assert (retired.settled, retired.requeued, retired.dead) == (1, (), ())
    assert bench.epitaph(task_id)["reason"] == "retries"
    assert bench.run(bench.store.status(task_id)).crashes == 0
    assert bench.events("task.dead")


def test_what_hooks_take_before_the_function_is_lag(bench: Bench) -> None:
    bench.enqueue("hesitant")
    bench.start(settings_for(bench.server, bench.namespace))
    (line,) = until(lambda: bench.events("task.done"))
    assert line["lag_seconds"] >= 0.2  # as long as its hook hesitates
    assert float(bench.ran()[1]) == pytest.approx(line["lag_seconds"])


def test_a_task_cancelled_while_the_answer_to_its_claim_was_lost_is_cancelled_not_dead(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace, "served")).until_phase(Phase.IDLE)
    task_id = bench.enqueue("note", "never", queue="elsewhere")
    bench.run(bench.store.turn(worker.owner, pack_tiers([domain_of([QueueShare("elsewhere")])]), Turn(1)))
    assert bench.run(bench.store.cancel(task_id)) == "running"
    bench.enqueue("note", "own", queue="served")
    (line,) = until(lambda: bench.events("task.cancelled"))
    assert line["task_id"] == task_id
    until(lambda: bench.run(bench.store.audit()).cancelled == 1)
    until(lambda: bench.ran()[1:] == ["own"])
    assert bench.run(bench.store.dead_page(0, 1)).total == 0
