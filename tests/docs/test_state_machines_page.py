"""The tables and diagrams in docs/state-machines.md match the code."""

import re

from rota.protocol.groups import GroupPhase
from rota.protocol.task_states import CREATED, STATES, State
from rota.worker.loop_state import Step
from rota_supervisor.master.core.children import TRANSITIONS, ChildState
from support.prose import ROOT, blocks

_ARROW = re.compile(r"^\s*(\w+) --> (\w+)", re.MULTILINE)
_MOVE = re.compile(r"^\s*(\w+) --> (\w+): (.+)$", re.MULTILINE)
_ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \|([^|]*)\|$", re.MULTILINE)
_STEP = re.compile(r"^\| .+ \| `([a-z ]+)`[^|]*\|$", re.MULTILINE)


def _section(title: str) -> str:
    page = (ROOT / "docs/state-machines.md").read_text(encoding="utf-8")
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_task_state_table_matches_the_code() -> None:
    rows = [tuple(cell.strip(" `") for cell in row) for row in _ROW.findall(_section("Tasks"))]
    stored = {state: facts.stored_in.replace(", ", "`, `") for state, facts in STATES.items()}
    assert rows == [(state, facts.meaning, stored[state]) for state, facts in STATES.items()]


def test_task_diagram_matches_the_moves() -> None:
    tasks, _, _ = blocks(ROOT / "docs/state-machines.md")
    drawn = {(State(at), State(to), scripts) for at, to, scripts in _MOVE.findall(tasks.text) if at != State.PENDING}
    assert drawn == {(at, to, ", ".join(by)) for at, facts in STATES.items() for to, by in facts.moves.items()}


def test_the_scripts_that_move_tasks_exist() -> None:
    named = {script for scripts in CREATED.values() for script in scripts}
    named |= {script for facts in STATES.values() for scripts in facts.moves.values() for script in scripts}
    assert named <= {path.stem for path in (ROOT / "workers/rota/lua").glob("*.lua")}


def test_child_diagram_matches_the_transitions() -> None:
    _, _, children = blocks(ROOT / "docs/state-machines.md")
    drawn = {(ChildState(source), ChildState(target)) for source, target in _ARROW.findall(children.text)}
    assert drawn == {(source, target) for source, targets in TRANSITIONS.items() for target in targets}


def test_group_diagram_matches_the_phases() -> None:
    _, group, _ = blocks(ROOT / "docs/state-machines.md")
    drawn = {name for arrow in _ARROW.findall(group.text) for name in arrow}
    assert drawn == {phase.value for phase in GroupPhase}


def test_every_state_of_a_child_process_can_lead_to_exited() -> None:
    for state in ChildState:
        assert state is ChildState.EXITED or ChildState.EXITED in TRANSITIONS[state]


def test_worker_step_table_matches_the_code() -> None:
    told = _STEP.findall(_section("Steps of a worker"))
    assert set(told) == {step.value for step in Step}
