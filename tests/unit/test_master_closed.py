"""What a master says and counts of queues whose condition fails: each once, and tenants as their pattern."""

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


def told(core: Core, *closed: ClosedQueue) -> list[str]:
    """The events of a look, which is also to count each failing label once."""
    effects = core.take(ClosedSeen(closed))
    counted = [effect.labels for effect in effects if isinstance(effect, AddToCounter)]
    assert len(set(counted)) == len(counted)
    assert all(effect.counter is CONDITION_ERRORS for effect in effects if isinstance(effect, AddToCounter))
    return [effect.event for effect in effects if isinstance(effect, WriteLog)]


def test_a_condition_that_fails_is_told_once_until_it_is_another_error_or_works(core: Core) -> None:
    assert told(core, *failing("mail")) == [log_events.CONDITION_FAILED]
    assert told(core, *failing("mail")) == []
    assert told(core, *failing("mail", error="another")) == [log_events.CONDITION_FAILED]
    assert told(core) == [log_events.CONDITION_WORKS]
    assert told(core) == []


def test_of_tenants_whose_condition_fails_one_line_is_written_whichever_were_looked_at(core: Core) -> None:
    assert told(core, *failing(*(f"tenant-{number}" for number in range(150)))) == [log_events.CONDITION_FAILED]
    assert told(core, *failing(*(f"tenant-{number}" for number in range(100, 250)))) == []
    assert told(core, *failing("tenant-7")) == []
    assert told(core) == [log_events.CONDITION_WORKS]


def test_a_queue_that_was_not_looked_at_among_very_many_has_not_become_well(core: Core) -> None:
    shut = tuple(ClosedQueue(f"tenant-{number}", 0, "office", "") for number in range(150))
    assert told(core, *failing("mail")) == [log_events.CONDITION_FAILED]
    assert told(core, *shut) == []
    assert told(core, *shut, *failing("mail")) == []
    assert told(core, *shut[:20]) == [log_events.CONDITION_WORKS]
