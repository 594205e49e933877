"""A poller process: promotes in time, gives back what lost owners held, and survives what its server does."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import DEADLINE_SECONDS, Bench, until
from rota.child.life import EXIT_ORPHANED
from rota.child.slots import Phase
from rota.protocol.store import QueueShare, Turn, domain_of, pack_tiers
from rota.telemetry import metrics
from rota.telemetry.recorder import Recorder
from servers import Server

TIERS = pack_tiers([domain_of([QueueShare("default")])])


@pytest.fixture
def bench(server: Server, namespace: str, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(server, namespace, tmp_path)
    yield made
    made.close()


def _clients(bench: Bench, name: str) -> list[bytes]:
    listed: bytes = bench.connection.execute("CLIENT", "LIST")
    return [line for line in listed.splitlines() if b"name=" + name.encode() in line]


def _until_parked(bench: Bench) -> None:
    until(lambda: any(b"cmd=blpop" in line for line in _clients(bench, "rota:poller")))


def _claim(bench: Bench, owner: str) -> list[tuple[int, int]]:
    """Claim all that is ready; due and ready times of each, in microseconds."""
    reply = bench.run(bench.store.turn(owner, TIERS, Turn(500)))
    return [(claim.entry.due_us, claim.entry.ready_us) for claim in reply.claims]


def _until_given_back(bench: Bench, owner: str) -> None:
    lane = bench.store.keys.ready_lane("default")
    until(lambda: not bench.inflight(owner) and bench.connection.execute("LLEN", lane))


def test_tasks_are_promoted_when_due_never_before(bench: Bench) -> None:
    (owner,) = bench.run(bench.store.register(60_000, ["node:1"]))
    bench.start_poller()
    _until_parked(bench)
    for milliseconds in range(300, 0, -20):  # each is due before all that the poller knows: the bell must ring
        bench.enqueue("note", "a", due=f"+{milliseconds * 1000}")
    seen: list[tuple[int, int]] = []

    def all_claimed() -> bool:
        held = bench.run(bench.store.turn(owner, TIERS, Turn(500)))
        seen.extend((claim.entry.due_us, claim.entry.ready_us) for claim in held.claims)
        bench.connection.execute("DEL", bench.store.keys.inflight(owner))
        return len(seen) == 15

    until(all_claimed)
    assert all(ready >= due for due, ready in seen)
    assert sorted(seen) == seen


def test_a_bare_member_added_by_anybody_is_promoted_within_seconds(bench: Bench) -> None:
    bench.start_poller()
    _until_parked(bench)
    seconds = int(bench.connection.execute("TIME")[0])
    body = json.dumps(["", "default", "note", ["bare"]])
    bench.connection.execute("ZADD", bench.store.keys.delayed, seconds, body)
    until(lambda: bench.connection.execute("LLEN", bench.store.keys.delayed_lane("default")))


def test_what_a_lost_owner_held_goes_back_to_its_lane(bench: Bench) -> None:
    task_id = bench.enqueue("note", "a")
    (owner,) = bench.run(bench.store.register(100, ["lost:1"]))
    assert _claim(bench, owner)
    poller = bench.start_poller(lease_seconds=1.0)
    until(lambda: bench.state(task_id) == "ready")
    status = bench.run(bench.store.status(task_id))
    assert (status.losses, status.crashes) == (1, 0)
    recovered = until(lambda: bench.events("task.recovered"))
    assert (recovered[0]["task_id"], recovered[0]["owner"]) == (task_id, owner)
    poller.terminate()
    assert poller.exit_code() == 0
    recorder = Recorder(poller.slot.metrics)
    counted = recorder.counter(metrics.TASKS_RECOVERED, "default", "lease_expired")
    assert counted._numbers[counted._at] == 1.0


def test_a_task_lost_too_often_is_dead_with_the_reason(bench: Bench) -> None:
    task_id = bench.enqueue("note", "a")
    (owner,) = bench.run(bench.store.register(100, ["lost:1"]))
    assert _claim(bench, owner)
    bench.start_poller(lease_seconds=1.0, loss_limit=1)
    until(lambda: bench.state(task_id) == "dead")
    assert bench.epitaph(task_id)["reason"] == "lost"


def test_an_in_flight_list_nobody_registered_is_found_and_given_back(bench: Bench) -> None:
    bench.enqueue("note", "a")
    (owner,) = bench.run(bench.store.register(2_000, ["node:1"]))
    assert _claim(bench, owner)
    bench.connection.execute("ZREM", bench.store.keys.owners, owner)
    bench.start_poller(lease_seconds=1.0)
    _until_given_back(bench, owner)


def test_a_lost_owner_whose_list_is_of_another_type_is_retired_and_holds_up_no_other(bench: Bench) -> None:
    task_id = bench.enqueue("note", "a")
    broken, owner = bench.run(bench.store.register(100, ["lost:1", "lost:2"]))
    bench.connection.execute("SET", bench.store.keys.inflight(broken), "not a list")
    assert _claim(bench, owner)
    bench.start_poller(lease_seconds=1.0)
    until(lambda: bench.state(task_id) == "ready")
    until(lambda: bench.connection.execute("ZSCORE", bench.store.keys.owners, broken) is None)
    due_id = bench.enqueue("note", "b", due="+1000")
    until(lambda: bench.state(due_id) == "ready")


def test_a_list_whose_name_is_no_text_keeps_no_poller_from_its_work(bench: Bench) -> None:
    bench.enqueue("note", "a")
    (owner,) = bench.run(bench.store.register(2_000, ["node:1"]))
    assert _claim(bench, owner)
    bench.connection.execute("ZREM", bench.store.keys.owners, owner)
    bench.connection.execute("RPUSH", bench.store.keys.inflight("").encode() + b"\xff\xfe", "x")
    poller = bench.start_poller(lease_seconds=1.0)
    _until_given_back(bench, owner)
    assert poller.process.poll() is None


def test_a_queue_nobody_was_told_of_is_rung_by_the_sweep(bench: Bench) -> None:
    bench.enqueue("note", "a")
    bench.connection.execute("DEL", bench.store.keys.doorbell("default"), bench.store.keys.ready)
    bench.start_poller()
    until(lambda: bench.connection.execute("LLEN", bench.store.keys.doorbell("default")))
    assert until(lambda: bench.events("poller.rescued"))


def test_a_poller_goes_on_when_both_its_connections_are_cut(bench: Bench) -> None:
    bench.start_poller().until_phase(Phase.IDLE)
    _until_parked(bench)
    for line in _clients(bench, "rota:poller"):
        bench.connection.execute("CLIENT", "KILL", "ID", line.split(b"id=")[1].split(b" ")[0])
    task_id = bench.enqueue("note", "a", due="+1000")
    until(lambda: bench.state(task_id) == "ready")
    _until_parked(bench)


def test_a_poller_stops_at_once_when_asked(bench: Bench) -> None:
    poller = bench.start_poller().until_phase(Phase.IDLE)
    _until_parked(bench)
    poller.terminate()
    assert poller.process.wait(DEADLINE_SECONDS) == 0
    assert poller.slot.phase is Phase.DRAINING


def test_a_poller_without_a_master_leaves(bench: Bench) -> None:
    poller = bench.start_poller().until_phase(Phase.IDLE)
    bench.die()
    assert poller.exit_code() == EXIT_ORPHANED
