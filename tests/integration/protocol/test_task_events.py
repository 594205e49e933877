"""Task events: when they are written, how many of them are kept, and the events of changes that the model test does not
include. The model test checks that exactly one event is written for each change of a task.
"""

from typing import Any

import pytest

from rota.protocol.new_tasks import NewTask
from rota.protocol.nodes import Announced
from rota.protocol.outcome import CancelledOutcome, Done, Release
from rota.protocol.store import BATCH
from rota.protocol.task_states import EventsPage
from support.protocol import RUN, Fleet, body_of, one_tier

Q = one_tier("q")
FEW = 1000


def announce(fleet: Fleet, events: int, node: str = "node", ttl_ms: int = 60_000) -> None:
    fleet.run(fleet.store.announce(node, b"{}", ttl_ms, ["q"], Announced(events=events)))


def page(fleet: Fleet, place: str = "0") -> EventsPage:
    return fleet.run(fleet.store.events(place, BATCH))


def recorded(fleet: Fleet) -> list[tuple[str, str]]:
    return [(event.event, event.task_id) for event in page(fleet).events]


@pytest.fixture
def fleet_with_events(fleet: Fleet) -> Fleet:
    announce(fleet, FEW)
    return fleet


def test_no_events_are_written_unless_a_master_enables_them(fleet: Fleet) -> None:
    announce(fleet, 0)
    fleet.claimed("a")
    assert not fleet.redis.exists(fleet.keys.events, fleet.keys.events_on)


def test_task_events_are_written_until_no_master_enables_them(fleet: Fleet) -> None:
    announce(fleet, FEW, "one")
    announce(fleet, FEW, "two")
    announce(fleet, 0, "one")
    fleet.push("a")
    announce(fleet, 0, "two")
    fleet.push("b")
    assert recorded(fleet) == [("enqueued", "a")]


def test_the_event_setting_of_a_dead_master_applies_until_the_next_heartbeat(fleet: Fleet) -> None:
    announce(fleet, FEW, "gone", ttl_ms=0)
    fleet.push("a")
    announce(fleet, 0, "new")
    fleet.push("b")
    assert recorded(fleet) == [("enqueued", "a")]


def test_the_most_task_events_that_any_master_announced_are_kept(fleet: Fleet) -> None:
    announce(fleet, FEW, "one")
    announce(fleet, 3 * FEW, "two")
    for batch in range(10):
        fleet.push(*(f"{batch}-{number}" for number in range(500)))
    assert 3 * FEW <= fleet.redis.xlen(fleet.keys.events) < 4 * FEW


def test_task_events_have_the_task_name_owner_attempt_and_lag(fleet_with_events: Fleet) -> None:
    fleet = fleet_with_events
    fleet.enqueue(NewTask("a", "q", body_of("a"), "@1"), NewTask("b", "q", body_of("b"), "+9000000"))
    owner = fleet.register()
    claims = fleet.turn(owner, Q).claims
    fleet.turn(owner, Q, *((claim, Done()) for claim in claims), limit=0)
    enqueued, scheduled, started, done = page(fleet).events
    assert [event.task for event in (enqueued, scheduled, started, done)] == ["work"] * 4
    assert (enqueued.owner, started.owner, done.owner) == ("", owner, owner)
    assert (enqueued.attempt, started.attempt, done.attempt) == (0, 1, 1)
    assert scheduled.due_at is not None
    assert (scheduled.due_at - scheduled.at).total_seconds() == pytest.approx(9, abs=0.01)
    assert started.lag_seconds is not None
    assert done.runtime_seconds == RUN.run_us / 1_000_000


def test_a_task_event_has_the_task_name_even_without_a_run_record(fleet_with_events: Fleet) -> None:
    owner, claim = fleet_with_events.claimed("a")
    fleet_with_events.turn(owner, Q, (claim, Done()), run=b"", limit=0)
    assert [event.task for event in page(fleet_with_events).events] == ["work"] * 3


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('["work",[]]', "work"),
        (' [ "x" , "q" , "work" , [] ]', "work"),
        ('["x","q","no name!",[]]', ""),
        ("garbage", ""),
        ("", ""),
        ('["' + "x" * 700 + '"]', ""),
    ],
)
def test_the_task_name_of_an_event_is_read_from_the_body(fleet_with_events: Fleet, body: str, name: str) -> None:
    fleet = fleet_with_events
    fleet.redis.rpush(fleet.keys.ready_lane("q"), body)
    fleet.turn(fleet.register(), Q)
    assert [(event.event, event.task) for event in page(fleet).events] == [("enqueued", name), ("started", name)]


def test_a_cancelled_task_has_one_cancelled_event(
    fleet_with_events: Fleet,
) -> None:
    fleet = fleet_with_events
    fleet.push("a", "b")
    fleet.run(fleet.store.cancel("a"))
    owner = fleet.register()
    claims = fleet.turn(owner, Q).claims
    fleet.run(fleet.store.cancel("b"))
    fleet.turn(owner, Q, *((claim, CancelledOutcome()) for claim in claims), limit=0)
    assert recorded(fleet) == [
        ("enqueued", "a"), ("enqueued", "b"), ("cancelled", "a"), ("started", "b"), ("cancelled", "b"),
    ]  # fmt: skip


def test_a_release_to_an_unusable_lane_is_recorded_as_a_dead_event(fleet_with_events: Fleet) -> None:
    fleet = fleet_with_events
    owner, claim = fleet.claimed("a")
    fleet.redis.delete(fleet.keys.ready_lane("q"))
    fleet.redis.set(fleet.keys.ready_lane("q"), "in the way")
    fleet.turn(owner, Q, (claim, Release()), limit=0)
    last = page(fleet).events[-1]
    assert (last.event, last.reason) == ("dead", "unusable_lane")


@pytest.mark.parametrize("key", ["events", "events_on"])
def test_tasks_run_although_a_key_of_the_events_has_the_wrong_type(fleet: Fleet, key: str) -> None:
    fleet.redis.set(getattr(fleet.keys, key), "in the way")
    announce(fleet, FEW)
    announce(fleet, 0)
    announce(fleet, FEW)
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, Done()))
    assert fleet.run(fleet.store.audit()).ended["done"] == 1


def test_entries_of_other_programs_in_the_event_stream_are_skipped(fleet_with_events: Fleet) -> None:
    fleet = fleet_with_events
    stray: list[dict[Any, Any]] = [{"a": "b"}, {"event": "done", "task_id": "x"}, {b"\xff": b"\xff"}]
    for fields in stray:
        fleet.redis.xadd(fleet.keys.events, fields)
    fleet.push("a")
    assert recorded(fleet) == [("enqueued", "a")]
    assert page(fleet, page(fleet).end).end == ""
