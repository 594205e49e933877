"""A worker process that runs several tasks at once: its exit, its connections, the processes that its tasks fork, and
its lifetime.
"""

import dataclasses
import functools
import signal
from pathlib import Path

from rota.child.child_process import EXIT_LOST, EXIT_ORPHANED, EXIT_OVERWRITTEN, WAKE_SIGNAL
from rota.child.child_settings import TaskOverride
from rota.child.slots import Phase, RecycleReason, boottime_ns
from rota.protocol.store import Blame
from rota.protocol.tiers import pack_tiers
from rota.protocol.turns import Turn
from support.child_harness import Child, ChildHarness, settings_for
from support.faulty_link import FaultyLink
from support.waiting import until

PLACES = 3


def start(harness: ChildHarness, slot: int = 1, **changes: object) -> Child:
    settings = settings_for(harness.server, harness.namespace, **{"concurrency": PLACES, **changes})
    return harness.start(settings, slot).until_phase(Phase.IDLE)


def fill(harness: ChildHarness, go: Path) -> list[str]:
    """Occupy all of the worker's places with tasks that run until this file exists. Returns the ids of the tasks."""
    held = [harness.enqueue("wait_in_loop", str(go)) for _ in range(PLACES)]
    until(lambda: harness.ran().count("waiting") == PLACES)
    return held


def claim_for(worker: Child, harness: ChildHarness, held: list[str], picks: int, queue: str = "default") -> None:
    """Claim `picks` tasks in the name of this worker's owner, without the knowledge of the worker. The owner already
    holds the tasks `held`.
    """
    tiers = pack_tiers(settings_for(harness.server, harness.namespace, queue).tiers)
    assert len(harness.run(harness.store.turn(worker.owner, tiers, Turn(1, held, picks=picks))).claims) == picks


def until_parked(worker: Child, harness: ChildHarness) -> None:
    """Wait until the worker has made a turn for each time that its doorbells rang, and is waiting for the next ring."""
    name = f" name=rota:worker:{worker.owner}:bell ".encode()

    def is_parked() -> bool:
        return any(
            name in line and b" flags=b " in line for line in harness.connection.execute("CLIENT", "LIST").splitlines()
        )

    until(is_parked)


def test_stop_signal_lets_all_running_tasks_finish(harness: ChildHarness, tmp_path: Path) -> None:
    worker, go = start(harness), tmp_path / "go"
    held, waiting = fill(harness, go), harness.enqueue("note", "never")
    assert worker.slot.phase is Phase.BUSY
    assert sorted(task.id for task in worker.slot.running()) == sorted(held)
    worker.terminate()
    worker.until_phase(Phase.DRAINING)
    go.touch()
    assert worker.exit_code() == 0
    assert [harness.state(task_id) for task_id in (*held, waiting)] == ["done"] * PLACES + ["ready"]
    assert (harness.ran()[-1], harness.inflight(worker.owner)) == ("worker stop", 0)


def test_outcomes_of_concurrent_tasks_count_once_after_a_cut_connection(harness: ChildHarness, tmp_path: Path) -> None:
    worker, go = start(harness), tmp_path / "go"
    held = fill(harness, go)
    for line in harness.connection.execute("CLIENT", "LIST").splitlines():
        if b"name=rota:worker" in line:
            harness.connection.execute("CLIENT", "KILL", "ID", line.split(b"id=")[1].split(b" ")[0])
    go.touch()
    until(lambda: all(harness.state(task_id) == "done" for task_id in held))
    after = harness.enqueue("note", "after")
    until(lambda: harness.state(after) == "done")
    until(lambda: worker.slot.outcomes() == (0, b""))
    assert harness.ran().count("found") == PLACES
    assert harness.run(harness.store.audit()).ended["done"] == PLACES + 1


def test_a_process_forked_by_an_async_task_exits_at_the_end_of_its_step(harness: ChildHarness, tmp_path: Path) -> None:
    worker, go = start(harness), tmp_path / "go"
    beside = harness.enqueue("wait_in_loop", str(go))
    until(lambda: "waiting" in harness.ran())
    for how, code in (("return", 0), ("raise", 1), ("exit", 3)):
        forked = harness.enqueue("fork_in_loop", how)
        until(functools.partial(lambda task_id: harness.state(task_id) == "done", forked))
        assert f"copy {how} {code}" in harness.ran()
    go.touch()
    until(lambda: harness.state(beside) == "done")
    assert harness.ran().count("found") == 1
    worker.terminate()
    assert worker.exit_code() == 0


def test_a_fenced_worker_settles_finished_tasks_but_starts_no_others(harness: ChildHarness, tmp_path: Path) -> None:
    worker, go = start(harness), tmp_path / "go"
    held = fill(harness, go)
    worker.slot.renewed_ns = boottime_ns() - 3600 * 10**9
    worker.process.send_signal(WAKE_SIGNAL)
    until(lambda: harness.events("worker.fenced"))
    waiting = harness.enqueue("note", "later")
    go.touch()
    until(lambda: all(harness.state(task_id) == "done" for task_id in held))
    assert harness.state(waiting) == "ready"
    worker.slot.renewed_ns = boottime_ns()
    until(lambda: harness.state(waiting) == "done")


def test_claims_beyond_the_concurrency_are_returned(harness: ChildHarness, tmp_path: Path) -> None:
    worker, first, others = start(harness), tmp_path / "first", tmp_path / "others"
    held = [harness.enqueue("wait_in_loop", str(path)) for path in (first, others, others)]
    until(lambda: harness.ran().count("waiting") == PLACES)
    more = [harness.enqueue("wait_in_loop", str(others)) for _ in range(2)]
    claim_for(worker, harness, held, 2)  # simulates a turn that claimed tasks, but whose settlements were lost
    first.touch()

    def has_started_the_next() -> bool:
        harness.enqueue("note", "brings it to its next turn")
        return harness.ran().count("waiting") == PLACES + 1

    until(has_started_the_next)
    until(lambda: harness.inflight(worker.owner) == PLACES)
    others.touch()
    until(lambda: all(harness.state(task_id) == "done" for task_id in (*held, *more)))
    assert harness.ran().count("found") == PLACES + 2


