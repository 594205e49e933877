"""A worker process's beginning, its end, and what it does when something else ends."""

import dataclasses
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import LEASE_SECONDS, Bench, Child, settings_for, until
from faulty_link import FaultyLink
from rota.child.life import EXIT_LOST, EXIT_ORPHANED
from rota.child.signals import WAKE_SIGNAL
from rota.child.slots import Phase, RecycleReason, boottime_ns
from rota.protocol.store import Blame, QueueShare, Turn, domain_of, pack_tiers
from rota.protocol.wire import Packed
from servers import Server


@pytest.fixture
def bench(server: Server, namespace: str, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(server, namespace, tmp_path)
    yield made
    made.close()


@pytest.fixture
def link(server: Server) -> Iterator[FaultyLink]:
    with FaultyLink(server.port) as made:
        yield made


def test_a_stop_signal_is_seen_at_once_at_the_doorbell(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace)).until_phase(Phase.IDLE)
    until(lambda: b"cmd=blpop" in bench.connection.execute("CLIENT", "LIST"))
    before_ns = boottime_ns()
    worker.terminate()
    assert worker.exit_code() == 0
    # Its BLPOP would have lasted 2 s; a process needs some time to leave on a machine that is busy.
    assert boottime_ns() - before_ns < 1_900_000_000
    assert bench.ran() == ["worker start", "worker stop"]


def test_a_stop_signal_in_a_task_lets_it_end_and_claims_no_other(bench: Bench) -> None:
    held = bench.enqueue("hold", "a")
    waiting = bench.enqueue("note", "b")
    worker = bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: "start a 1" in bench.ran())
    worker.until_phase(Phase.BUSY)
    current = worker.slot.current_task()
    assert current is not None
    assert (current.id, current.name, current.queue) == (held, "hold", "default")
    assert current.deadline_ns - current.started_ns == 3600 * 10**9
    for _ in range(5):
        worker.terminate()
    bench.release()
    assert worker.exit_code() == 0
    assert bench.ran() == ["worker start", "start a 1", "end a", "worker stop"]
    assert (bench.state(held), bench.state(waiting)) == ("unknown", "ready")
    worker.until_phase(Phase.DRAINING)
    assert bench.inflight(worker.owner) == 0


def _clients(bench: Bench) -> list[bytes]:
    listed: bytes = bench.connection.execute("CLIENT", "LIST")
    return listed.splitlines()


def _client_of(bench: Bench, owner: str) -> bytes:
    name = f"name=rota:worker:{owner} ".encode()
    return next((line for line in _clients(bench) if name in line), b"")


def _cut(bench: Bench, owner: str) -> None:
    line = _client_of(bench, owner)
    bench.connection.execute("CLIENT", "KILL", "ID", line.split(b"id=")[1].split(b" ")[0])


def test_what_a_killed_worker_had_finished_is_settled_from_its_slot(bench: Bench, tmp_path: Path) -> None:
    task_id = bench.enqueue("wait_for_file", str(tmp_path / "go"))
    worker = bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: "waiting" in bench.ran())
    _cut(bench, worker.owner)
    os.kill(bench.server.pid, signal.SIGSTOP)  # so that the worker can tell nobody
    try:
        (tmp_path / "go").touch()
        until(lambda: worker.slot.outcomes()[0])
        worker.kill()
    finally:
        os.kill(bench.server.pid, signal.SIGCONT)
    retired = bench.run(bench.store.retire_exited(worker.owner, Blame(), Packed(*worker.slot.outcomes())))
    assert retired.settled == 1
    assert bench.state(task_id) == "unknown"
    assert bench.run(bench.store.audit()).done == 1


def test_a_killed_worker_leaves_its_task_named_and_unsettled(bench: Bench) -> None:
    task_id = bench.enqueue("hold", "a")
    worker = bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: "start a 1" in bench.ran())
    worker.kill()
    current = worker.slot.current_task()
    assert current is not None
    assert current.id == task_id
    assert worker.slot.outcomes() == (0, b"")
    retired = bench.run(bench.store.retire_exited(worker.owner, Blame(ran=((task_id, b"{}"),))))
    assert [entry.id for entry in retired.requeued] == [task_id]
    bench.start(settings_for(bench.server, bench.namespace), slot=2)
    until(lambda: "start a 2" in bench.ran())


