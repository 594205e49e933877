"""Owners: their leases, the task that is blamed when a worker dies, and the sweeps of the pollers."""

import pytest

from rota.protocol.entry import CrashKind, Kind, parse_entry
from rota.protocol.new_tasks import NewTask
from rota.protocol.nodes import Announced, heartbeat_of
from rota.protocol.outcome import CancelledOutcome, DeadOutcome, Done, Expired, Outcome, RetryOutcome, Settlement
from rota.protocol.store import ALL_HELD, FIRST_HELD, Blame
from rota.protocol.tiers import Domain, QueueShare
from rota.protocol.turns import Claim, TurnStatus
from support.clock import TimedFleet
from support.protocol import LEASE_MS, Fleet, body_of, one_tier, pack_settlements, tiers

Q = one_tier("q")
# The number of commands that a sweep runs if nothing has happened. One of the commands checks all rarely used features
# together.
SWEEP_AT_REST = 20


def hold(fleet: Fleet, *ids: str, place: str = "node:1") -> str:
    """Push these tasks, and let a new owner claim all of them. Returns the owner."""
    fleet.push(*ids)
    owner = fleet.register(place)
    fleet.turn(owner, Q, limit=len(ids))
    return owner


def sweep(fleet: Fleet) -> tuple[str, ...]:
    return fleet.run(fleet.store.sweep(LEASE_MS)).expired


def test_no_two_owners_have_the_same_name(fleet: Fleet) -> None:
    call = fleet.store.register(LEASE_MS, ["node:1", "node:2"])
    assert len({*fleet.run(call), *fleet.run(call)}) == 4


def test_an_unused_owner_expires_and_requeues_nothing(fleet: Fleet) -> None:
    nameless = fleet.register()
    fleet.expire_lease(nameless)
    assert sweep(fleet) == (nameless,)
    reply = fleet.run(fleet.store.reap_expired(nameless, Blame()))
    assert (reply.alive, reply.requeued) == (False, ())
    assert sweep(fleet) == ()


def test_renewal_extends_live_leases_and_returns_owners_that_lost_theirs(fleet: Fleet) -> None:
    owner = fleet.register(lease_ms=1000)
    before = fleet.score(fleet.keys.owners, owner)
    reply = fleet.run(fleet.store.renew(60_000, [owner, "node:1:999"]))
    assert reply.lost == ("node:1:999",)
    assert fleet.score(fleet.keys.owners, owner) > before


def test_renewing_many_idle_owners_costs_as_much_as_one(fleet: Fleet) -> None:
    owners = [fleet.register() for _ in range(8)]
    costs = []
    # The first call is not compared, because it may have to load the script.
    for some in (owners[:1], owners[:1], owners):
        before = fleet.commands()
        assert fleet.run(fleet.store.renew(LEASE_MS, some)).lost == ()
        costs.append(fleet.commands() - before)
    assert costs[1] == costs[2]


def test_a_renewal_without_owners_is_allowed(fleet: Fleet) -> None:
    assert fleet.run(fleet.store.renew(LEASE_MS, [])).lost == ()


def test_renewal_returns_cancelled_running_tasks(fleet: Fleet) -> None:
    owner = hold(fleet, "a", "b")
    fleet.run(fleet.store.cancel("b"))
    assert fleet.run(fleet.store.renew(LEASE_MS, [owner])).cancelled == {fleet.inflight_entries(owner)[1]}


def test_tasks_of_a_dead_owner_return_to_the_head_in_order(fleet: Fleet) -> None:
    owner = hold(fleet, "a", "b", "c")
    fleet.push("later")
    reply = fleet.exit(owner, ["a"])
    assert [entry.id for entry in reply.requeued] == ["a", "b", "c"]
    assert [*fleet.delayed_lane(), *fleet.lane()] == ["a", "b", "c", "later"]
    assert not fleet.redis.exists(fleet.keys.inflight(owner))


def test_only_the_task_that_ran_is_charged_with_the_crash(fleet: Fleet) -> None:
    owner = hold(fleet, "a", "b")
    requeued = fleet.exit(owner, ["a"]).requeued
    assert [(entry.crashes, entry.releases) for entry in requeued] == [(1, 0), (0, 1)]


