"""A worker process: its start, its exit, and its behavior when other parts of the fleet end."""

import dataclasses
import os
import signal
from pathlib import Path

import pytest

from rota.child.child_process import EXIT_LOST, EXIT_ORPHANED, WAKE_SIGNAL
from rota.child.slots import Phase, RecycleReason, boottime_ns
from rota.protocol.store import Blame
from rota.protocol.tiers import QueueShare, domain_of, pack_tiers
from rota.protocol.turns import Turn
from rota.protocol.wire import Packed
from support.child_harness import LEASE_SECONDS, Child, ChildHarness, settings_for
from support.faulty_link import FaultyLink
from support.waiting import until


def test_a_stop_signal_wakes_a_sleeping_worker_at_once(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    until(lambda: b"cmd=blpop" in harness.connection.execute("CLIENT", "LIST"))
    before_ns = boottime_ns()
    worker.terminate()
    assert worker.exit_code() == 0
    # The BLPOP would have lasted for 2 s. The limit is only slightly lower, because a process may exit slowly on a busy
    # machine.
    assert boottime_ns() - before_ns < 1_900_000_000
    assert harness.ran() == ["worker start", "worker stop"]


def test_stop_signal_lets_the_running_task_finish(harness: ChildHarness) -> None:
    held = harness.enqueue("hold", "a")
    waiting = harness.enqueue("note", "b")
    worker = harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: "start a 1" in harness.ran())
    worker.until_phase(Phase.BUSY)
    current = worker.slot.record(0).current()
    assert current is not None
    assert (current.id, current.name, current.queue) == (held, "hold", "default")
    assert current.deadline_ns - current.started_ns == 3600 * 10**9
    for _ in range(5):
        worker.terminate()
    harness.release()
    assert worker.exit_code() == 0
    assert harness.ran() == ["worker start", "start a 1", "end a", "worker stop"]
    assert (harness.state(held), harness.state(waiting)) == ("done", "ready")
    worker.until_phase(Phase.DRAINING)
    assert harness.inflight(worker.owner) == 0


def _clients(harness: ChildHarness) -> list[bytes]:
    listed: bytes = harness.connection.execute("CLIENT", "LIST")
    return listed.splitlines()


def _client_of(harness: ChildHarness, owner: str) -> bytes:
    name = f"name=rota:worker:{owner} ".encode()
    return next((line for line in _clients(harness) if name in line), b"")


def _cut(harness: ChildHarness, owner: str) -> None:
    line = _client_of(harness, owner)
    harness.connection.execute("CLIENT", "KILL", "ID", line.split(b"id=")[1].split(b" ")[0])


def test_outcomes_of_a_killed_worker_are_settled_from_its_slot(harness: ChildHarness, tmp_path: Path) -> None:
    task_id = harness.enqueue("wait_for_file", str(tmp_path / "go"))
    worker = harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: "waiting" in harness.ran())
    _cut(harness, worker.owner)
    os.kill(harness.server.pid, signal.SIGSTOP)  # the server is stopped, so that the worker cannot send its outcome
    try:
        (tmp_path / "go").touch()
        until(lambda: worker.slot.outcomes()[0])
        worker.kill()
    finally:
        os.kill(harness.server.pid, signal.SIGCONT)
    reaped = harness.run(harness.store.reap_exited(worker.owner, Blame(), Packed(*worker.slot.outcomes())))
    assert reaped.settled == 1
    assert harness.state(task_id) == "done"
    assert harness.run(harness.store.audit()).ended["done"] == 1


def test_the_slot_of_a_killed_worker_names_its_unfinished_task(harness: ChildHarness) -> None:
    task_id = harness.enqueue("hold", "a")
    worker = harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: "start a 1" in harness.ran())
    worker.kill()
    current = worker.slot.record(0).current()
    assert current is not None
    assert current.id == task_id
    assert worker.slot.outcomes() == (0, b"")
    reaped = harness.run(harness.store.reap_exited(worker.owner, Blame(ran=((task_id, b"{}"),))))
    assert [entry.id for entry in reaped.requeued] == [task_id]
    harness.start(settings_for(harness.server, harness.namespace), slot=2)
    until(lambda: "start a 2" in harness.ran())