def test_a_claim_whose_answer_was_lost_is_taken_over_and_run(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace, "served")).until_phase(Phase.IDLE)
    # Claimed for this owner behind its back, as by a turn whose answer never arrived.
    bench.enqueue("note", "taken over", queue="elsewhere")
    elsewhere = pack_tiers([domain_of([QueueShare("elsewhere")])])
    claimed = bench.run(bench.store.turn(worker.owner, elsewhere, Turn(1)))
    assert len(claimed.claims) == 1
    bench.enqueue("note", "own", queue="served")
    until(lambda: sorted(bench.ran()[1:]) == ["own", "taken over"])
    until(lambda: bench.inflight(worker.owner) == 0)


def test_an_owner_that_is_no_longer_registered_stops_at_once(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace)).until_phase(Phase.IDLE)
    bench.run(bench.store.retire_exited(worker.owner, Blame()))
    bench.enqueue("note", "not by this one")
    assert worker.exit_code() == EXIT_LOST
    assert bench.ran() == ["worker start"]
    assert bench.events("worker.lost")


def test_a_worker_whose_lease_is_in_doubt_starts_nothing_until_it_is_renewed(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace)).until_phase(Phase.IDLE)
    worker.slot.renewed_ns = boottime_ns() - round(LEASE_SECONDS * 1e9)
    bench.enqueue("note", "a")
    until(lambda: bench.events("worker.fenced"))
    assert bench.ran() == ["worker start"]
    worker.slot.renewed_ns = boottime_ns()
    until(lambda: bench.ran() == ["worker start", "a"])


def test_a_worker_behind_its_fence_still_settles_what_it_finished(bench: Bench) -> None:
    task_id = bench.enqueue("hold", "a")
    worker = bench.start(settings_for(bench.server, bench.namespace))
    until(lambda: "start a 1" in bench.ran())
    worker.slot.renewed_ns = boottime_ns() - round(LEASE_SECONDS * 1e9)
    bench.release()
    until(lambda: bench.state(task_id) == "unknown")


def test_a_worker_without_a_master_stops_at_once(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace)).until_phase(Phase.IDLE)
    bench.die()
    assert worker.exit_code() == EXIT_ORPHANED
    assert bench.ran() == ["worker start"]


def test_a_cut_connection_keeps_the_outcome_and_runs_nothing_twice(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace)).until_phase(Phase.IDLE)
    task_id = bench.enqueue("hold", "a")
    until(lambda: "start a 1" in bench.ran())
    _cut(bench, worker.owner)
    bench.release()
    until(lambda: bench.state(task_id) == "unknown")
    bench.enqueue("note", "b")
    until(lambda: bench.ran()[1:] == ["start a 1", "end a", "b"])
    assert len(bench.events("redis.lost")) == 1
    until(lambda: len(bench.events("redis.back")) == 1)


def test_a_worker_that_has_made_all_its_attempts_wishes_to_be_replaced_and_waits_for_it(bench: Bench) -> None:
    ids = [bench.enqueue("note", str(number)) for number in range(8)]
    worker = bench.start(settings_for(bench.server, bench.namespace, max_tasks=6, max_tasks_jitter=0.0))
    until(lambda: worker.slot.recycle_reason is RecycleReason.MAX_TASKS)
    until(lambda: bench.inflight(worker.owner) == 0)  # what it had claimed beyond, others may run
    assert [bench.state(task_id) for task_id in ids] == ["unknown"] * 6 + ["ready"] * 2
    assert worker.slot.phase is Phase.IDLE
    worker.terminate()
    assert worker.exit_code() == 0
    assert bench.ran() == ["worker start", *map(str, range(6)), "worker stop"]


def test_a_worker_wishes_within_the_share_of_jitter_and_works_on_meanwhile(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace, max_tasks=100, max_tasks_jitter=1.0))
    for number in range(100):
        bench.enqueue("note", str(number))
    until(lambda: len(bench.ran()) == 101)
    assert worker.slot.recycle_reason is RecycleReason.MAX_TASKS