def test_after_a_crash_only_tasks_that_had_started_get_a_new_due_time(timed: TimedFleet) -> None:
    owner = hold(timed, "ran", "innocent", "unstarted")
    enqueued_us = parse_entry(timed.inflight_entries(owner)[2]).due_us
    timed.clock_us += 5_000_000
    requeued = timed.exit(owner, blame=Blame(ran=(("ran", CRASH_RECORD), ("innocent", b"")))).requeued
    anew = (Kind.RECOVERED, timed.clock_us, timed.clock_us)
    told = [(entry.kind, entry.due_us, entry.ready_us) for entry in requeued]
    assert told == [anew, anew, (Kind.IMMEDIATE, enqueued_us, enqueued_us)]
    assert [(entry.crashes, entry.releases) for entry in requeued] == [(1, 0), (0, 1), (0, 1)]


def test_all_tasks_of_a_lost_node_get_a_new_due_time(timed: TimedFleet) -> None:
    owner = hold(timed, "a", "b")
    timed.expire_lease(owner)
    timed.clock_us += 5_000_000
    requeued = timed.run(timed.store.reap_expired(owner, Blame())).requeued
    assert [(entry.kind, entry.due_us, entry.ready_us) for entry in requeued] == [
        (Kind.RECOVERED, timed.clock_us, timed.clock_us)
    ] * 2


def test_tasks_are_not_marked_recovered_while_nodes_of_an_older_version_live(timed: TimedFleet) -> None:
    timed.run(timed.store.announce("of now", heartbeat_of(1, {}), 2 * LEASE_MS, ["q"]))
    timed.run(timed.store.announce("earlier", b'{"pid":1,"pools":{}}', LEASE_MS, ["q"]))
    [claim] = crash(timed, "a")
    assert claim.entry.kind is Kind.IMMEDIATE

    timed.clock_us += LEASE_MS * 1000
    [requeued] = timed.exit(timed.run(timed.store.status("a")).owner, ["a"]).requeued
    assert requeued.kind is Kind.RECOVERED


def test_a_recovered_task_that_fails_comes_back_as_a_retry(fleet: Fleet) -> None:
    [claim] = crash(fleet, "a")
    assert claim.entry.kind is Kind.RECOVERED
    fleet.turn(fleet.run(fleet.store.status("a")).owner, Q, (claim, RetryOutcome(0)), limit=0)
    fleet.promote()
    retry = fleet.turn(fleet.register(), Q).claims[0]
    assert (retry.entry.kind, retry.entry.attempt) == (Kind.RETRY, 3)


def test_no_task_is_charged_if_none_ran(fleet: Fleet) -> None:
    owner = hold(fleet, "a")
    assert fleet.exit(owner).requeued[0].crashes == 0


def test_a_task_is_dead_after_its_third_crash_and_keeps_the_reason(fleet: Fleet) -> None:
    fleet.push("a")
    for number in range(3):
        owner = fleet.register()
        assert fleet.claim(owner, Q) == ["a"]
        record = b'{"reason":"crash %d"}' % number
        reply = fleet.exit(owner, blame=Blame(ran=(("a", record),)))
        assert len(reply.dead) == (1 if number == 2 else 0)
    page = fleet.run(fleet.store.dead_page(0, 1))
    assert (page.tasks[0].id, page.tasks[0].death_record) == ("a", b'{"reason":"crash 2"}')
    assert fleet.run(fleet.store.audit()).missing == 0


CRASH_RECORD = b'{"reason":"crashed","cause":"oom"}'


def records_of(fleet: Fleet, task_id: str) -> bytes:
    return fleet.run(fleet.store.status(task_id)).attempt_records


def crash(fleet: Fleet, *ids: str) -> list[Claim]:
    """Let each of these tasks kill its worker once. Returns the claims of their second attempts."""
    fleet.push(*ids)
    claims: list[Claim] = []
    for task_id in ids:
        owner = fleet.register()
        [claim] = fleet.turn(owner, Q).claims
        fleet.exit(owner, blame=Blame(ran=((task_id, CRASH_RECORD),), crash=CrashKind.OOM))
        owner = fleet.register()
        claims += fleet.turn(owner, Q).claims
        assert claim.entry.id == claims[-1].entry.id == task_id
    return claims


