"""Every list of final task states agrees with the table of states."""

import dataclasses
from typing import get_args

from rota.client.status import GroupStatus
from rota.protocol.groups import GroupPhase, GroupState
from rota.protocol.outcome import Outcome, Release, RetryOutcome
from rota.protocol.task_states import ENDED, ENDS, ENDS_OF_GONE, PURGED, State
from rota.worker import worker_report
from rota_supervisor.exporter import node_status


def test_a_group_counts_its_members_by_each_end() -> None:
    assert set(ENDS) <= {field.name for field in dataclasses.fields(GroupStatus)}


def test_the_status_page_shows_the_number_of_group_members_by_each_end() -> None:
    found = GroupState("g", GroupPhase.OPEN, False, 3, 1, 0, 1_000_000, None, "", "", "", dict.fromkeys(ENDS, 1))
    row = node_status._group(found)
    assert [row[how] for how in ENDS] == [1] * len(ENDS)
    assert "ended" not in row


def test_each_final_task_state_is_the_label_of_an_outcome() -> None:
    labels = [outcome.label for outcome in get_args(Outcome) if outcome not in (Release, RetryOutcome)]
    assert sorted(labels) == sorted(state.value for state in ENDED)


def test_each_outcome_has_a_log_event() -> None:
    assert set(worker_report._EVENTS) == set(get_args(Outcome))


def test_only_dead_tasks_are_still_stored_after_their_end() -> None:
    assert set(ENDS) - set(ENDS_OF_GONE) == {State.DEAD}
    assert PURGED in ENDS_OF_GONE
