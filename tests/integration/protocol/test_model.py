"""The real scripts on a real server, over its Unix socket, compared with the model in random runs: with lost, late and
repeated calls, crashes, lost nodes, a clock that jumps, and a full server. `machine` has the rules, and the invariants
that must hold after each step. For longer runs: MODEL_EXAMPLES=5000 MODEL_STEPS=80."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from machine.faults import Faults
from machine.grouping import Grouping
from machine.invariants import Invariants
from machine.schedules import Schedules
from machine.throttling import Throttling
from support.servers import Server

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "160"))
STEPS = int(os.environ.get("MODEL_STEPS", "50"))


class Protocol(Faults, Grouping, Schedules, Throttling, Invariants):
    """All rules and all invariants."""


@pytest.mark.timeout(60 + EXAMPLES * STEPS // 50)
def test_the_scripts_do_what_the_model_does(server: Server) -> None:
    machine: Any = type("Protocol", (Protocol,), {"server": server})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