def test_a_task_at_its_crash_limit_becomes_dead_only_if_it_ran_alone(fleet: Fleet) -> None:
    owner = hold(fleet, "a", "b")
    together = fleet.exit(owner, blame=Blame(ran=(("a", CRASH_RECORD), ("b", CRASH_RECORD)), crash_limit=1))
    assert ([entry.crashes for entry in together.requeued], together.dead) == ([1, 1], ())
    owner = fleet.register()
    assert fleet.claim(owner, Q) == ["a"]
    alone = fleet.exit(owner, blame=Blame(ran=(("a", CRASH_RECORD),), crash_limit=2))
    assert ([entry.crashes for entry in alone.dead], alone.requeued) == ([2], ())


def test_the_record_of_a_crash_is_kept_while_the_task_runs_or_waits_again(fleet: Fleet) -> None:
    [claim] = crash(fleet, "a")
    owner = fleet.run(fleet.store.status("a")).owner
    assert (claim.entry.last_crash, claim.entry.flag) == (CrashKind.OOM, "O")
    assert records_of(fleet, "a") == CRASH_RECORD
    fleet.turn(owner, Q, (claim, RetryOutcome(9_000_000)), limit=0)
    scheduled = fleet.run(fleet.store.status("a"))
    assert (scheduled.state, scheduled.attempt_records) == ("scheduled", CRASH_RECORD)
    fleet.run(fleet.store.cancel("a"))
    assert not fleet.redis.exists(fleet.keys.epitaphs)


@pytest.mark.parametrize("outcome", [Done(), CancelledOutcome(), Expired()])
def test_the_end_of_a_task_deletes_the_record_of_its_crash(fleet: Fleet, outcome: Outcome) -> None:
    [claim] = crash(fleet, "a")
    fleet.turn(fleet.run(fleet.store.status("a")).owner, Q, (claim, outcome))
    assert not fleet.redis.exists(fleet.keys.epitaphs)
    assert fleet.run(fleet.store.audit()).missing == 0


def test_the_records_of_a_dead_task_are_kept_until_it_is_revived(fleet: Fleet) -> None:
    [claim] = crash(fleet, "a")
    fleet.turn(fleet.run(fleet.store.status("a")).owner, Q, (claim, DeadOutcome(b'{"reason":"retries"}')))
    assert records_of(fleet, "a") == CRASH_RECORD + b'\n{"reason":"retries"}'
    assert fleet.run(fleet.store.dead_page(0, 1)).tasks[0].death_record == b'{"reason":"retries"}'
    fleet.run(fleet.store.revive(["a"]))
    found = fleet.run(fleet.store.status("a"))
    assert (found.state, found.crashes, found.attempt_records) == ("ready", 0, b"")


def test_a_task_keeps_both_the_record_of_a_lost_node_and_of_a_later_crash(fleet: Fleet) -> None:
    owner = hold(fleet, "a")
    fleet.expire_lease(owner)
    [lost] = fleet.run(fleet.store.reap_expired(owner, Blame(loss_record=b'{"reason":"lost"}'))).requeued
    assert (lost.last_crash, records_of(fleet, "a")) == (
        CrashKind.LOST,
        b'{"reason":"lost"}',
    )
    owner = fleet.register()
    fleet.turn(owner, Q)
    [crashed] = fleet.exit(owner, blame=Blame(ran=(("a", CRASH_RECORD),), crash=CrashKind.SIGNAL)).requeued
    assert (crashed.flag, records_of(fleet, "a")) == (
        "S",
        b'{"reason":"lost"}\n' + CRASH_RECORD,
    )


def fail(fleet: Fleet, record: bytes) -> Claim:
    """Let the only task fail with this record. Claim it again, let the new owner exit, and return the second claim."""
    owner = fleet.register()
    [claim] = fleet.turn(owner, Q).claims
    fleet.turn(owner, Q, (claim, RetryOutcome(0, record)), limit=0)
    fleet.promote()
    [claim] = fleet.turn(fleet.register(), Q).claims
    fleet.exit(fleet.run(fleet.store.status(claim.entry.id)).owner)
    return claim


