"""Tasks in a worker process: outcomes, death records, hooks, and log lines."""

import dataclasses
import signal
from typing import Any

import pytest

from rota.child.slots import Phase
from rota.protocol.store import Blame
from rota.protocol.tiers import QueueShare, domain_of, pack_tiers
from rota.protocol.turns import Turn
from rota.protocol.wire import Packed
from rota.telemetry.metrics import TASK_LAG
from support.child_harness import ChildHarness, settings_for
from support.region_reading import read_region
from support.waiting import until


def test_tasks_run_in_order_between_the_worker_hooks(harness: ChildHarness) -> None:
    for number in range(5):
        harness.enqueue("note", str(number))
    worker = harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: "4" in harness.ran())
    worker.terminate()
    assert worker.exit_code() == 0
    assert harness.ran() == ["worker start", "0", "1", "2", "3", "4", "worker stop"]
    assert harness.run(harness.store.audit()).missing == 0
    assert harness.run(harness.store.audit()).ended["done"] == 5
    assert harness.inflight(worker.owner) == 0


def test_enqueue_wakes_a_sleeping_worker(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace, "high", "low")).until_phase(Phase.IDLE)
    task_id = harness.enqueue("note", "woken", queue="low")
    until(lambda: harness.ran()[1:] == ["woken"])
    until(lambda: harness.state(task_id) == "done")
    line = until(lambda: harness.events("task.done"))[0]
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
def test_task_that_can_never_run_is_dead_with_the_reason(
    harness: ChildHarness, name: str, args: list[str], reason: str, said: str
) -> None:
    task_id = harness.enqueue(name, *args)
    harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: harness.state(task_id) == "dead")
    record = harness.death_record(task_id)
    assert record["reason"] == reason
    assert said in record["error"]
    assert record["attempt"] == 1
    assert until(lambda: harness.events("task.dead"))[0]["reason"] == reason
    assert any(line.startswith("buried") for line in harness.ran())


def test_garbage_is_dead_and_the_worker_continues(harness: ChildHarness) -> None:
    lane = harness.store.keys.ready_lane("default")
    planted = {b"\xff\x00 not json", b'["only one"]', b"[" * 5000, b'{"a": NaN}'}
    for garbage in planted:
        harness.connection.execute("RPUSH", lane, garbage)
    harness.connection.execute("RPUSH", lane, '["note", ["after"]]')
    harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: "after" in harness.ran())
    until(lambda: len(harness.run(harness.store.dead_page(0, 10)).tasks) == len(planted))
    page = harness.run(harness.store.dead_page(0, 10))
    assert {task.body for task in page.tasks} == planted
    assert all(b'"garbage"' in task.death_record for task in page.tasks)


def test_failing_task_is_retried_then_dead_with_its_traceback(harness: ChildHarness) -> None:
    task_id = harness.enqueue("fail")
    harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: harness.state(task_id) == "scheduled")
    until(lambda: harness.run(harness.store.promote()).moved)
    until(lambda: harness.state(task_id) == "dead")
    record = harness.death_record(task_id)
    assert (record["reason"], record["attempt"]) == ("retries", 2)
    assert record["traceback"].endswith("ValueError: no good")
    assert harness.ran()[1:] == ["failing", "failing", "buried fail attempt 2 of 2"]
    (retried,) = until(lambda: harness.events("task.retried"))
    assert retried["error"] == "ValueError: no good"
    assert "no good" in retried["exception"]


def test_requested_retry_has_the_given_delay(harness: ChildHarness) -> None:
    task_id = harness.enqueue("again_later", 3600)
    harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: harness.state(task_id) == "scheduled")
    due_seconds = harness.run(harness.store.status(task_id)).due_us / 1e6
    now = int(harness.connection.execute("TIME")[0])
    assert due_seconds - now == pytest.approx(3600, abs=60)


def test_async_tasks_run_in_the_event_loop(harness: ChildHarness) -> None:
    harness.enqueue("sleep_a_little", "one")
    harness.enqueue("sleep_a_little", "two")
    harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: harness.ran()[1:] == ["one sleep_a_little", "two sleep_a_little"])


