"""The end of a child: the reason for its death, whether its task is to blame, and the changes of its state."""

import itertools
import signal

import pytest

from rota.child.child_process import EXIT_DRAINED, EXIT_LOST
from rota_supervisor.config.model import Limits
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import TRANSITIONS, Child, ChildState, ForbiddenTransition
from rota_supervisor.master.core.death import Death, reason_of
from rota_supervisor.master.core.master_events import Died, ProcessEnd
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.targets import Stop

KILLED = ProcessEnd(signal.SIGKILL)


def _exited(code: int) -> ProcessEnd:
    return ProcessEnd(code << 8)


def _child(state: ChildState, why: Reason | None = None, ready_at: float | None = 1.0) -> Child:
    return Child(Role.WORKER, "mail", 1, 8, 1, state, 0.0, ready_at=ready_at, why=why)


@pytest.mark.parametrize(
    ("child", "ending", "reason"),
    [
        (_child(ChildState.KILLED, Reason.HUNG), KILLED, Reason.HUNG),
        (_child(ChildState.KILLED, Reason.TIMEOUT), KILLED, Reason.TIMEOUT),
        (_child(ChildState.KILLED, Reason.TIMEOUT), _exited(EXIT_DRAINED), Reason.DRAINED),
        (_child(ChildState.READY), KILLED, Reason.SIGNAL),
        (_child(ChildState.READY), ProcessEnd(signal.SIGKILL, oom_killed=True), Reason.OOM),
        (_child(ChildState.READY), ProcessEnd(signal.SIGSEGV, oom_killed=True), Reason.SIGNAL),
        (_child(ChildState.READY), _exited(EXIT_DRAINED), Reason.CRASH),  # a task called os._exit(0)
        (_child(ChildState.DRAINING, Reason.SURPLUS), _exited(EXIT_DRAINED), Reason.DRAINED),
        (_child(ChildState.DRAINING, Reason.SURPLUS), KILLED, Reason.SIGNAL),
        (_child(ChildState.READY), _exited(EXIT_LOST), Reason.LOST),
        (_child(ChildState.DRAINING, Reason.MAX_TASKS), _exited(EXIT_DRAINED), Reason.MAX_TASKS),
        (_child(ChildState.DRAINING, Reason.MAX_RSS), _exited(EXIT_DRAINED), Reason.MAX_RSS),
        (_child(ChildState.KILLED, Reason.STOP), _exited(EXIT_DRAINED), Reason.DRAINED),
        # The child was ordered to leave before it had installed its handler for SIGTERM.
        (_child(ChildState.DRAINING, Reason.SURPLUS), ProcessEnd(signal.SIGTERM), Reason.DRAINED),
        (_child(ChildState.READY), ProcessEnd(signal.SIGTERM), Reason.SIGNAL),
        (_child(ChildState.READY), _exited(9), Reason.CRASH),
        (_child(ChildState.BOOTING, ready_at=None), _exited(1), Reason.BOOT),
        (_child(ChildState.BOOTING, ready_at=None), KILLED, Reason.BOOT),
        (_child(ChildState.KILLED, Reason.BOOT, ready_at=None), KILLED, Reason.BOOT),
        (_child(ChildState.BOOTING, ready_at=None), ProcessEnd(signal.SIGKILL, oom_killed=True), Reason.OOM),
    ],
)
def test_a_masters_kill_precedes_other_evidence_as_the_reason_of_a_death(
    child: Child, ending: ProcessEnd, reason: Reason
) -> None:
    assert reason_of(child, ending) is reason


@pytest.mark.parametrize(
    ("child", "ending", "from_outside"),
    [
        (_child(ChildState.EXITED, ready_at=None), KILLED, True),
        (_child(ChildState.EXITED, Reason.BOOT, ready_at=None), KILLED, False),
        (_child(ChildState.EXITED, ready_at=None), ProcessEnd(signal.SIGKILL, oom_killed=True), False),
        (_child(ChildState.EXITED, ready_at=None), ProcessEnd(signal.SIGSEGV), False),
        (_child(ChildState.EXITED, ready_at=None), _exited(1), False),
    ],
)
def test_only_a_sigkill_not_sent_by_the_master_counts_as_from_outside(
    child: Child, ending: ProcessEnd, from_outside: bool
) -> None:
    death = Death(child, reason_of(child, ending), Died(8, 1, ending), Limits(), 0.0, Stop(), has_work=False)
    assert death.is_from_outside is from_outside


def test_only_crashes_and_exceeded_limits_blame_the_task() -> None:
    blamed = {reason for reason in Reason if reason.facts.blames_task}
    assert blamed == {Reason.CRASH, Reason.SIGNAL, Reason.OOM, Reason.HUNG, Reason.TIMEOUT, Reason.BOOT}


def test_a_child_changes_state_only_by_permitted_transitions() -> None:
    for before, after in itertools.product(ChildState, ChildState):
        child = _child(before)
        if after in TRANSITIONS[before]:
            child.move(after)
            assert child.state is after
        else:
            with pytest.raises(ForbiddenTransition):
                child.move(after)


def test_every_state_of_a_child_can_change_to_exited() -> None:
    for state in set(ChildState) - {ChildState.EXITED}:
        assert ChildState.EXITED in TRANSITIONS[state]
    assert not TRANSITIONS[ChildState.EXITED]
