"""Random runs of the real scripts are compared with a model. The scripts run on a real server, to which the test
connects through a Unix socket. In these runs, calls are lost, late or repeated, workers crash, nodes are lost, the
clock jumps, and the server runs out of memory. The package `machine` contains the rules for the steps, and the
invariants that must hold after each step. Set MODEL_EXAMPLES=5000 MODEL_STEPS=80 for longer runs.
"""

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
    """The state machine with all rules and all invariants."""


@pytest.mark.timeout(60 + EXAMPLES * STEPS // 50)
def test_the_scripts_agree_with_the_model(server: Server) -> None:
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
