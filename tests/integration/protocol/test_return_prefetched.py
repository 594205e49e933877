"""The script that returns prefetched tasks: which tasks it settles, which tasks it gives back, and which tasks the
worker keeps.
"""

from rota.protocol.outcome import Done, Release, RetryOutcome, Settlement
from rota.protocol.turns import Claim
from support.protocol import Fleet, one_tier, pack_settlements

Q = one_tier("q")


def _claim(fleet: Fleet, owner: str, *ids: str) -> tuple[Claim, ...]:
    fleet.push(*ids)
    return fleet.turn(owner, Q, limit=len(ids)).claims


def test_finished_tasks_are_settled_and_prefetched_ones_returned(fleet: Fleet) -> None:
    owner = fleet.register()
    done, failed, running, behind = _claim(fleet, owner, "done", "failed", "running", "behind")
    finished = pack_settlements([Settlement(done.entry, Done()), Settlement(failed.entry, RetryOutcome(60_000_000))])
    command = fleet.store.return_prefetched(owner, running.entry.text, Q, finished)
    assert fleet.run(command) == 1
    assert fleet.inflight(owner) == ["running"]
    assert fleet.lane() == [behind.entry.id]
    assert not fleet.redis.hexists(fleet.keys.tasks, "done")
    assert fleet.redis.zscore(fleet.keys.delayed, "failed") is not None
    assert fleet.redis.hget(fleet.keys.counts, "running:q") == "1"
    before = fleet.snapshot()
    assert fleet.run(command) == 0  # the command is sent again, and changes nothing
    assert fleet.snapshot() == before


def test_an_outcome_that_the_master_has_settled_is_stale_from_the_worker(fleet: Fleet) -> None:
    owner = fleet.register()
    done, running = _claim(fleet, owner, "done", "running")
    fleet.run(
        fleet.store.return_prefetched(owner, running.entry.text, Q, pack_settlements([Settlement(done.entry, Done())]))
    )
    reply = fleet.turn(owner, Q, (done, Done()), (running, Done()))
    assert reply.stale == (done.entry.text,)
    assert fleet.run(fleet.store.audit()).ended["done"] == 2


def test_returning_prefetched_tasks_after_the_workers_turn_changes_nothing(fleet: Fleet) -> None:
    owner = fleet.register()
    done, running, behind = _claim(fleet, owner, "done", "running", "behind")
    fleet.turn(owner, Q, (done, Done()), (running, Done()), (behind, Release()), limit=0)
    fleet.push("next")
    assert fleet.claim(owner, Q, limit=2) == ["behind", "next"]
    before = fleet.snapshot()
    finished = pack_settlements([Settlement(done.entry, Done())])
    returned = fleet.run(fleet.store.return_prefetched(owner, running.entry.text, Q, finished))
    after = fleet.snapshot()
    assert before == after
    assert returned == 0
