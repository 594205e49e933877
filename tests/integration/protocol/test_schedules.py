"""Schedules. Each occurrence is enqueued exactly once, no matter which poller computes the occurrence, and even if
people or nodes change the schedule at the same time.
"""

import dataclasses

import pytest
import redis

from rota.protocol.schedule_store import (
    DeclaredSchedule,
    DeclareStatus,
    NewOccurrence,
    PauseStatus,
    PutStatus,
    RemoveStatus,
    ScheduleStore,
    read_schedule_record,
)
from rota.schedules.schedule import EveryRule, Schedule, encode_schedule
from rota.server.server_errors import Refused
from support.protocol import SECOND_US, Fleet
from support.schedule_pollers import AHEAD_US, ALONE, TICK, Pollers, put

LEASE_MS = 20_000
SLOW = dataclasses.replace(TICK, rule=EveryRule(3 * SECOND_US))
TEXT = encode_schedule(TICK)


def scheduled(fleet: Fleet) -> list[str]:
    return [str(item) for item in fleet.redis.zrange(fleet.keys.delayed, 0, -1)]


def declare(fleet: Fleet, store: ScheduleStore, schedule: Schedule, age: float = 0.0, ttl_ms: int = LEASE_MS) -> str:
    declared = DeclaredSchedule(schedule.name, encode_schedule(schedule), age)
    (status,) = fleet.run(store.declare(ttl_ms, [declared]))
    return status


def test_the_next_occurrences_are_enqueued_in_advance_as_delayed_tasks(
    fleet: Fleet, schedules: ScheduleStore, pollers: Pollers
) -> None:
    assert put(fleet, schedules, TICK) is PutStatus.NEW
    times = pollers.work()
    assert times == list(range(times[0], times[0] + 5))
    assert scheduled(fleet) == [f"tick:{at}" for at in times]
    assert [fleet.score(fleet.keys.delayed, f"tick:{at}") for at in times] == times
    assert fleet.redis.hget(fleet.keys.tickets, f"tick:{times[0]}") == "q p 0 0 0 0 -"
    assert pollers.record().ahead_us == tuple(at * SECOND_US for at in times)


def test_only_one_of_several_pollers_enqueues_an_occurrence(
    fleet: Fleet, schedules: ScheduleStore, pollers: Pollers
) -> None:
    put(fleet, schedules, TICK)
    now_us, found = pollers.look()
    calls = [pollers.plan(found[0], now_us)[0] for _ in range(4)]
    assert [fleet.run(call) for call in calls] == [True, False, False, False]
    assert len(scheduled(fleet)) == 5
    assert fleet.run(calls[0]) is False  # simulates a call that is repeated because its reply was lost


def test_an_occurrence_with_a_live_id_is_not_enqueued_again(
    fleet: Fleet, schedules: ScheduleStore, pollers: Pollers
) -> None:
    put(fleet, schedules, TICK)
    now_us, found = pollers.look()
    call, planned = pollers.plan(found[0], now_us)
    assert fleet.run(call)
    # Simulates a server that was restored from an older backup.
    fleet.redis.hset(fleet.keys.schedules, "tick", found[0].record)
    assert fleet.run(call)
    assert len(scheduled(fleet)) == len(planned.occurrences)


def test_a_pause_removes_future_occurrences_until_the_resume(
    fleet: Fleet, schedules: ScheduleStore, pollers: Pollers
) -> None:
    put(fleet, schedules, TICK)
    pollers.work()
    assert fleet.run(schedules.pause("tick")) is PauseStatus.PAUSED
    assert (scheduled(fleet), fleet.redis.hlen(fleet.keys.tasks)) == ([], 0)
    assert fleet.run(schedules.pause("tick")) is PauseStatus.SAME
    assert pollers.work() == []
    assert fleet.run(schedules.resume("tick")) is PauseStatus.RESUMED
    resumed_us = pollers.record().passed_us
    assert pollers.work()[0] == resumed_us // SECOND_US + 1
    assert fleet.run(schedules.resume("tick")) is PauseStatus.SAME
    assert {fleet.run(schedules.pause("no")), fleet.run(schedules.resume("no"))} == {PauseStatus.UNKNOWN}


