"""The kill policy that a worker leaves in its slot. A policy is one word, which determines how the master settles a
task whose worker it had to kill.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.child.slot_record import KillPolicy, TaskInSlot
from rota.errors import TimeLimit
from rota.protocol.outcome import DeadOutcome, RetryOutcome
from rota.protocol.replies import Reaped
from rota.protocol.tiers import DEFAULT_CRASH_LIMIT, MOST_CRASHES
from rota.protocol.wire import NOTHING
from rota.tasks.options import TaskOptions, check_options
from rota.telemetry import log_events
from rota.telemetry import metrics as m
from rota.worker.attempt import kill_policy_of
from rota_supervisor.config.model import Config
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.effects import AddToCounter, ReapOwner
from rota_supervisor.master.core.master_events import Died, OwnerReaped, ProcessEnd
from rota_supervisor.master.core.reasons import Reason
from support.cores import Core

_KILLED = ProcessEnd(9)
_VERDICTS = st.builds(KillPolicy, st.just(True), st.none() | st.integers(0, 1 << 52), st.integers(0, MOST_CRASHES))
_WORDS = st.integers(-(2**63), 2**63 - 1)


@given(kill_policy=_VERDICTS | st.builds(KillPolicy, st.just(False), st.none(), st.integers(0, MOST_CRASHES)))
def test_a_kill_policy_survives_encoding_as_one_word(kill_policy: KillPolicy) -> None:
    word = kill_policy.to_word()
    assert 0 <= word < 2**63
    assert KillPolicy.from_word(word) == kill_policy


@given(word=_WORDS)
def test_any_64_bit_word_is_decoded_as_a_valid_kill_policy(word: int) -> None:
    kill_policy = KillPolicy.from_word(word)
    assert 0 <= kill_policy.crash_limit <= 1023
    assert kill_policy.retry_us is None or 0 <= kill_policy.retry_us <= 1 << 52


def _policy(failures: int, **options: Any) -> KillPolicy:
    return kill_policy_of(TaskOptions(**options), failures, lambda: 0.5)


def test_a_kill_policy_after_a_time_limit_retries_with_the_tasks_back_off() -> None:
    assert _policy(0, retries=1, base=2.0) == KillPolicy(True, 1_000_000)
    assert _policy(1, retries=1) == KillPolicy(True, None)
    assert _policy(0, retries=0, crash_limit=7) == KillPolicy(True, None, 7)


def test_retry_on_and_dead_on_apply_to_the_hard_time_limit() -> None:
    assert _policy(0, dead_on=(TimeLimit,)).retry_us is None
    assert _policy(0, retry_on=(OSError,)).retry_us is None
    assert _policy(0, retry_on=(TimeLimit,), jitter=False).retry_us == 2_000_000


def test_a_task_whose_back_off_function_fails_has_a_kill_policy_without_retry() -> None:
    def sulk(failures: int) -> float:
        raise SystemExit(failures)

    assert _policy(0, backoff=sulk) == KillPolicy(True, None)


def test_an_at_most_once_task_has_the_default_kill_policy() -> None:
    assert _policy(0, crash_limit=0) == KillPolicy()


@pytest.mark.parametrize("value", [-1, MOST_CRASHES + 1, True, 1.5, "3"])
def test_an_invalid_crash_limit_is_refused_by_name(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="crash_limit"):
        check_options({"crash_limit": value})


# How the master uses the policy


@pytest.fixture
def core() -> Core:
    return Core(Config(imports=("code",)))


@pytest.fixture
def worker(core: Core) -> Child:
    child = core.child(Role.WORKER, 8)
    child.owner, child.pid, child.ready_at = "node:8:1", 77, 0.0
    return child


def _task(kill_policy: KillPolicy, entry: bytes = b"id mail i 1 1 2 0 0 0 -") -> TaskInSlot:
    return TaskInSlot(entry, "send", 1_000_000_000, 3_000_000_000, kill_policy=kill_policy.to_word())


def _reap_after_death(core: Core, worker: Child, task: TaskInSlot, why: Reason | None = Reason.TIMEOUT) -> ReapOwner:
    if why is not None:
        worker.state, worker.why = ChildState.KILLED, why
    core.take(Died(worker.slot, worker.nonce, _KILLED, (task,)))
    (reap,) = core.done(ReapOwner)
    return reap


def _events_after_reap(core: Core, reap: ReapOwner, **reaped: Any) -> dict[str, dict[str, Any]]:
    core.take(OwnerReaped(reap, Reaped(False, 1, (), (), **reaped)))
    return {event: dict(fields) for event, fields in core.logged if event.startswith("task.")}


def test_a_task_over_its_hard_limit_is_retried_if_permitted(core: Core, worker: Child) -> None:
    reap = _reap_after_death(core, worker, _task(KillPolicy(True, 1_500_000)))
    (over_limit,) = reap.over_limit
    outcome = over_limit.outcome
    assert isinstance(outcome, RetryOutcome)
    assert (over_limit.entry.id, outcome.delay_us) == ("id", 1_500_000)
    record = json.loads(outcome.record)
    assert (record["reason"], record["limit"], record["limit_value"]) == ("time_limit", "time_limit_seconds", 2.0)
    told = _events_after_reap(core, reap)
    assert told[log_events.TASK_RETRIED]["retry_in_seconds"] == 1.5
    assert told[log_events.TASK_RETRIED]["attempt"] == 3
    counted = {effect.counter: effect.labels for effect in core.done(AddToCounter)}
    assert counted[m.TASK_RETRIES] == ("mail", "send")
    assert counted[m.TASKS_PROCESSED] == ("mail", "send", "retry")


def test_with_no_retry_left_a_hard_limit_ends_the_task(core: Core, worker: Child) -> None:
    reap = _reap_after_death(core, worker, _task(KillPolicy(True, None)))
    (over_limit,) = reap.over_limit
    assert isinstance(over_limit.outcome, DeadOutcome)
    assert json.loads(over_limit.outcome.record)["reason"] == "time_limit"
    assert _events_after_reap(core, reap)[log_events.TASK_DEAD]["reason"] == "time_limit"
    counted = {effect.counter: effect.labels for effect in core.done(AddToCounter)}
    assert counted[m.TASKS_DEAD] == ("mail", "send", "time_limit")


def test_a_stale_task_of_a_dead_worker_is_not_reported(core: Core, worker: Child) -> None:
    task = _task(KillPolicy(True, None))
    assert _events_after_reap(core, _reap_after_death(core, worker, task), stale=(task.entry,)) == {}


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (_task(KillPolicy(True, 0)), Reason.HUNG),
        (_task(KillPolicy(True, 0)), None),
        (_task(KillPolicy()), Reason.TIMEOUT),
        (_task(KillPolicy(True, 0), b"no entry"), Reason.TIMEOUT),
        (_task(KillPolicy(True, 0), b"a q x 1 1 0 0 0 0 -"), Reason.TIMEOUT),
    ],
)
def test_a_worker_death_other_than_a_hard_limit_counts_as_a_crash(
    core: Core, worker: Child, task: TaskInSlot, why: Reason | None
) -> None:
    reap = _reap_after_death(core, worker, task, why)
    assert (reap.over_limit, reap.settlements) == ((), NOTHING)
    assert reap.blame.crash is not None
    assert len(reap.blame.ran) == 1


def test_a_crash_is_judged_by_the_tasks_own_crash_limit(core: Core, worker: Child) -> None:
    assert _reap_after_death(core, worker, _task(KillPolicy(crash_limit=7)), None).blame.crash_limit == 7


def test_a_crash_is_judged_by_the_default_limit_otherwise(core: Core, worker: Child) -> None:
    assert _reap_after_death(core, worker, _task(KillPolicy()), None).blame.crash_limit == DEFAULT_CRASH_LIMIT


def test_a_worker_killed_at_shutdown_records_the_attempt_but_no_crash(core: Core, worker: Child) -> None:
    blame = _reap_after_death(core, worker, _task(KillPolicy()), Reason.STOP).blame
    assert (blame.crash, [task_id for task_id, _ in blame.ran]) == (None, ["id"])
