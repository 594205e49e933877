"""The table of task events in docs/protocol.md matches the code, and each change of a task's state has its own
event.
"""

from rota.protocol.task_states import STATES, EventName, State
from support.event_paths import ENDED, NOTHING, ways


def test_event_table_lists_every_event() -> None:
    assert ways().keys() == set(EventName)


def test_every_move_of_a_task_has_a_task_event() -> None:
    moves: set[tuple[str, str]] = {(source, target) for source, facts in STATES.items() for target in facts.moves}
    # These events are also sent for items that other programs have pushed.
    moves |= {(NOTHING, state) for state in (State.READY, State.SCHEDULED)}
    told = {(source, _state_after(event, source)) for event, way in ways().items() for source in way.sources}
    assert {(source, target) for source, target in told if source != target} == moves


def _state_after(event: str, source: str) -> str:
    """Return the state to which this event moves a task that was in the state `source`."""
    if event == EventName.PURGED:
        return State.UNKNOWN if source == State.DEAD else State.CANCELLED
    return ways()[event].target


def test_only_ended_states_have_no_next_event() -> None:
    sources = {source for way in ways().values() for source in way.sources}
    assert {way.target for way in ways().values()} - sources == ENDED