def test_only_blocking_calls_in_the_event_loop_cause_warnings(harness: ChildHarness) -> None:
    for name in ("pass_on", "pass_on_in_loop"):
        harness.enqueue(name, name)
    harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: harness.ran()[1:] == ["pass_on", "pass_on_in_loop"])
    [warned] = [line for line in harness.log_path.read_text().splitlines() if "BlockingCall" in line]
    assert "child_program.py" in warned


def test_wrapped_async_function_is_awaited(harness: ChildHarness) -> None:
    task_id = harness.enqueue("wrapped_sleep", "one")
    harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: harness.state(task_id) == "done")
    assert harness.ran()[1:] == ["one wrapped_sleep"]


def test_expired_task_is_not_started(harness: ChildHarness) -> None:
    task_id = harness.enqueue("fresh_only")
    harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: harness.state(task_id) == "expired")
    assert harness.ran() == ["worker start"]
    assert harness.run(harness.store.audit()).ended["expired"] == 1
    assert until(lambda: harness.events("task.expired"))


def test_delayed_task_is_never_early_by_redis_time(harness: ChildHarness) -> None:
    harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    for milliseconds in range(5, 100, 10):
        harness.enqueue("start_time", due=f"+{milliseconds * 1000}")

    def all_done() -> list[dict[str, Any]]:
        harness.run(harness.store.promote())
        told = harness.events("task.done")
        return told if len(told) == 10 else []

    assert all(line["promotion_lag_seconds"] >= 0 for line in until(all_done))
    assert len(harness.ran()) == 11
    for line in harness.ran()[1:]:
        start_us, due_us = map(int, line.split())
        assert start_us >= due_us


def test_task_cancelled_while_waiting_is_dropped_and_logged(harness: ChildHarness) -> None:
    cancelled = harness.enqueue("note", "never")
    harness.run(harness.store.cancel(cancelled))
    harness.enqueue("note", "still")
    harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: harness.ran()[1:] == ["still"])
    assert until(lambda: harness.events("task.cancelled"))[0]["task_id"] == cancelled


def test_task_can_enqueue_into_its_own_fleet(harness: ChildHarness) -> None:
    harness.enqueue("pass_on", "passed on")
    harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: "passed on" in harness.ran())


def test_the_start_of_a_task_is_counted_even_if_its_worker_is_killed(harness: ChildHarness) -> None:
    harness.enqueue("hold", "a")
    worker = harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: "start a 1" in harness.ran())
    worker.kill()
    (lag,) = (numbers for of, _, numbers in read_region(worker.slot.metrics) if of is TASK_LAG)
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
def test_a_process_forked_by_a_task_exits_at_the_end_of_the_task(
    harness: ChildHarness, name: str, how: str, code: int
) -> None:
    task_id = harness.enqueue(name, how)
    harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: harness.state(task_id) == "done")
    harness.enqueue("note", "after")
    until(lambda: "after" in harness.ran())
    told = ["after fork in its worker"] if name == "fork" else []
    assert harness.ran() == ["worker start", f"copy {how} {code}", *told, "after"]
    until(lambda: harness.run(harness.store.audit()).ended["done"] == 2)
    until(lambda: len(harness.events("task.done")) == 2)


def test_a_process_forked_by_a_hook_exits_at_the_end_of_the_hook(harness: ChildHarness) -> None:
    task_id = harness.enqueue("fork_in_hook")
    harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: harness.state(task_id) == "dead")
    harness.enqueue("note", "after")
    until(lambda: "after" in harness.ran())
    assert harness.ran()[1:] == ["buried fork_in_hook attempt 1 of 1", "copy return 0", "after"]
    assert len(harness.events("task.dead")) == 1


def test_a_process_started_by_a_task_can_be_terminated_at_once(harness: ChildHarness) -> None:
    harness.enqueue("stop_a_process")
    worker = harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: f"process {-signal.SIGTERM}" in harness.ran())
    harness.enqueue("note", "after")  # the task signalled a different process, so this worker must continue
    until(lambda: "after" in harness.ran())
    assert worker.process.poll() is None


