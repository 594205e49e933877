"""Why a child died, who is to blame, and which arrows its state has."""

import itertools
import json
import signal
from datetime import UTC, datetime

import pytest

from rota.child.life import EXIT_DRAINED, EXIT_LOST, EXIT_OTHER_VERSION, EXIT_RECYCLED
from rota.child.slots import CurrentTask
from rota_supervisor.layout import Role
from rota_supervisor.master.children import ARROWS, Child, Reason, State, WrongArrow
from rota_supervisor.master.reap import Death, Ending, epitaph_of, reason_of

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
        (_child(State.READY), Ending(signal.SIGKILL, oom_kills=1), Reason.OOM),
        (_child(State.READY), Ending(signal.SIGSEGV, oom_kills=1), Reason.SIGNAL),
        (_child(State.READY), _exited(EXIT_DRAINED), Reason.CRASH),  # os._exit(0) in a task
        (_child(State.DRAINING, Reason.SURPLUS), _exited(EXIT_DRAINED), Reason.DRAINED),
        (_child(State.DRAINING, Reason.SURPLUS), KILLED, Reason.SIGNAL),
        (_child(State.READY), _exited(EXIT_LOST), Reason.LOST),
        (_child(State.READY), _exited(EXIT_RECYCLED), Reason.MAX_TASKS),
        (_child(State.READY), _exited(9), Reason.CRASH),
        (_child(State.BOOTING, ready_at=None), _exited(1), Reason.BOOT),
        (_child(State.BOOTING, ready_at=None), KILLED, Reason.BOOT),
        (_child(State.KILLED, Reason.BOOT, ready_at=None), KILLED, Reason.BOOT),
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
        (_child(State.EXITED, ready_at=None), Ending(signal.SIGKILL, oom_kills=1), False),
        (_child(State.EXITED, ready_at=None), Ending(signal.SIGSEGV), False),
        (_child(State.EXITED, ready_at=None), _exited(1), False),
    ],
)
def test_only_a_sigkill_that_neither_we_nor_the_kernel_sent_is_from_outside(
    child: Child, ending: Ending, from_outside: bool
) -> None:
    assert Death(child, Reason.BOOT, ending).is_from_outside is from_outside


def test_a_task_is_not_blamed_for_what_we_did_for_other_reasons() -> None:
    blamed = {reason for reason in Reason if Death(_child(State.EXITED), reason, KILLED).is_task_to_blame}
    assert blamed == {
        Reason.CRASH,
        Reason.SIGNAL,
        Reason.OOM,
        Reason.HUNG,
        Reason.TIMEOUT,
        Reason.MAX_TASKS,
        Reason.MAX_RSS,
        Reason.BOOT,
    }


def test_every_reason_has_words() -> None:
    for reason in Reason:
        assert Death(_child(State.EXITED), reason, KILLED).words.startswith("killed by SIGKILL")
        assert Death(_child(State.EXITED), reason, _exited(3)).words.startswith("left with exit code 3")


def test_a_child_that_met_another_version_of_the_package_says_what_to_do() -> None:
    death = Death(_child(State.EXITED, ready_at=None), Reason.BOOT, _exited(EXIT_OTHER_VERSION))
    assert "another version of the package" in death.words
    assert "restart" in death.words
    later = Death(_child(State.EXITED, ready_at=1.0), Reason.CRASH, _exited(EXIT_OTHER_VERSION))
    assert "version" not in later.words  # a task may leave with any code


def test_the_epitaph_tells_how_long_the_task_had_run() -> None:
    task = CurrentTask(b"id mail i 1 1 0 0 0 0 -", "send", started_ns=1_000_000_000, deadline_ns=0)
    death = Death(_child(State.EXITED), Reason.SIGNAL, Ending(signal.SIGSEGV, max_rss_kb=2048))
    epitaph = json.loads(epitaph_of(death, task, died_ns=3_500_000_000, at=datetime(2026, 1, 2, tzinfo=UTC)))
    assert epitaph == {
        "reason": "crashed",
        "error": "killed by SIGSEGV",
        "cause": "signal",
        "signal": "SIGSEGV",
        "elapsed_seconds": 2.5,
        "max_rss_mb_with_shared": 2.0,
        "owner": "",
        "pid": 0,
        "at": "2026-01-02T00:00:00.000+00:00",
    }


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