def test_a_promoted_occurrence_is_not_repeated_after_a_pause(
    fleet: Fleet, schedules: ScheduleStore, pollers: Pollers
) -> None:
    put(fleet, schedules, TICK)
    times = pollers.work()
    # Simulates an occurrence that was promoted before the clock was set back.
    fleet.redis.zrem(fleet.keys.delayed, f"tick:{times[-1]}")
    fleet.run(schedules.pause("tick"))
    fleet.run(schedules.resume("tick"))
    assert pollers.record().passed_us == times[-1] * SECOND_US
    fleet.redis.hdel(fleet.keys.tickets, f"tick:{times[-1]}")
    fleet.redis.zadd(fleet.keys.delayed, {f"tick:{times[-1]}": times[0]})


def test_a_changed_schedule_removes_its_earlier_occurrences(
    fleet: Fleet, schedules: ScheduleStore, pollers: Pollers
) -> None:
    put(fleet, schedules, TICK)
    pollers.work()
    assert put(fleet, schedules, TICK) is PutStatus.SAME
    assert put(fleet, schedules, SLOW) is PutStatus.CHANGED
    assert scheduled(fleet) == []
    times = pollers.work()
    assert times
    assert all(at % 3 == 0 for at in times)
    assert scheduled(fleet) == [f"tick:{at}" for at in times]


def test_a_removed_schedule_leaves_no_keys(fleet: Fleet, schedules: ScheduleStore, pollers: Pollers) -> None:
    put(fleet, schedules, ALONE)
    pollers.work()
    assert fleet.run(schedules.remove("alone")) is RemoveStatus.REMOVED
    assert fleet.run(schedules.remove("alone")) is RemoveStatus.UNKNOWN
    keys = fleet.keys
    left = (keys.schedules, keys.schedules_due, keys.schedules_declared, keys.schedules_alive, keys.delayed, keys.tasks)
    assert fleet.redis.exists(*left) == 0


def test_declared_and_client_schedules_do_not_replace_each_other(fleet: Fleet, schedules: ScheduleStore) -> None:
    assert declare(fleet, schedules, TICK) is DeclareStatus.NEW
    assert put(fleet, schedules, SLOW) is PutStatus.DECLARED
    assert fleet.run(schedules.remove("tick")) is RemoveStatus.DECLARED
    put(fleet, schedules, ALONE)
    assert declare(fleet, schedules, ALONE) is DeclareStatus.CLIENT
    page = fleet.run(schedules.page(0))
    assert (page.total, {kept.name for kept in page.schedules}) == (2, {"tick", "alone"})


def test_the_latest_declaration_of_a_schedule_applies_while_it_is_renewed(
    fleet: Fleet, schedules: ScheduleStore
) -> None:
    declare(fleet, schedules, TICK, age=60)
    assert declare(fleet, schedules, SLOW, age=1, ttl_ms=0) is DeclareStatus.CHANGED
    assert declare(fleet, schedules, SLOW, age=1) is DeclareStatus.KEPT
    assert declare(fleet, schedules, TICK, age=61) is DeclareStatus.OLDER
    # Simulates that the declaration of this node has expired.
    declare(fleet, schedules, SLOW, age=1, ttl_ms=0)
    assert declare(fleet, schedules, TICK, age=62) is DeclareStatus.CHANGED


def test_a_declared_schedule_is_removed_only_when_no_node_declares_it(
    fleet: Fleet, schedules: ScheduleStore, pollers: Pollers
) -> None:
    fleet.run(fleet.store.sweep(1))
    declare(fleet, schedules, TICK)
    pollers.work()
    assert fleet.run(schedules.forget("tick", 1)) is RemoveStatus.DECLARED
    fleet.redis.zadd(fleet.keys.schedules_declared, {"tick": 1})
    fleet.redis.hset(fleet.keys.pulse, "grace_until", 0)
    assert fleet.run(fleet.store.sweep(LEASE_MS)).undeclared == ("tick",)
    assert fleet.run(schedules.forget("tick", 1)) is RemoveStatus.REMOVED
    assert scheduled(fleet) == []