def test_a_crash_in_the_on_dead_hook_is_not_charged_to_the_task(harness: ChildHarness) -> None:
    task_id = harness.enqueue("die_with_hook")
    worker = harness.start(settings_for(harness.server, harness.namespace))
    assert worker.exit_code() == 9
    current = worker.slot.record(0).current()
    assert current is not None
    assert current.id == task_id
    blame = Blame(ran=((task_id, b"{}"),), crash_limit=1)
    reaped = harness.run(harness.store.reap_exited(worker.owner, blame, Packed(*worker.slot.outcomes())))
    assert (reaped.settled, reaped.requeued, reaped.dead) == (1, (), ())
    assert harness.death_record(task_id)["reason"] == "retries"
    assert harness.run(harness.store.status(task_id)).crashes == 0
    assert harness.events("task.dead")


def test_time_of_start_hooks_counts_as_lag(harness: ChildHarness) -> None:
    harness.enqueue("hesitant")
    harness.start(settings_for(harness.server, harness.namespace))
    (line,) = until(lambda: harness.events("task.done"))
    assert line["lag_seconds"] >= 0.2  # the hook waits for 0.2 s
    assert float(harness.ran()[1]) == pytest.approx(line["lag_seconds"])


def test_a_task_cancelled_after_its_claim_reply_was_lost_does_not_run(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace, "served")).until_phase(Phase.IDLE)
    task_id = harness.enqueue("note", "never", queue="elsewhere")
    harness.run(harness.store.turn(worker.owner, pack_tiers([domain_of([QueueShare("elsewhere")])]), Turn(1)))
    assert harness.run(harness.store.cancel(task_id)) == "running"
    harness.enqueue("note", "own", queue="served")
    (line,) = until(lambda: harness.events("task.cancelled"))
    assert line["task_id"] == task_id
    until(lambda: harness.run(harness.store.audit()).ended["cancelled"] == 1)
    until(lambda: harness.ran()[1:] == ["own"])
    assert harness.run(harness.store.dead_page(0, 1)).total == 0


def test_result_is_kept_for_its_ttl(harness: ChildHarness) -> None:
    ids = [harness.enqueue("answer", text, result_ttl=60) for text in ("{'a': [1, 'x']}", "None")]
    unasked = harness.enqueue("answer", "7")
    worker = harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: harness.state(unasked) == "done")
    found = [harness.run(harness.store.status(task_id)) for task_id in (*ids, unasked)]
    assert [each.result for each in found] == [b'{"a":[1,"x"]}', b"null", None]
    assert 0 < harness.connection.execute("PTTL", harness.store.keys.result(ids[0])) <= 60_000
    for each in found:
        assert each.ended is not None
        run = each.ended.run
        assert (each.ended.owner, run.pid, run.name, run.refused) == (worker.owner, worker.process.pid, "answer", "")
        assert each.ended.entry.due_us <= run.start_us  # no task is ever reported to have started before it was due


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("{1}", "result is of type set"),
        ("[{'a': float('nan')}]", "result[0].a is nan"),
        ("'x' * 2000", "max_result_kb"),
    ],
)
def test_a_task_whose_result_cannot_be_stored_still_ends_as_done(
    harness: ChildHarness, expression: str, said: str
) -> None:
    task_id = harness.enqueue("answer", expression, result_ttl=60)
    settings = settings_for(harness.server, harness.namespace, max_result_kb=1)
    log_settings = dataclasses.replace(settings.log, tasks="failures")
    harness.start(dataclasses.replace(settings, log=log_settings))
    until(lambda: harness.state(task_id) == "done")
    found = harness.run(harness.store.status(task_id))
    assert found.ended is not None
    assert found.result is None
    assert said in found.ended.run.refused
    line = until(lambda: harness.events("task.done"))[0]
    assert (line["level"], line["result_refused"]) == ("warning", found.ended.run.refused)


def test_a_task_that_opts_out_of_stored_ends_leaves_no_record(harness: ChildHarness) -> None:
    task_id = harness.enqueue("unremembered")
    worker = harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: "unremembered" in harness.ran())
    until(lambda: harness.inflight(worker.owner) == 0)
    assert harness.state(task_id) == "unknown"
    assert harness.run(harness.store.audit()).ended["done"] == 1