def test_failure_records_do_not_hide_the_kind_of_the_last_crash(fleet: Fleet) -> None:
    fleet.push("a")
    assert (fail(fleet, b"1").entry.flag, fail(fleet, b"2\n3").entry.last_crash) == ("E", None)
    owner = fleet.register()
    fleet.turn(owner, Q)
    fleet.exit(owner, blame=Blame(ran=(("a", CRASH_RECORD),), crash=CrashKind.HUNG))
    assert fail(fleet, b"4").entry.flag == "H"
    assert records_of(fleet, "a") == b"1\n2 3\n" + CRASH_RECORD + b"\n4"


def test_the_records_of_the_last_ten_attempts_are_kept(fleet: Fleet) -> None:
    fleet.push("a")
    for number in range(13):
        fail(fleet, b"%d" % number)
    assert records_of(fleet, "a").split(b"\n") == [b"%d" % number for number in range(3, 13)]


def test_a_unique_key_and_a_crash_record_last_until_the_end(fleet: Fleet) -> None:
    fleet.enqueue(NewTask("a", "q", body_of("a"), unique_key="k"))
    owner = fleet.register()
    fleet.turn(owner, Q)
    [entry] = fleet.exit(owner, blame=Blame(ran=(("a", CRASH_RECORD),), crash=CrashKind.HUNG)).requeued
    assert (entry.flag, entry.last_crash) == ("uH", CrashKind.HUNG)
    owner = fleet.register()
    [claim] = fleet.turn(owner, Q).claims
    fleet.turn(owner, Q, (claim, Done()))
    assert not fleet.redis.exists(fleet.keys.epitaphs, fleet.keys.unique("k"), fleet.keys.unique_keys)


def test_attempt_records_of_another_type_do_not_prevent_ends(fleet: Fleet) -> None:
    [claim] = crash(fleet, "a")
    owner = fleet.run(fleet.store.status("a")).owner
    fleet.redis.delete(fleet.keys.epitaphs)
    fleet.redis.set(fleet.keys.epitaphs, "somebody's")
    fleet.turn(owner, Q, (claim, Done()))
    assert fleet.run(fleet.store.audit()).ended["done"] == 1


def test_a_task_is_dead_after_its_node_was_lost_five_times(fleet: Fleet) -> None:
    fleet.push("a")
    for number in range(5):
        owner = fleet.register()
        assert fleet.claim(owner, Q) == ["a"]
        fleet.expire_lease(owner)
        reply = fleet.run(fleet.store.reap_expired(owner, Blame(loss_record=b'{"reason":"lost"}')))
        assert len(reply.dead) == (1 if number == 4 else 0)


def test_every_task_held_by_a_lost_node_is_charged_with_a_loss(fleet: Fleet) -> None:
    owner = hold(fleet, "a", "b")
    fleet.expire_lease(owner)
    requeued = fleet.run(fleet.store.reap_expired(owner, Blame())).requeued
    assert [(entry.losses, entry.crashes) for entry in requeued] == [(1, 0), (1, 0)]


def test_finished_outcomes_are_settled_before_the_rest_is_requeued(fleet: Fleet) -> None:
    fleet.push("a", "b")
    owner = fleet.register()
    first, _ = fleet.turn(owner, Q, limit=2).claims
    finished = pack_settlements([Settlement(first.entry, Done())])
    reply = fleet.run(fleet.store.reap_exited(owner, Blame(ran=(("b", b"{}"),)), finished))
    assert (reply.settled, [entry.id for entry in reply.requeued]) == (1, ["b"])
    assert fleet.run(fleet.store.audit()).ended["done"] == 1


def test_the_first_unfinished_task_is_charged_if_it_is_unknown_which_one_ran(fleet: Fleet) -> None:
    fleet.push("a", "b", "c")
    owner = fleet.register()
    first, *_ = fleet.turn(owner, Q, limit=3).claims
    finished = pack_settlements([Settlement(first.entry, Done())])
    reply = fleet.run(fleet.store.reap_exited(owner, Blame(ran=((FIRST_HELD, b"{}"),)), finished))
    assert [(entry.id, entry.crashes, entry.releases) for entry in reply.requeued] == [("b", 1, 0), ("c", 0, 1)]


