"""How the master reports and counts queues with a failing condition. It reports each queue once, and a pattern's queues
under the pattern.
"""

import pytest

from rota.protocol.views import ClosedQueue
from rota.telemetry import log_events
from rota.telemetry.metrics import CONDITION_ERRORS
from rota_supervisor.config.model import Config
from rota_supervisor.master.core.effects import AddToCounter, WriteLog
from rota_supervisor.master.core.master_events import ClosedSeen
from support.cores import Core

ERROR = "condition:1: it failed"


@pytest.fixture
def core() -> Core:
    return Core(Config(imports=("code",), tiers=(("mail",), ("tenant-*",))))


def failing(*queues: str, error: str = ERROR) -> tuple[ClosedQueue, ...]:
    return tuple(ClosedQueue(queue, 0, "office", error) for queue in queues)


def events_of(core: Core, *closed: ClosedQueue) -> list[str]:
    """Return the log events after the master has received these closed queues. Check that each set of labels is counted
    at most once.
    """
    effects = core.take(ClosedSeen(closed))
    counted = [effect.labels for effect in effects if isinstance(effect, AddToCounter)]
    assert len(set(counted)) == len(counted)
    assert all(effect.counter is CONDITION_ERRORS for effect in effects if isinstance(effect, AddToCounter))
    return [effect.event for effect in effects if isinstance(effect, WriteLog)]


def test_each_different_error_of_a_failing_condition_is_logged_once(core: Core) -> None:
    assert events_of(core, *failing("mail")) == [log_events.CONDITION_FAILED]
    assert events_of(core, *failing("mail")) == []
    assert events_of(core, *failing("mail", error="another")) == [log_events.CONDITION_FAILED]
    assert events_of(core) == [log_events.CONDITION_WORKS]
    assert events_of(core) == []


def test_failing_queues_of_one_pattern_are_logged_once(core: Core) -> None:
    assert events_of(core, *failing(*(f"tenant-{number}" for number in range(150)))) == [log_events.CONDITION_FAILED]
    assert events_of(core, *failing(*(f"tenant-{number}" for number in range(100, 250)))) == []
    assert events_of(core, *failing("tenant-7")) == []
    assert events_of(core) == [log_events.CONDITION_WORKS]


def test_a_failing_queue_missing_from_a_truncated_list_is_not_recovered(core: Core) -> None:
    shut = tuple(ClosedQueue(f"tenant-{number}", 0, "office", "") for number in range(150))
    assert events_of(core, *failing("mail")) == [log_events.CONDITION_FAILED]
    assert events_of(core, *shut) == []
    assert events_of(core, *shut, *failing("mail")) == []
    assert events_of(core, *shut[:20]) == [log_events.CONDITION_WORKS]