def test_a_worker_that_has_grown_too_large_wishes_to_be_replaced_and_works_on(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace, max_rss_mb=60)).until_phase(Phase.IDLE)
    bench.enqueue("grow", 4)
    until(lambda: "grown by 4" in bench.ran())
    until(lambda: bench.inflight(worker.owner) == 0)
    assert worker.slot.recycle_reason is RecycleReason.NONE
    bench.enqueue("grow", 60)
    until(lambda: worker.slot.recycle_reason is RecycleReason.MAX_RSS)
    bench.enqueue("note", "after")
    until(lambda: bench.ran()[-1] == "after")


# Quiet


def _ask_for_quiet(worker: Child, *, quiet: bool) -> None:
    worker.slot.quiet_asked = quiet
    worker.process.send_signal(WAKE_SIGNAL)


def test_a_worker_that_starts_quiet_is_ready_without_a_claim_and_works_at_once_when_it_may(bench: Bench) -> None:
    task_id = bench.enqueue("note", "a")
    worker = bench.start(settings_for(bench.server, bench.namespace), quiet=True).until_phase(Phase.QUIET)
    assert bench.state(task_id) == "ready"
    _ask_for_quiet(worker, quiet=False)
    until(lambda: bench.ran() == ["worker start", "a"])
    worker.until_phase(Phase.IDLE)


def test_quiet_is_heard_at_the_doorbell_and_what_rings_meanwhile_is_left_to_others(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace)).until_phase(Phase.IDLE)
    until(lambda: b"cmd=blpop" in _client_of(bench, worker.owner))
    before_ns = boottime_ns()
    _ask_for_quiet(worker, quiet=True)
    worker.until_phase(Phase.QUIET)
    assert boottime_ns() - before_ns < 1_900_000_000
    until(lambda: b"cmd=evalsha" in _client_of(bench, worker.owner))  # it has asked anew, and listens no more
    bench.enqueue("note", "by the other")
    bench.start(settings_for(bench.server, bench.namespace), slot=2)
    until(lambda: bench.ran() == ["worker start", "worker start", "by the other"])
    worker.terminate()
    assert worker.exit_code() == 0


def test_quiet_in_a_task_lets_it_end_and_gives_back_the_rest_of_the_claim_unharmed(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace)).until_phase(Phase.IDLE)
    # Notes first, so that several are claimed at once.
    for number in range(100):
        bench.enqueue("note", str(number))
    until(lambda: len(bench.ran()) == 101)
    os.kill(worker.process.pid, signal.SIGSTOP)
    held = bench.enqueue("hold", "a")
    waiting = [bench.enqueue("note", f"after {number}") for number in range(20)]
    os.kill(worker.process.pid, signal.SIGCONT)
    until(lambda: "start a 1" in bench.ran())
    _ask_for_quiet(worker, quiet=True)
    bench.release()
    worker.until_phase(Phase.QUIET)
    until(lambda: bench.inflight(worker.owner) == 0)
    assert bench.ran()[101:] == ["start a 1", "end a"]
    assert bench.state(held) == "unknown"
    stati = [bench.run(bench.store.status(task_id)) for task_id in waiting]
    assert {(found.state, found.failures, found.crashes, found.losses) for found in stati} == {("ready", 0, 0, 0)}
    _ask_for_quiet(worker, quiet=False)
    until(lambda: bench.ran()[103:] == [f"after {number}" for number in range(20)])


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_for_a_master_do_nothing_to_a_worker(bench: Bench, number: signal.Signals) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace)).until_phase(Phase.IDLE)
    worker.process.send_signal(number)
    bench.enqueue("note", "a")
    until(lambda: bench.ran() == ["worker start", "a"])


def test_a_start_hook_that_fails_ends_the_worker_before_its_first_claim(bench: Bench) -> None:
    bench.enqueue("note", "a")
    worker = bench.start(settings_for(bench.server, bench.namespace), FAIL_AT_START="1")
    assert worker.exit_code() == 1
    assert worker.slot.phase is Phase.BOOTING
    assert "start hook fails" in bench.events("hook.failed")[0]["exception"]
    assert bench.ran() == ["worker start"]


def test_scripts_forgotten_while_a_worker_listens_are_taught_again_by_the_turn_it_had_sent(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace)).until_phase(Phase.IDLE)
    until(lambda: b"cmd=blpop" in _client_of(bench, worker.owner))
    bench.connection.execute("SCRIPT", "FLUSH")
    task_id = bench.enqueue("note", "after")
    until(lambda: bench.ran()[1:] == ["after"])
    until(lambda: bench.state(task_id) == "unknown")
    assert not bench.events("redis.lost")