def test_all_held_tasks_are_charged_with_a_crash_if_several_may_have_run(fleet: Fleet) -> None:
    fleet.push("a", "b")
    owner = fleet.register()
    fleet.turn(owner, Q, limit=2)
    blame = Blame(ran=((ALL_HELD, b"{}"),), crash_limit=1)
    reply = fleet.run(fleet.store.reap_exited(owner, blame))
    assert [(entry.id, entry.crashes, entry.releases) for entry in reply.requeued] == [("a", 1, 0), ("b", 1, 0)]
    alone = fleet.register()
    fleet.turn(alone, Q)
    reply = fleet.run(fleet.store.reap_exited(alone, blame))
    assert ([entry.id for entry in reply.dead], reply.requeued) == (["a"], ())


def test_the_crash_of_an_empty_worker_charges_no_task(fleet: Fleet) -> None:
    fleet.push("a")
    owner = fleet.register()
    reply = fleet.run(fleet.store.reap_exited(owner, Blame(ran=((FIRST_HELD, b"{}"),))))
    assert (reply.settled, reply.requeued, reply.dead) == (0, (), ())


def test_an_outcome_settled_before_reaping_counts_once(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, Done()))
    reply = fleet.run(fleet.store.reap_exited(owner, Blame(), pack_settlements([Settlement(claim.entry, Done())])))
    assert reply.settled == 0
    assert fleet.run(fleet.store.audit()).ended["done"] == 1


def test_reaping_an_owner_a_second_time_changes_nothing(fleet: Fleet) -> None:
    owner = hold(fleet, "a")
    fleet.exit(owner, ["a"])
    before = fleet.snapshot()
    fleet.exit(owner, ["a"])
    assert fleet.snapshot() == before


def test_an_owner_with_a_valid_lease_is_not_reaped(fleet: Fleet) -> None:
    owner = hold(fleet, "a")
    sweep(fleet)
    assert fleet.run(fleet.store.reap_expired(owner, Blame())).alive
    assert fleet.inflight(owner) == ["a"]


def test_an_owner_renewed_after_the_sweep_is_not_reaped(fleet: Fleet) -> None:
    owner = hold(fleet, "a")
    fleet.expire_lease(owner)
    assert sweep(fleet) == (owner,)
    fleet.run(fleet.store.renew(LEASE_MS, [owner]))
    assert fleet.run(fleet.store.reap_expired(owner, Blame())).alive


def test_a_cancelled_task_of_a_dead_owner_ends_without_requeue(fleet: Fleet) -> None:
    owner = hold(fleet, "a")
    fleet.run(fleet.store.cancel("a"))
    assert fleet.exit(owner, ["a"]).requeued == ()
    assert fleet.run(fleet.store.audit()).ended["cancelled"] == 1
    assert fleet.lane() == []


