"""The arrows drawn in docs/state-machines.md are those the master's table allows, and its steps are a worker's."""

import re

from rota.protocol.groups import GroupPhase
from rota.worker.loop_state import Step
from rota_supervisor.master.core.children import ARROWS, ChildState
from support.prose import ROOT, blocks

_ARROW = re.compile(r"^\s*(\w+) --> (\w+)", re.MULTILINE)
_STEP = re.compile(r"^\| .+ \| `([a-z ]+)`[^|]*\|$", re.MULTILINE)


def test_the_drawn_arrows_of_a_child_are_the_table() -> None:
    _, _, children = blocks(ROOT / "docs/state-machines.md")
    drawn = {(ChildState(source), ChildState(target)) for source, target in _ARROW.findall(children.text)}
    assert drawn == {(source, target) for source, targets in ARROWS.items() for target in targets}


def test_the_drawn_boxes_of_a_group_are_its_phases() -> None:
    _, group, _ = blocks(ROOT / "docs/state-machines.md")
    drawn = {name for arrow in _ARROW.findall(group.text) for name in arrow}
    assert drawn == {phase.value for phase in GroupPhase}


def test_every_state_of_a_child_can_end() -> None:
    for state in ChildState:
        assert state is ChildState.EXITED or ChildState.EXITED in ARROWS[state]


def test_the_steps_of_a_worker_are_those_it_can_take() -> None:
    told = _STEP.findall((ROOT / "docs/state-machines.md").read_text(encoding="utf-8"))
    assert set(told) == {step.value for step in Step}
