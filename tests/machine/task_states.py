"""The check that the table of states permits each change of a task's state, given the scripts that have run since the
last check.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from machine.picture import Picture
from rota.protocol.task_states import CREATED, ENDED, PURGED, STATES, State

_ENDING: Final = frozenset(
    script for facts in STATES.values() for to, scripts in facts.moves.items() if to in ENDED for script in scripts
)
_GROUPS: Final = frozenset({"close_group", "cancel_group", "heal", "heal_members"})  # these scripts may end a group


def states_in(picture: Picture) -> dict[str, State]:
    """Return the state of each accepted task about which Redis still has data."""
    lists = {State.READY: picture.lanes.values(), State.RUNNING: picture.inflight.values()}
    listed = {
        text.partition(" ")[0]: state
        for state, each in lists.items()
        for texts in each
        for text in texts
        if not picture.is_tombstone(text)
    }
    scored = dict.fromkeys(picture.delayed, State.SCHEDULED) | dict.fromkeys(picture.dead, State.DEAD)
    states = {task_id: state for task_id, state in (listed | scored).items() if task_id in picture.tasks}
    # The entry of a cancelled task stays in its lane without a body until a claim removes it.
    dropped = {task_id for task_id, state in states.items() if state is State.READY and not picture.tasks[task_id]}
    return states | dict.fromkeys(dropped, State.CANCELLED)


def reached(start: State | None, scripts: Iterable[str]) -> set[State | None]:
    """Return the states that a task may have after these scripts, which run one after another."""
    states = {start}
    for script in scripts:
        states |= {to for state in states for to in _moves_of(state, script)}
    return states


def _moves_of(state: State | None, script: str) -> Iterable[State]:
    if state is None or state in ENDED or state is State.UNKNOWN:
        yield from (to for to, scripts in CREATED.items() if script in scripts)
        # This script may enqueue the next task of a chain or the task that follows a group.
        if script in _ENDING | _GROUPS:
            yield from (State.READY, State.SCHEDULED)
    if state is not None:
        yield from (to for to, scripts in STATES[state].moves.items() if script in scripts)


class StateWatch:
    """The states of all tasks at the last check."""

    def __init__(self) -> None:
        self._states: Mapping[str, State] = {}
        self._ended: Mapping[str, int] = {}

    def check(self, picture: Picture, ended: Mapping[str, int], scripts: Sequence[str]) -> None:
        """Raise AssertionError if the state of a task has changed in a way that the table does not allow.

        `ended` counts the tasks that have ended so far, by outcome.
        """
        now = states_in(picture)
        ways = {how for how, count in ended.items() if count > self._ended.get(how, 0)}
        gone = {state for how in ways for state in _states_of_end(how)}
        for task_id in now.keys() | self._states.keys():
            before, after = self._states.get(task_id), now.get(task_id)
            if before is not after and not (before in ENDED and after is None):
                allowed = reached(before, scripts)
                assert allowed & ({after} if after else gone), (task_id, before, after or gone, scripts)
        self._states, self._ended = now, dict(ended)


def _states_of_end(how: str) -> set[State]:
    """Return the states that a task may have after it ended with the outcome `how`. A dead task that was purged is
    cancelled or unknown.
    """
    return {State.CANCELLED, State.UNKNOWN} if how == PURGED else {State(how)}
