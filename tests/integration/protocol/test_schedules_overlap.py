"""Schedules whose occurrences must not overlap. The scripts check for a running task when an occurrence is due, and
when a person requests one.
"""

import pytest

from rota.protocol.outcome import DeadOutcome, Done
from rota.protocol.replies import CancelStatus
from rota.protocol.schedule_store import RunStatus, ScheduleStore
from rota.schedules.occurrences import body_of
from support.protocol import SECOND_US, Fleet, one_tier
from support.schedule_pollers import ALONE, TICK, Pollers, overdue, put


def test_an_occurrence_is_skipped_while_the_previous_one_is_live(fleet: Fleet, pollers: Pollers) -> None:
    owner = fleet.register()
    first = overdue(fleet, ALONE, SECOND_US, pollers)
    assert fleet.run(fleet.store.promote()).left_out == ()
    second = overdue(fleet, ALONE, 2 * SECOND_US, pollers)
    assert fleet.run(fleet.store.promote()).left_out == ("alone",)
    assert fleet.run(fleet.store.status(second)).state == "cancelled"
    claim = fleet.turn(owner, one_tier("q")).claims[0]
    assert (claim.entry.id, claim.entry.kind.label) == (first, "periodic")
    third = overdue(fleet, ALONE, 3 * SECOND_US, pollers)
    assert fleet.run(fleet.store.promote()).left_out == ("alone",)
    fleet.turn(owner, one_tier("q"), (claim, Done()), limit=0)
    fourth = overdue(fleet, ALONE, 4 * SECOND_US, pollers)
    assert fleet.run(fleet.store.promote()).left_out == ()
    assert fleet.run(fleet.store.status(third)).state == "cancelled"
    assert fleet.run(fleet.store.status(fourth)).state == "ready"


def test_occurrences_that_may_overlap_are_all_enqueued(fleet: Fleet, pollers: Pollers) -> None:
    for at in (1, 2, 3):
        overdue(fleet, TICK, at * SECOND_US, pollers)
    assert fleet.run(fleet.store.promote()).moved == {"q": 3}


@pytest.mark.parametrize("fate", ["dead", "cancelled"])
def test_a_dead_or_cancelled_occurrence_does_not_block_the_next(fleet: Fleet, pollers: Pollers, fate: str) -> None:
    first = overdue(fleet, ALONE, SECOND_US, pollers)
    fleet.run(fleet.store.promote())
    if fate == "cancelled":
        assert fleet.run(fleet.store.cancel(first)) is CancelStatus.CANCELLED
    else:
        owner = fleet.register()
        claim = fleet.turn(owner, one_tier("q")).claims[0]
        fleet.turn(owner, one_tier("q"), (claim, DeadOutcome(b"{}")), limit=0)
    overdue(fleet, ALONE, 2 * SECOND_US, pollers)
    assert fleet.run(fleet.store.promote()).left_out == ()


def test_a_manual_run_of_a_schedule_starts_at_once_and_blocks_overlaps(
    fleet: Fleet, schedules: ScheduleStore, pollers: Pollers
) -> None:
    put(fleet, schedules, ALONE)
    kept = fleet.run(schedules.find(["alone"])).schedules[0]
    run = schedules.run(kept, "q", "alone:now-1", body_of(ALONE, "alone:now-1"), may_overlap=False)
    assert fleet.run(run) == (RunStatus.OK, "")
    assert fleet.run(run) == (RunStatus.OK, "")  # simulates a call that is repeated because its reply was lost
    again = schedules.run(kept, "q", "alone:now-2", body_of(ALONE, "alone:now-2"), may_overlap=False)
    assert fleet.run(again) == (RunStatus.OVERLAPS, "alone:now-1")
    assert fleet.run(fleet.store.promote()).moved == {"q": 1}
    overdue(fleet, ALONE, SECOND_US, pollers)
    assert fleet.run(fleet.store.promote()).left_out == ("alone",)
    changed = schedules.run(kept._replace(record=b""), "q", "x", b"", may_overlap=True)
    assert fleet.run(changed) == (RunStatus.CHANGED, "")
