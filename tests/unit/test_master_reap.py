"""Why a child died, who is to blame, and which arrows its state has."""

import itertools
import signal

import pytest

from rota.child.life import EXIT_DRAINED, EXIT_LOST
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import ARROWS, Child, Reason, State, WrongArrow
from rota_supervisor.master.deaths.reap import Ending, is_from_outside, is_task_to_blame, reason_of

KILLED = Ending(signal.SIGKILL)


def _exited(code: int) -> Ending:
    return Ending(code << 8)


def _child(state: State, why: Reason | None = None, ready_at: float | None = 1.0) -> Child:
    return Child(Role.WORKER, "mail", 1, 8, 1, state, 0.0, ready_at=ready_at, why=why)


@pytest.mark.parametrize(
    ("child", "ending", "reason"),
    [
        (_child(State.KILLED, Reason.HUNG), KILLED, Reason.HUNG),
        (_child(State.KILLED, Reason.TIMEOUT), KILLED, Reason.TIMEOUT),
        (_child(State.KILLED, Reason.TIMEOUT), _exited(EXIT_DRAINED), Reason.DRAINED),
        (_child(State.READY), KILLED, Reason.SIGNAL),
        (_child(State.READY), Ending(signal.SIGKILL, oom_killed=True), Reason.OOM),
        (_child(State.READY), Ending(signal.SIGSEGV, oom_killed=True), Reason.SIGNAL),
        (_child(State.READY), _exited(EXIT_DRAINED), Reason.CRASH),  # os._exit(0) in a task
        (_child(State.DRAINING, Reason.SURPLUS), _exited(EXIT_DRAINED), Reason.DRAINED),
        (_child(State.DRAINING, Reason.SURPLUS), KILLED, Reason.SIGNAL),
        (_child(State.READY), _exited(EXIT_LOST), Reason.LOST),
        (_child(State.DRAINING, Reason.MAX_TASKS), _exited(EXIT_DRAINED), Reason.MAX_TASKS),
        (_child(State.DRAINING, Reason.MAX_RSS), _exited(EXIT_DRAINED), Reason.MAX_RSS),
        (_child(State.KILLED, Reason.STOP), _exited(EXIT_DRAINED), Reason.DRAINED),
        (_child(State.DRAINING, Reason.SURPLUS), Ending(signal.SIGTERM), Reason.DRAINED),  # it had no handler
        (_child(State.READY), Ending(signal.SIGTERM), Reason.SIGNAL),
        (_child(State.READY), _exited(9), Reason.CRASH),
        (_child(State.BOOTING, ready_at=None), _exited(1), Reason.BOOT),
        (_child(State.BOOTING, ready_at=None), KILLED, Reason.BOOT),
        (_child(State.KILLED, Reason.BOOT, ready_at=None), KILLED, Reason.BOOT),
        (_child(State.BOOTING, ready_at=None), Ending(signal.SIGKILL, oom_killed=True), Reason.OOM),
    ],
)
def test_the_reason_is_our_kill_then_the_exit_code_then_the_evidence(
    child: Child, ending: Ending, reason: Reason
) -> None:
    assert reason_of(child, ending) is reason


@pytest.mark.parametrize(
    ("child", "ending", "from_outside"),
    [
        (_child(State.EXITED, ready_at=None), KILLED, True),
        (_child(State.EXITED, Reason.BOOT, ready_at=None), KILLED, False),
        (_child(State.EXITED, ready_at=None), Ending(signal.SIGKILL, oom_killed=True), False),
        (_child(State.EXITED, ready_at=None), Ending(signal.SIGSEGV), False),
        (_child(State.EXITED, ready_at=None), _exited(1), False),
    ],
)
def test_only_a_sigkill_that_neither_we_nor_the_kernel_sent_is_from_outside(
    child: Child, ending: Ending, from_outside: bool
) -> None:
    assert is_from_outside(child, ending) is from_outside


def test_a_task_is_not_blamed_for_what_we_did_for_other_reasons() -> None:
    blamed = {reason for reason in Reason if is_task_to_blame(reason)}
    assert blamed == {Reason.CRASH, Reason.SIGNAL, Reason.OOM, Reason.HUNG, Reason.TIMEOUT, Reason.BOOT}


def test_a_child_moves_along_arrows_only() -> None:
    for before, after in itertools.product(State, State):
        child = _child(before)
        if after in ARROWS[before]:
            child.move(after)
            assert child.state is after
        else:
            with pytest.raises(WrongArrow):
                child.move(after)


def test_every_state_leads_to_its_end() -> None:
    for state in set(State) - {State.EXITED}:
        assert State.EXITED in ARROWS[state]
    assert not ARROWS[State.EXITED]