def test_a_doorbell_of_another_type_is_no_reason_to_hear_answers_of_another_question(bench: Bench) -> None:
    bell = bench.store.keys.doorbell("default")
    worker = bench.start(settings_for(bench.server, bench.namespace)).until_phase(Phase.IDLE)
    until(lambda: b"cmd=blpop" in _client_of(bench, worker.owner))
    bench.connection.execute("SET", bell, "not a list")
    _cut(bench, worker.owner)
    until(lambda: [line["reason"] for line in bench.events("redis.lost")][-1:] == ["wrongtype"])
    bench.enqueue("note", "all the same")
    until(lambda: "all the same" in bench.ran())
    bench.connection.execute("DEL", bell)
    bench.enqueue("note", "heard")
    until(lambda: "heard" in bench.ran())
    until(lambda: bench.run(bench.store.audit()).live == 0)


def test_a_token_of_one_queue_is_told_on_when_another_was_claimed_from(bench: Bench) -> None:
    worker = bench.start(settings_for(bench.server, bench.namespace, "high", "low")).until_phase(Phase.IDLE)
    until(lambda: b"cmd=blpop" in _client_of(bench, worker.owner))
    # Both at once, so that the turn behind the token of `low` finds `high` first.
    bench.connection.execute("RPUSH", bench.store.keys.ready_lane("high"), '["hold", ["first"]]')
    bench.connection.execute("SADD", bench.store.keys.ready, "high")
    bench.enqueue("note", "second", queue="low")
    until(lambda: "start first 1" in bench.ran())
    assert bench.connection.execute("LLEN", bench.store.keys.doorbell("low")) == 1
    bench.release()
    until(lambda: "second" in bench.ran())


# A turn sent along behind the doorbell


def _hold_what_the_doorbell_brings(link: FaultyLink) -> None:
    """Carry out what is sent to the server, and keep back the answer of a BLPOP and all that follows it."""
    link.gate = lambda name, is_reply, _port: not (name == "blpop" and is_reply)


def _parked_behind(link: FaultyLink, bench: Bench) -> Child:
    settings = settings_for(bench.server, bench.namespace)
    server = dataclasses.replace(settings.server, redis_url=link.url)
    worker = bench.start(dataclasses.replace(settings, server=server)).until_phase(Phase.IDLE)
    until(lambda: b"cmd=blpop" in _client_of(bench, worker.owner), "it is parked")
    return worker


def test_who_leaves_while_the_answer_is_on_its_way_gives_back_what_it_had_claimed(
    bench: Bench, link: FaultyLink
) -> None:
    worker = _parked_behind(link, bench)
    _hold_what_the_doorbell_brings(link)
    task_id = bench.enqueue("note", "not by this one")
    until(lambda: bench.inflight(worker.owner) == 1, "the turn has claimed")
    worker.terminate()
    assert worker.exit_code() == 0
    assert bench.inflight(worker.owner) == 0
    assert bench.state(task_id) == "ready"
    (released,) = bench.events("task.released")
    assert released["task_id"] == task_id
    (entry,) = bench.connection.execute("LRANGE", bench.store.keys.ready_lane("default"), 0, -1)
    assert entry.split()[5:9] == [b"0", b"0", b"0", b"1"]  # failures crashes losses releases
    assert bench.ran() == ["worker start", "worker stop"]


def test_who_leaves_and_cannot_ask_what_it_had_claimed_does_not_wait_for_long(bench: Bench, link: FaultyLink) -> None:
    worker = _parked_behind(link, bench)
    _hold_what_the_doorbell_brings(link)
    bench.enqueue("note", "for another")
    until(lambda: bench.inflight(worker.owner) == 1, "the turn has claimed")
    link.refuse()
    worker.terminate()
    assert worker.exit_code() == 0
    retired = bench.run(bench.store.retire_exited(worker.owner, Blame()))
    assert [(entry.releases, entry.crashes) for entry in retired.requeued] == [(1, 0)]
    assert bench.ran() == ["worker start", "worker stop"]
