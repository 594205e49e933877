"""The description of a death in the log and in the task's record. The description contains everything that is known
about the death, and nothing that does not apply.
"""

import json
import signal
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from rota.child.child_process import EXIT_DRAINED, EXIT_OTHER_VERSION
from rota.child.slot_record import TaskInSlot
from rota_supervisor.config.model import Limits
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import STOPPED_SECONDS, Child, ChildState
from rota_supervisor.master.core.death import Death, death_record_of, fields_of, reason_of
from rota_supervisor.master.core.master_events import Died, ProcessEnd
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.targets import Stage, Stop

TASK = TaskInSlot(b"id mail i 1 1 0 0 0 0 -", "send", started_ns=1_000_000_000, deadline_ns=3_000_000_000)
STACK = 'Current thread 0x01 (most recent call first):\n  File "/shop/tasks.py", line 7 in send\n'
FATAL = f"Fatal Python error: Segmentation fault\n\n{STACK}"
SAID = f"{STACK}Exit reason: a.b raised OSError\n"
UNWANTED = "the generation or the pool of the process is no longer in use"
LIMITS = Limits(beat_seconds=20, boot_seconds=40, drain_seconds=10, max_tasks=1000, max_rss_mb=300)
KILLED = ProcessEnd(signal.SIGKILL, max_rss_kb=2048)
LEAVING = Stop(Stage.WORKERS)
AT_ONCE = Stop(Stage.AT_ONCE)
WALL = datetime(2026, 1, 2, tzinfo=UTC).timestamp()


def child(state: ChildState = ChildState.READY, why: Reason | None = None, **fields: Any) -> Child:
    return Child(Role.WORKER, "mail", 1, 8, 1, state, 0.0, pid=77, **{"ready_at": 1.0, "why": why, **fields})


def exporter(**fields: Any) -> Child:
    state = ChildState.KILLED
    why = Reason.HUNG
    return Child(Role.EXPORTER, "exporter", 1, 1, 1, state, 0.0, pid=77, ready_at=1.0, why=why, **fields)


def died(
    dead: Child,
    ending: ProcessEnd = KILLED,
    task: TaskInSlot | None = None,
    stack: str = "",
    stop: Stop = Stop(),  # noqa: B008 - frozen
) -> Death:
    event = Died(dead.slot, dead.nonce, ending, () if task is None else (task,), stack=stack, wall=WALL)
    return Death(dead, reason_of(dead, ending), event, LIMITS, 3.5, stop, has_work=False)


def exited(code: int) -> ProcessEnd:
    return ProcessEnd(code << 8)


def test_the_log_event_of_a_crash_has_task_time_memory_and_stack() -> None:
    assert fields_of(died(child(), ProcessEnd(signal.SIGSEGV, max_rss_kb=2048), task=TASK, stack=FATAL)) == {
        "child": "worker",
        "slot": 8,
        "child_pid": 77,
        "generation": 1,
        "pool": "mail",
        "reason": "signal",
        "words": "killed by SIGSEGV: native code failed",
        "idle": False,
        "task": "send",
        "task_id": "id",
        "queue": "mail",
        "signal": "SIGSEGV",
        "elapsed_seconds": 2.5,
        "max_rss_mb_with_shared": 2.0,
        "stack": "send (/shop/tasks.py:7)",
    }


def test_the_death_record_of_a_crash_has_the_facts_of_the_log_event() -> None:
    death = died(child(ChildState.KILLED, Reason.TIMEOUT, dumped_at=3.4), task=TASK, stack=STACK)
    assert json.loads(death_record_of(death, TASK)) == {
        "reason": "crashed",
        "error": "killed by SIGKILL, by its master: the task exceeded its time limit",
        "cause": "timeout",
        "signal": "SIGKILL",
        "limit": "time_limit_seconds",
        "limit_value": 2.0,
        "elapsed_seconds": 2.5,
        "max_rss_mb_with_shared": 2.0,
        "owner": "",
        "pid": 77,
        "stack": "send (/shop/tasks.py:7)",
        "at": "2026-01-02T00:00:00.000+00:00",
    }


@pytest.mark.parametrize(
    ("death", "limit"),
    [
        (died(child(ChildState.KILLED, Reason.TIMEOUT), task=TASK), ("time_limit_seconds", 2.0)),
        (died(child(ChildState.KILLED, Reason.HUNG)), ("beat_seconds", 20)),
        (died(exporter(stopped_at=2.0)), ("beat_seconds", STOPPED_SECONDS)),
        (died(child(ChildState.KILLED, Reason.BOOT, ready_at=None)), ("boot_seconds", 40)),
        (died(child(ChildState.BOOTING, ready_at=None)), None),
        (died(child(ChildState.DRAINING, Reason.MAX_TASKS), exited(EXIT_DRAINED)), ("max_tasks", 1000)),
        (died(child(ChildState.DRAINING, Reason.MAX_RSS), exited(EXIT_DRAINED)), ("max_rss_mb", 300)),
        (died(child(ChildState.KILLED, Reason.STOP), stop=LEAVING), ("drain_seconds", 10)),
        (
            died(child(ChildState.KILLED, Reason.STOP)),
            ("beat_seconds", 20),
        ),  # the limit for a child that ignores the order to leave
        (died(child(ChildState.KILLED, Reason.STOP), stop=AT_ONCE), None),
        (died(child()), None),
    ],
)
def test_the_exceeded_limit_is_named_with_its_value(death: Death, limit: tuple[str, float] | None) -> None:
    said = fields_of(death)
    assert (said.get("limit"), said.get("limit_value")) == (limit or (None, None))