def test_no_schedule_is_removed_right_after_a_gap_in_sweeps(fleet: Fleet, schedules: ScheduleStore) -> None:
    declare(fleet, schedules, TICK)
    fleet.redis.zadd(fleet.keys.schedules_declared, {"tick": 1})
    assert fleet.run(fleet.store.sweep(LEASE_MS)).undeclared == ()


def test_a_sweep_returns_when_the_next_occurrences_must_be_enqueued(
    fleet: Fleet, schedules: ScheduleStore, pollers: Pollers
) -> None:
    assert fleet.run(fleet.store.sweep(LEASE_MS)).next_schedule_us is None
    put(fleet, schedules, TICK)
    assert fleet.run(fleet.store.sweep(LEASE_MS)).next_schedule_us == 0
    times = pollers.work()
    assert fleet.run(fleet.store.sweep(LEASE_MS)).next_schedule_us == (times[-1] + 1) * SECOND_US
    fleet.run(schedules.pause("tick"))
    assert fleet.run(fleet.store.sweep(LEASE_MS)).next_schedule_us is None


def test_invalid_names_are_refused_without_changes(fleet: Fleet, schedules: ScheduleStore) -> None:
    with pytest.raises(Refused, match="not a name"):
        fleet.run(schedules.put("n" * 101, TEXT))
    assert fleet.run(schedules.declare(LEASE_MS, [DeclaredSchedule("a b", TEXT)])) == [DeclareStatus.REFUSED]
    put(fleet, schedules, TICK)
    kept = fleet.run(schedules.find(["tick"])).schedules[0]
    for queue, task_id in (("q q", "tick:1"), ("q", "tick 1")):
        bad = [NewOccurrence(task_id, 1, b"")]
        with pytest.raises(Refused, match="ROTA not a"):
            fleet.run(schedules.advance(kept, read_schedule_record(kept.record), queue, bad, may_overlap=True))
    assert scheduled(fleet) == []


def test_a_schedule_name_without_a_record_is_removed(fleet: Fleet, schedules: ScheduleStore) -> None:
    fleet.redis.zadd(fleet.keys.schedules_due, {"ghost": 0})
    assert fleet.run(schedules.upcoming(AHEAD_US))[1] == ()
    assert fleet.redis.zcard(fleet.keys.schedules_due) == 0


def test_a_schedule_with_an_invalid_record_counts_as_unknown(fleet: Fleet, schedules: ScheduleStore) -> None:
    for bytes_ in (b"", b"nonsense", b"1 2 3", b"9" * 99 + b" 0 0 0 0 -\n{}"):
        fleet.redis.hset(fleet.keys.schedules, "tick", bytes_)
        assert fleet.run(schedules.pause("tick")) is PauseStatus.UNKNOWN
    assert put(fleet, schedules, TICK) is PutStatus.NEW


@pytest.mark.parametrize("key", ["schedules", "schedules_due", "schedules_alive", "schedules_declared"])
def test_a_schedule_key_of_the_wrong_type_stops_only_schedules(
    fleet: Fleet, schedules: ScheduleStore, key: str
) -> None:
    fleet.redis.set(getattr(fleet.keys, key), "x")
    with pytest.raises((Refused, redis.ResponseError)):
        put(fleet, schedules, TICK)
    assert scheduled(fleet) == []
    fleet.run(fleet.store.sweep(LEASE_MS))
    fleet.push("a", due="+1")
    assert fleet.run(fleet.store.promote()).moved == {"q": 1}


def test_resuming_a_schedule_discards_a_last_time_that_is_days_ahead(
    fleet: Fleet, schedules: ScheduleStore, pollers: Pollers
) -> None:
    put(fleet, schedules, TICK)
    for days, expected in ((0.5, True), (2, False)):
        wrong_us = fleet.now_us() + round(days * 86_400) * SECOND_US
        record = dataclasses.replace(pollers.record(), last_us=wrong_us, passed_us=wrong_us)
        fleet.redis.hset(fleet.keys.schedules, "tick", record.to_bytes())
        fleet.run(schedules.pause("tick"))
        fleet.run(schedules.resume("tick"))
        assert (pollers.record().passed_us == wrong_us) is expected