def test_tasks_that_a_fenced_worker_did_not_start_are_returned_in_order(harness: ChildHarness) -> None:
    worker = start(harness)
    worker.slot.renewed_ns = boottime_ns() - 3600 * 10**9
    worker.process.send_signal(WAKE_SIGNAL)
    until(lambda: harness.events("worker.fenced"))
    ids = [harness.enqueue("note", str(number)) for number in range(PLACES)]
    claim_for(worker, harness, [], PLACES)  # simulates a turn whose reply was lost
    until(lambda: harness.inflight(worker.owner) == 0)
    lane = harness.connection.execute("LRANGE", harness.store.keys.ready_lane("default"), 0, -1)
    assert [line.split(b" ")[0].decode() for line in lane] == ids


def test_a_worker_whose_slot_was_overwritten_settles_and_starts_no_task(harness: ChildHarness, tmp_path: Path) -> None:
    worker, go = start(harness), tmp_path / "go"
    held = [
        harness.enqueue("overwrite_slot_in_loop", str(go)),
        harness.enqueue("wait_in_loop", str(tmp_path / "never")),
    ]
    until(lambda: harness.ran().count("waiting") == len(held))
    # Below, the test claims a task on behalf of the worker. If the worker still made turns, it would learn of this
    # claim from a reply. Therefore the test waits until the worker makes no more turns.
    until_parked(worker, harness)
    harness.enqueue("note", "never", queue="other")
    claim_for(worker, harness, held, 1, "other")  # simulates a turn whose reply was lost
    go.touch()
    assert worker.exit_code() == EXIT_OVERWRITTEN
    assert (harness.state(held[0]), harness.inflight(worker.owner)) == ("done", 2)
    assert "never" not in harness.ran()


def test_tasks_claimed_before_a_worker_lost_its_slot_are_returned(
    harness: ChildHarness, link: FaultyLink, tmp_path: Path
) -> None:
    settings = settings_for(harness.server, harness.namespace, concurrency=PLACES)
    server = dataclasses.replace(settings.server, redis_url=link.url)
    worker = harness.start(dataclasses.replace(settings, server=server)).until_phase(Phase.IDLE)
    ended = harness.enqueue("overwrite_slot_in_loop", str(tmp_path / "go"))
    until(lambda: "waiting" in harness.ran())
    until_parked(worker, harness)
    link.gate = lambda name, is_reply, _port: not (is_reply and name == "turn")
    claimed = harness.enqueue("note", "never")
    until(lambda: harness.inflight(worker.owner) == 2, "the turn has claimed the task, and its reply is on the way")
    (tmp_path / "go").touch()
    until(lambda: not worker.slot.is_intact)
    link.gate = None
    link.heal()
    assert worker.exit_code() == EXIT_OVERWRITTEN
    assert [harness.state(task_id) for task_id in (ended, claimed)] == ["done", "ready"]
    assert harness.inflight(worker.owner) == 0
    assert "never" not in harness.ran()


def test_a_worker_that_was_reaped_finishes_its_tasks_and_exits(harness: ChildHarness, tmp_path: Path) -> None:
    worker, go = start(harness), tmp_path / "go"
    fill(harness, go)
    harness.run(harness.store.reap_exited(worker.owner, Blame()))
    go.touch()
    assert worker.exit_code() == EXIT_LOST
    assert harness.events("worker.lost")


def test_busy_worker_without_a_master_exits_at_once(harness: ChildHarness, tmp_path: Path) -> None:
    worker = start(harness)
    fill(harness, tmp_path / "never")
    harness.die()
    assert worker.exit_code() == EXIT_ORPHANED


def test_a_concurrent_worker_claims_no_more_after_max_tasks(harness: ChildHarness) -> None:
    worker = start(harness, max_tasks=PLACES + 1)
    for number in range(3 * PLACES):
        harness.enqueue("note", str(number))
    until(lambda: worker.slot.recycle_reason is RecycleReason.MAX_TASKS)
    until(lambda: len(harness.ran()) == 1 + PLACES + 1)
    worker.terminate()
    assert worker.exit_code() == 0
    assert harness.ran()[1:-1] == [str(number) for number in range(PLACES + 1)]


def test_throttled_task_does_not_count_as_an_attempt(harness: ChildHarness) -> None:
    start(harness, max_tasks=2, overrides={"note": TaskOverride(rate="1/h")})
    for _ in range(PLACES):
        harness.enqueue("note", "in time")
    last = harness.enqueue("once_in_loop")
    until(lambda: harness.state(last) == "done")
    assert sorted(harness.ran()[1:]) == ["in time", "once"]


def test_a_task_whose_wake_up_reached_a_stopping_worker_runs_elsewhere(harness: ChildHarness) -> None:
    worker = start(harness)
    until(lambda: b"cmd=blpop" in harness.connection.execute("CLIENT", "LIST"))
    worker.process.send_signal(signal.SIGSTOP)
    task_id = harness.enqueue("once_in_loop")  # the server delivers the token of this task to a stopped process
    worker.terminate()
    worker.process.send_signal(signal.SIGCONT)
    assert worker.exit_code() == 0
    start(harness, slot=2)
    until(lambda: harness.state(task_id) == "done")
    assert harness.ran().count("once") == 1