def test_a_worker_runs_a_task_whose_claim_reply_was_lost(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace, "served")).until_phase(Phase.IDLE)
    # This turn claims a task for the worker's owner without the worker's knowledge. It simulates a turn whose reply was
    # lost.
    harness.enqueue("note", "taken over", queue="elsewhere")
    elsewhere = pack_tiers([domain_of([QueueShare("elsewhere")])])
    claimed = harness.run(harness.store.turn(worker.owner, elsewhere, Turn(1)))
    assert len(claimed.claims) == 1
    harness.enqueue("note", "own", queue="served")
    until(lambda: sorted(harness.ran()[1:]) == ["own", "taken over"])
    until(lambda: harness.inflight(worker.owner) == 0)


def test_an_idle_worker_that_was_reaped_stops_at_once(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    harness.run(harness.store.reap_exited(worker.owner, Blame()))
    harness.enqueue("note", "not by this one")
    assert worker.exit_code() == EXIT_LOST
    assert harness.ran() == ["worker start"]
    assert harness.events("worker.lost")


def test_a_worker_with_a_doubtful_lease_starts_no_task_until_its_renewal(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    worker.slot.renewed_ns = boottime_ns() - round(LEASE_SECONDS * 1e9)
    harness.enqueue("note", "a")
    until(lambda: harness.events("worker.fenced"))
    assert harness.ran() == ["worker start"]
    worker.slot.renewed_ns = boottime_ns()
    until(lambda: harness.ran() == ["worker start", "a"])


def test_fenced_worker_still_settles_finished_tasks(harness: ChildHarness) -> None:
    task_id = harness.enqueue("hold", "a")
    worker = harness.start(settings_for(harness.server, harness.namespace))
    until(lambda: "start a 1" in harness.ran())
    worker.slot.renewed_ns = boottime_ns() - round(LEASE_SECONDS * 1e9)
    harness.release()
    until(lambda: harness.state(task_id) == "done")


def test_idle_worker_without_a_master_exits_at_once(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    harness.die()
    assert worker.exit_code() == EXIT_ORPHANED
    assert harness.ran() == ["worker start"]


def test_a_worker_reports_its_outcome_once_after_a_cut_connection(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    task_id = harness.enqueue("hold", "a")
    until(lambda: "start a 1" in harness.ran())
    _cut(harness, worker.owner)
    harness.release()
    until(lambda: harness.state(task_id) == "done")
    harness.enqueue("note", "b")
    until(lambda: harness.ran()[1:] == ["start a 1", "end a", "b"])
    assert len(harness.events("redis.lost")) == 1
    until(lambda: len(harness.events("redis.back")) == 1)


def test_worker_at_max_tasks_waits_for_its_replacement(harness: ChildHarness) -> None:
    ids = [harness.enqueue("note", str(number)) for number in range(8)]
    worker = harness.start(settings_for(harness.server, harness.namespace, max_tasks=6, max_tasks_jitter=0.0))
    until(lambda: worker.slot.recycle_reason is RecycleReason.MAX_TASKS)
    # The worker returns the other claimed tasks, so that other workers may run them.
    until(lambda: harness.inflight(worker.owner) == 0)
    assert [harness.state(task_id) for task_id in ids] == ["done"] * 6 + ["ready"] * 2
    assert worker.slot.phase is Phase.IDLE
    worker.terminate()
    assert worker.exit_code() == 0
    assert harness.ran() == ["worker start", *map(str, range(6)), "worker stop"]


def test_a_worker_works_on_after_it_requested_its_replacement_within_jitter(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace, max_tasks=100, max_tasks_jitter=1.0))
    for number in range(100):
        harness.enqueue("note", str(number))
    until(lambda: len(harness.ran()) == 101)
    assert worker.slot.recycle_reason is RecycleReason.MAX_TASKS


def test_a_worker_that_uses_too_much_memory_works_until_it_is_replaced(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace, max_rss_mb=60)).until_phase(Phase.IDLE)
    harness.enqueue("grow", 4)
    until(lambda: "grown by 4" in harness.ran())
    until(lambda: harness.inflight(worker.owner) == 0)
    assert worker.slot.recycle_reason is RecycleReason.NONE
    harness.enqueue("grow", 60)
    until(lambda: worker.slot.recycle_reason is RecycleReason.MAX_RSS)
    harness.enqueue("note", "after")
    until(lambda: harness.ran()[-1] == "after")


# Quiet


def _request_quiet(worker: Child, *, quiet: bool) -> None:
    worker.slot.quiet_requested = quiet
    worker.process.send_signal(WAKE_SIGNAL)


def test_a_worker_that_starts_quiet_claims_no_task_until_a_resume(
    harness: ChildHarness,
) -> None:
    task_id = harness.enqueue("note", "a")
    worker = harness.start(settings_for(harness.server, harness.namespace), quiet=True).until_phase(Phase.QUIET)
    assert harness.state(task_id) == "ready"
    _request_quiet(worker, quiet=False)
    until(lambda: harness.ran() == ["worker start", "a"])
    worker.until_phase(Phase.IDLE)


def test_quieting_wakes_a_sleeping_worker_and_leaves_tasks_to_others(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    until(lambda: b"cmd=blpop" in _client_of(harness, worker.owner))
    before_ns = boottime_ns()
    _request_quiet(worker, quiet=True)
    worker.until_phase(Phase.QUIET)
    assert boottime_ns() - before_ns < 1_900_000_000
    # The worker has made another turn, and is no longer waiting at a doorbell.
    until(lambda: b"cmd=evalsha" in _client_of(harness, worker.owner))
    harness.enqueue("note", "by the other")
    harness.start(settings_for(harness.server, harness.namespace), slot=2)
    until(lambda: harness.ran() == ["worker start", "worker start", "by the other"])
    worker.terminate()
    assert worker.exit_code() == 0


def test_a_worker_that_is_quieted_finishes_its_task_and_returns_the_others(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    # These tasks are so short that the worker then claims several tasks at once.
    for number in range(100):
        harness.enqueue("note", str(number))
    until(lambda: len(harness.ran()) == 101)
    os.kill(worker.process.pid, signal.SIGSTOP)
    held = harness.enqueue("hold", "a")
    waiting = [harness.enqueue("note", f"after {number}") for number in range(20)]
    os.kill(worker.process.pid, signal.SIGCONT)
    until(lambda: "start a 1" in harness.ran())
    _request_quiet(worker, quiet=True)
    harness.release()
    worker.until_phase(Phase.QUIET)
    until(lambda: harness.inflight(worker.owner) == 0)
    assert harness.ran()[101:] == ["start a 1", "end a"]
    assert harness.state(held) == "done"
    stati = [harness.run(harness.store.status(task_id)) for task_id in waiting]
    assert {(found.state, found.failures, found.crashes, found.losses) for found in stati} == {("ready", 0, 0, 0)}
    _request_quiet(worker, quiet=False)
    until(lambda: harness.ran()[103:] == [f"after {number}" for number in range(20)])


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_worker_ignores_signals_for_the_master(harness: ChildHarness, number: signal.Signals) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    worker.process.send_signal(number)
    harness.enqueue("note", "a")
    until(lambda: harness.ran() == ["worker start", "a"])


def test_failing_start_hook_ends_the_worker_before_claiming(harness: ChildHarness) -> None:
    harness.enqueue("note", "a")
    worker = harness.start(settings_for(harness.server, harness.namespace), FAIL_AT_START="1")
    assert worker.exit_code() == 1
    assert worker.slot.phase is Phase.BOOTING
    assert "start hook fails" in harness.events("hook.failed")[0]["exception"]
    assert harness.ran() == ["worker start"]


def test_a_sleeping_worker_still_claims_after_a_script_flush(
    harness: ChildHarness,
) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    until(lambda: b"cmd=blpop" in _client_of(harness, worker.owner))
    harness.connection.execute("SCRIPT", "FLUSH")
    task_id = harness.enqueue("note", "after")
    until(lambda: harness.ran()[1:] == ["after"])
    until(lambda: harness.state(task_id) == "done")
    assert not harness.events("redis.lost")


def test_a_doorbell_key_of_the_wrong_type_does_not_mix_up_replies(harness: ChildHarness) -> None:
    bell = harness.store.keys.doorbell("default")
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    until(lambda: b"cmd=blpop" in _client_of(harness, worker.owner))
    harness.connection.execute("SET", bell, "not a list")
    _cut(harness, worker.owner)
    until(lambda: [line["reason"] for line in harness.events("redis.lost")][-1:] == ["wrongtype"])
    harness.enqueue("note", "all the same")
    until(lambda: "all the same" in harness.ran())
    harness.connection.execute("DEL", bell)
    harness.enqueue("note", "heard")
    until(lambda: "heard" in harness.ran())
    until(lambda: harness.run(harness.store.audit()).live == 0)


def test_a_worker_woken_for_a_queue_passes_the_wake_up_on_if_it_claims_from_another(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace, "high", "low")).until_phase(Phase.IDLE)
    until(lambda: b"cmd=blpop" in _client_of(harness, worker.owner))
    # The two items are pushed together. The token of `low` wakes the worker, but the worker's turn finds `high` first.
    harness.connection.execute("RPUSH", harness.store.keys.ready_lane("high"), '["hold", ["first"]]')
    harness.connection.execute("SADD", harness.store.keys.ready, "high")
    harness.enqueue("note", "second", queue="low")
    until(lambda: "start first 1" in harness.ran())
    assert harness.connection.execute("LLEN", harness.store.keys.doorbell("low")) == 1
    harness.release()
    until(lambda: "second" in harness.ran())


# Turns that are sent directly behind a BLPOP


def _hold_doorbell_replies(link: FaultyLink) -> None:
    """Let the link forward all requests, but hold back the next reply to a BLPOP and all replies after it."""
    link.gate = lambda name, is_reply, _port: not (name == "blpop" and is_reply)


def _parked_behind(link: FaultyLink, harness: ChildHarness) -> Child:
    settings = settings_for(harness.server, harness.namespace)
    server = dataclasses.replace(settings.server, redis_url=link.url)
    worker = harness.start(dataclasses.replace(settings, server=server)).until_phase(Phase.IDLE)
    until(lambda: b"cmd=blpop" in _client_of(harness, worker.owner), "the worker waits in BLPOP")
    return worker


def test_a_stopping_worker_returns_tasks_of_a_claim_not_yet_answered(harness: ChildHarness, link: FaultyLink) -> None:
    worker = _parked_behind(link, harness)
    _hold_doorbell_replies(link)
    task_id = harness.enqueue("note", "not by this one")
    until(lambda: harness.inflight(worker.owner) == 1, "the turn has claimed")
    worker.terminate()
    assert worker.exit_code() == 0
    assert harness.inflight(worker.owner) == 0
    assert harness.state(task_id) == "ready"
    (released,) = harness.events("task.released")
    assert released["task_id"] == task_id
    (entry,) = harness.connection.execute("LRANGE", harness.store.keys.ready_lane("default"), 0, -1)
    assert entry.split()[5:9] == [b"0", b"0", b"0", b"1"]  # the counts of failures, crashes, losses and releases
    assert harness.ran() == ["worker start", "worker stop"]


def test_a_stopping_worker_does_not_wait_long_for_a_missing_server(harness: ChildHarness, link: FaultyLink) -> None:
    worker = _parked_behind(link, harness)
    _hold_doorbell_replies(link)
    harness.enqueue("note", "for another")
    until(lambda: harness.inflight(worker.owner) == 1, "the turn has claimed")
    link.refuse()
    worker.terminate()
    assert worker.exit_code() == 0
    reaped = harness.run(harness.store.reap_exited(worker.owner, Blame()))
    assert [(entry.releases, entry.crashes) for entry in reaped.requeued] == [(1, 0)]
    assert harness.ran() == ["worker start", "worker stop"]