def test_reaping_restores_the_wake_up_that_the_dead_worker_had_taken(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.silence()
    owner = fleet.register()
    fleet.exit(owner, serving=Q)
    assert fleet.bell() == 1


def test_delayed_entries_are_requeued_to_the_delayed_lane(fleet: Fleet) -> None:
    fleet.redis.zadd(fleet.keys.delayed, {'["d","q","work",[]]': 1})
    fleet.promote()
    fleet.push("i")
    owner = fleet.register()
    assert fleet.claim(owner, Q, limit=2) == ["d", "i"]
    fleet.exit(owner)
    assert (fleet.delayed_lane(), fleet.lane()) == (["d"], ["i"])


def test_renewal_does_not_report_a_deleted_body_as_cancelled(fleet: Fleet) -> None:
    owner = hold(fleet, "a")
    fleet.redis.delete(fleet.keys.tasks)
    assert fleet.run(fleet.store.renew(LEASE_MS, [owner])).cancelled == frozenset()


# Keys that another program has overwritten


def test_a_task_list_of_the_wrong_type_affects_only_its_own_owner(fleet: Fleet) -> None:
    bad, good = fleet.register("node:1", lease_ms=1000), fleet.register("node:2", lease_ms=1000)
    fleet.redis.set(fleet.keys.inflight(bad), "text")
    fleet.run(fleet.store.renew(LEASE_MS, [bad, good]))
    assert fleet.score(fleet.keys.owners, good) > fleet.now_us() + LEASE_MS * 500
    orphan = hold(fleet, "a", place="node:3")
    fleet.redis.zrem(fleet.keys.owners, orphan, bad)
    assert fleet.run(fleet.store.adopt_orphans(LEASE_MS, [bad, orphan])) == 1


def test_a_task_with_an_unusable_lane_becomes_dead(fleet: Fleet) -> None:
    owner = hold(fleet, "a", "b")
    fleet.redis.delete(fleet.keys.ready_lane("q"))
    fleet.redis.set(fleet.keys.ready_lane("q"), "text")
    assert [entry.id for entry in fleet.exit(owner).dead] == ["a", "b"]
    assert not fleet.redis.exists(fleet.keys.inflight(owner))
    fleet.redis.delete(fleet.keys.ready_lane("q"))
    assert fleet.run(fleet.store.revive(["a", "b"])) == 2
    assert fleet.run(fleet.store.audit()).missing == 0


def test_an_unusable_lane_does_not_stop_the_promotion_of_other_queues(fleet: Fleet) -> None:
    fleet.push("a", queue="bad", due="+9000000")
    fleet.push("b", due="+9000000")
    fleet.redis.zadd(fleet.keys.delayed, {"a": 1, "b": 2})
    fleet.redis.set(fleet.keys.delayed_lane("bad"), "text")
    assert fleet.promote().moved == {"q": 1}
    dead = fleet.run(fleet.store.dead_page(0, 1)).tasks[0]
    assert (dead.id, b"unusable_lane" in dead.death_record) == ("a", True)


def test_garbage_in_a_workers_list_becomes_dead_and_no_task_runs_twice(fleet: Fleet) -> None:
    owner = hold(fleet, "a", "b")
    fleet.redis.lpush(fleet.keys.inflight(owner), " garbage")
    assert fleet.turn(owner, Q, held=["a", "b"]).claims == ()
    reply = fleet.exit(owner)
    assert [entry.id for entry in reply.requeued] == ["a", "b"]
    assert fleet.lane() == ["a", "b"]
    assert fleet.run(fleet.store.dead_page(0, 1)).tasks[0].body == b" garbage"
    assert fleet.run(fleet.store.audit()).missing == 0


def test_promotion_loses_no_task_if_the_owner_counter_is_overwritten(fleet: Fleet) -> None:
    fleet.push("a", due="+9000000")
    fleet.redis.set(fleet.keys.lives, "text")
    fleet.redis.zadd(fleet.keys.delayed, {"a": 1, '["bad id!","q","work",[]]': 2})
    assert fleet.promote().moved == {"q": 2}


# Sweep


def test_a_sweep_wakes_a_worker_for_waiting_tasks_without_a_token(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.silence()
    fleet.redis.delete(fleet.keys.ready)
    assert fleet.run(fleet.store.sweep(LEASE_MS)).rescues == 1
    assert fleet.bell() == 1
    assert fleet.redis.sismember(fleet.keys.ready, "q")
    assert fleet.run(fleet.store.sweep(LEASE_MS)).rescues == 0


@pytest.mark.parametrize("bound", [QueueShare("q", cap=1), QueueShare("q", interval_us=3600_000_000)], ids=str)
def test_a_sweep_does_not_count_waiting_tasks_of_a_capped_queue_as_rescued(fleet: Fleet, bound: QueueShare) -> None:
    for name in ("a", "b"):
        fleet.push(name)
    owner = fleet.register()
    assert len(fleet.turn(owner, tiers([bound])).claims) == 1
    for _ in range(3):
        fleet.silence()
        assert fleet.run(fleet.store.sweep(LEASE_MS)).rescues == 0
        assert fleet.bell() == 1, "rung anyway: only workers know its cap"


def test_a_sweep_wakes_no_worker_for_a_paused_queue(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.run(fleet.store.pause("q"))
    fleet.silence()
    fleet.run(fleet.store.sweep(LEASE_MS))
    assert fleet.bell() == 0


def test_a_sweep_finds_bare_pushes_to_announced_queues(fleet: Fleet) -> None:
    fleet.run(fleet.store.announce("node", b"{}", 1000, ["fresh"]))
    fleet.redis.rpush(fleet.keys.ready_lane("fresh"), '["send",[]]')
    assert fleet.run(fleet.store.sweep(LEASE_MS)).rescues == 1


def test_a_sweep_of_an_idle_fleet_needs_few_commands(fleet: Fleet) -> None:
    fleet.run(fleet.store.announce("node", b"{}", LEASE_MS, ["q"]))
    fleet.register()
    costs = []
    for _ in range(3):  # one sweep may load the script, and another may count the running tasks again
        before = fleet.commands()
        fleet.run(fleet.store.sweep(LEASE_MS))
        costs.append(fleet.commands() - before)
    assert min(costs) <= SWEEP_AT_REST


def watched_keys(fleet: Fleet) -> tuple[str, ...]:
    # After the first sweep of a namespace, some queues have not been checked yet.
    fleet.run(fleet.store.sweep(LEASE_MS))
    swept = fleet.run(fleet.store.sweep(LEASE_MS))
    return swept.watched if swept.is_quiet else ()


def test_a_sweep_that_finds_no_work_returns_the_keys_to_watch(fleet: Fleet) -> None:
    fleet.run(fleet.store.announce("node", b"{}", LEASE_MS, ["q"]))
    keys = fleet.keys
    schedules = [f"{{{keys.namespace}}}:schedules-{what}" for what in ("due", "declared")]
    assert watched_keys(fleet) == (keys.delayed, *schedules, keys.ready_lane("q"), keys.delayed_lane("q"))
    owner = fleet.register()
    assert fleet.run(fleet.store.sweep(LEASE_MS)).lease_ends_us == max(
        fleet.score(keys.owners, owner), int(fleet.redis.hget(keys.pulse, "grace_until") or 0)
    )


@pytest.mark.parametrize("at", ["lane", "delayed", "paused", "expired"])
def test_a_sweep_that_finds_tasks_or_expired_leases_returns_no_keys_to_watch(fleet: Fleet, at: str) -> None:
    fleet.run(fleet.store.announce("node", b"{}", LEASE_MS, ["q"]))
    assert watched_keys(fleet)
    match at:
        case "lane":
            fleet.redis.rpush(fleet.keys.ready_lane("q"), '["send",[]]')
        case "delayed":
            fleet.push("a", due="+60000000")
        case "paused":
            fleet.push("a")
            fleet.run(fleet.store.pause("q"))
        case "expired":
            fleet.expire_lease(fleet.register())
    assert watched_keys(fleet) == ()


def test_a_sweep_returns_no_keys_to_watch_if_queues_belong_to_patterns(fleet: Fleet) -> None:
    domain = Domain("d", (QueueShare("tenant-*"),))
    fleet.run(fleet.store.announce("node", b"{}", LEASE_MS, ["tenant-*"], Announced(domains=(domain,))))
    assert watched_keys(fleet) == ()


def test_the_announcement_of_a_node_returns_whether_any_queue_may_be_closed(fleet: Fleet) -> None:
    announce = fleet.store.announce("node", b"{}", LEASE_MS, ["q"])
    assert fleet.run(announce) == (1, False)
    fleet.run(fleet.store.pause("q"))
    assert fleet.run(announce) == (1, True)


def test_after_a_gap_in_sweeps_expired_owners_get_one_more_lease(fleet: Fleet) -> None:
    owner = hold(fleet, "a")
    fleet.expire_lease(owner)
    fleet.redis.hset(fleet.keys.pulse, "at", fleet.now_us() - LEASE_MS * 1000)
    reply = fleet.run(fleet.store.sweep(LEASE_MS))
    assert reply.expired == ()
    assert reply.grace_until_us > reply.now_us
    assert fleet.run(fleet.store.reap_expired(owner, Blame())).alive
    assert fleet.inflight(owner) == ["a"]


def test_expired_owners_get_more_time_if_the_clock_was_set_back(fleet: Fleet) -> None:
    owner = hold(fleet, "a")
    fleet.expire_lease(owner)
    fleet.redis.hset(fleet.keys.pulse, "at", fleet.now_us() + 3_600_000_000)
    assert sweep(fleet) == ()


def test_a_lease_is_shortened_if_the_clock_was_set_back_after_it_was_written(fleet: Fleet) -> None:
    owner = hold(fleet, "a")
    fleet.redis.zadd(fleet.keys.owners, {owner: fleet.now_us() + 3_600_000_000})
    sweep(fleet)
    assert fleet.score(fleet.keys.owners, owner) <= fleet.now_us() + LEASE_MS * 1000


def test_a_poller_with_a_shorter_lease_does_not_shorten_longer_ones(fleet: Fleet) -> None:
    owner = fleet.register(lease_ms=3 * LEASE_MS)
    fleet.register(lease_ms=LEASE_MS)
    reply = fleet.run(fleet.store.sweep(LEASE_MS))
    assert reply.grace_until_us == reply.now_us + 3 * LEASE_MS * 1000
    assert fleet.score(fleet.keys.owners, owner) > fleet.now_us() + 2 * LEASE_MS * 1000


def test_a_lease_length_that_nobody_has_used_for_two_leases_is_forgotten(fleet: Fleet) -> None:
    fleet.register(lease_ms=3 * LEASE_MS)
    fleet.redis.hset(fleet.keys.pulse, "lease_at", fleet.now_us() - 6 * LEASE_MS * 1000)
    reply = fleet.run(fleet.store.sweep(LEASE_MS))
    assert reply.grace_until_us == reply.now_us + LEASE_MS * 1000
    fleet.register(lease_ms=LEASE_MS)
    assert int(fleet.redis.hget(fleet.keys.pulse, "lease") or 0) == LEASE_MS * 1000


def test_a_clock_that_is_set_back_does_not_shorten_the_leases_in_use(fleet: Fleet) -> None:
    owner = fleet.register(lease_ms=3 * LEASE_MS)
    ahead = 100 * LEASE_MS * 1000  # as if the clock had been set back by 100 leases after the times were written
    fleet.redis.hset(fleet.keys.pulse, mapping={"at": fleet.now_us() + ahead, "lease_at": fleet.now_us() + ahead})
    reply = fleet.run(fleet.store.sweep(LEASE_MS))
    assert reply.grace_until_us == reply.now_us + 3 * LEASE_MS * 1000
    assert fleet.score(fleet.keys.owners, owner) > fleet.now_us() + 2 * LEASE_MS * 1000
    assert int(fleet.redis.hget(fleet.keys.pulse, "lease_at") or 0) == reply.now_us


def test_owners_register_and_renew_although_the_pulse_key_is_overwritten(fleet: Fleet) -> None:
    fleet.redis.set(fleet.keys.pulse, "overwritten")
    owner = fleet.register()
    assert fleet.run(fleet.store.renew(LEASE_MS, [owner])).lost == ()


def test_the_extra_time_of_owners_is_limited_if_the_clock_was_set_back(fleet: Fleet) -> None:
    sweep(fleet)
    fleet.redis.hset(fleet.keys.pulse, "grace_until", fleet.now_us() + 3_600_000_000)
    reply = fleet.run(fleet.store.sweep(LEASE_MS))
    assert reply.grace_until_us <= reply.now_us + LEASE_MS * 1000


def test_tasks_of_an_unregistered_owner_are_requeued_after_one_lease(fleet: Fleet) -> None:
    owner = hold(fleet, "a")
    fleet.redis.delete(fleet.keys.owners)
    assert fleet.run(fleet.store.adopt_orphans(LEASE_MS, [owner, "node:1:999"])) == 1
    assert fleet.run(fleet.store.adopt_orphans(LEASE_MS, [owner])) == 0
    fleet.expire_lease(owner)
    assert sweep(fleet) == (owner,)
    fleet.run(fleet.store.reap_expired(owner, Blame()))
    assert fleet.delayed_lane() == ["a"]


def test_an_unregistered_owner_is_not_reaped_before_it_gets_a_lease(fleet: Fleet) -> None:
    owner = hold(fleet, "a")
    fleet.redis.zrem(fleet.keys.owners, owner)
    assert fleet.run(fleet.store.reap_expired(owner, Blame())).alive
    assert fleet.inflight(owner) == ["a"]


def test_a_reaped_worker_learns_of_its_lost_lease_at_its_next_call(fleet: Fleet) -> None:
    owner = hold(fleet, "a")
    fleet.expire_lease(owner)
    fleet.run(fleet.store.reap_expired(owner, Blame()))
    assert fleet.turn(owner, Q, limit=0).status is TurnStatus.LOST


def test_a_sweep_corrects_the_counts_of_running_tasks(fleet: Fleet) -> None:
    hold(fleet, "a")
    fleet.redis.hset(fleet.keys.counts, mapping={"running:q": 7, "running:gone": 3})
    sweep(fleet)
    assert fleet.redis.hget(fleet.keys.counts, "running:q") == "1"
    assert fleet.redis.hget(fleet.keys.counts, "running:gone") is None