@pytest.mark.parametrize(
    ("death", "words"),
    [
        (died(child()), "killed by SIGKILL: not sent by its master, and the kernel counted no out-of-memory kill"),
        (died(child(), ProcessEnd(signal.SIGKILL, oom_killed=True)), "the kernel ran out of memory for this cgroup"),
        (died(child(), exited(EXIT_DRAINED)), "not requested by its master, perhaps by a signal from outside"),
        (died(child(), exited(3), task=TASK), "3: the process ended itself, for example with os._exit"),
        (
            died(child(ChildState.KILLED, Reason.HUNG, stopped_at=2.0)),
            "the process had been stopped, for example by SIGSTOP, for 20 s",
        ),
        (died(child(ChildState.KILLED, Reason.HUNG)), "the process sent no heartbeat for 20 s"),
        (died(child(ChildState.KILLED, Reason.BOOT, ready_at=None)), "the process was not ready within 40 s"),
        (died(child(ChildState.KILLED, Reason.STOP), stop=AT_ONCE), "the fleet is stopping at once"),
        (
            died(child(ChildState.DRAINING, Reason.SURPLUS), exited(EXIT_DRAINED)),
            "0 as requested: there were more processes than needed",
        ),
        (died(child(ChildState.DRAINING, Reason.RELOAD), exited(EXIT_DRAINED)), f"0 as requested: {UNWANTED}"),
        (died(child(ChildState.KILLED, Reason.RELOAD)), f"killed by SIGKILL, by its master: {UNWANTED}"),
        (died(child(ChildState.DRAINING, Reason.SURPLUS), exited(EXIT_DRAINED), stop=LEAVING), "code 0 as requested"),
        (
            died(child(ChildState.KILLED, Reason.SURPLUS, ready_at=None), stop=LEAVING),
            "the fleet is stopping, and the process was still starting",
        ),
        (died(child(ChildState.BOOTING, ready_at=None), exited(1)), "exited with code 1 before it was ready"),
        (
            died(child(ChildState.BOOTING, ready_at=None), exited(1), stack=SAID),
            "1 before it was ready: a.b raised OSError",
        ),
        # The stack is not quoted, because a task may write any text to its stack file.
        (died(child(), exited(1), stack=SAID), "exited with code 1"),
    ],
)
def test_the_text_of_a_death_explains_its_cause(death: Death, words: str) -> None:
    assert death.text.endswith(words)
    assert fields_of(death)["words"] == death.text


def test_every_reason_of_death_has_a_text() -> None:
    for reason in Reason:
        for ending, how in ((KILLED, "killed by SIGKILL"), (exited(3), "exited with code 3")):
            assert replace(died(child(), ending), reason=reason).text.startswith(how)


def test_a_death_by_a_version_mismatch_advises_a_restart() -> None:
    early = died(child(ChildState.BOOTING, ready_at=None), exited(EXIT_OTHER_VERSION)).text
    assert "another version of the package" in early
    assert "restart" in early
    assert "version" not in died(child(), exited(EXIT_OTHER_VERSION)).text  # a task may exit with any code


def test_a_stack_written_long_before_the_death_is_omitted() -> None:
    # An operator requested this stack with a signal an hour ago, and the stack is already in the log.
    assert "stack" not in fields_of(died(child(), stack=STACK))
    assert "stack" not in fields_of(died(child(), ProcessEnd(signal.SIGSEGV), stack=STACK))
    assert "stack" not in fields_of(died(child(ChildState.KILLED, Reason.HUNG, stopped_at=2.0), stack=STACK))
    assert "stack" in fields_of(died(child(ChildState.KILLED, Reason.HUNG, dumped_at=3.0), stack=STACK))


def test_a_missing_stack_is_reported_if_it_was_requested() -> None:
    said = fields_of(died(child(ChildState.KILLED, Reason.TIMEOUT, dumped_at=3.0), task=TASK))
    assert said["stack"] == "the process did not reply: it blocks signals, or hangs in the kernel"


def test_facts_that_do_not_apply_to_a_death_are_omitted() -> None:
    assert fields_of(died(child(ChildState.KILLED, Reason.HUNG, stopped_at=2.0)))["stopped"] is True
    assert fields_of(died(child(), ProcessEnd(signal.SIGKILL, oom_killed=True)))["oom_killed"] is True
    assert {"stopped", "oom_killed", "limit", "stack", "task", "elapsed_seconds"}.isdisjoint(fields_of(died(child())))


def test_a_signal_without_a_name_is_shown_by_number() -> None:
    assert died(child(), ProcessEnd(signal.SIGRTMIN + 3)).text == "killed by SIGRTMIN+3"
    assert died(child(), ProcessEnd(33)).text == "killed by signal 33"


@pytest.mark.parametrize(
    ("ending", "counters", "expected"),
    [
        (ProcessEnd(signal.SIGSEGV), "0 0 0 0", 1),
        (ProcessEnd(signal.SIGSEGV), "0 0 1 5", 1),
        (ProcessEnd(signal.SIGSEGV), "1 0 0 0", 0),
        (ProcessEnd(signal.SIGSEGV), "0 2 0 0", 0),
        (exited(EXIT_DRAINED), "0 0 0 0", 1),
    ],
)
def test_a_crashed_task_counts_only_in_its_first_attempt(ending: ProcessEnd, counters: str, expected: int) -> None:
    task = TASK._replace(entry=f"id mail i 1 1 {counters} -".encode())
    assert died(child(), ending, task).first_attempts == expected


def test_expected_deaths_and_deaths_without_a_task_are_no_crashed_attempts() -> None:
    stopped = child(ChildState.KILLED, Reason.STOP)
    assert died(stopped, KILLED, TASK).first_attempts == 0
    assert died(child(), ProcessEnd(signal.SIGSEGV)).first_attempts == 0
