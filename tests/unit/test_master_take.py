"""The effects of events that no other test module covers: Redis is unreachable, can be reached again, or evicts keys,
or two ticks occur at the same time.
"""

import dataclasses

import pytest

from rota.telemetry import log_events
from rota.telemetry.metrics import REDIS_ROUND_TRIP, REDIS_UP
from rota_supervisor.config.model import Config
from rota_supervisor.control.port import RequestKind
from rota_supervisor.layout import Role
from rota_supervisor.master.core.effects import Leave, Register, SetGauge, SignalChild, Spawn
from rota_supervisor.master.core.master_events import (
    EvictionPolicySeen,
    LeasesRenewed,
    RedisFailed,
    RedisReplied,
    RoundTripSeen,
    Started,
    Ticked,
)
from rota_supervisor.server_check import SAFE_POLICY
from support.cores import Core


@pytest.fixture
def core() -> Core:
    return Core(Config(imports=("code",), workers=2))


def test_the_loss_and_return_of_redis_are_logged_once(core: Core) -> None:
    for event in (
        RedisReplied(),
        RedisFailed("oom", "OOM", is_away=False),
        RedisFailed("network", "refused", is_away=True),
        RedisFailed("network", "refused", is_away=True),
        RedisReplied(),
    ):
        core.take(event)
    assert [event for event, _ in core.logged] == [log_events.REDIS_LOST, log_events.REDIS_BACK]
    assert [effect.value for effect in core.done(SetGauge) if effect.gauge is REDIS_UP] == [1, 0, 0, 1]


def test_the_redis_round_trip_is_shown_until_redis_is_lost(core: Core) -> None:
    for event in (RedisReplied(), RoundTripSeen(0.4), RedisFailed("silent", "5 s", is_away=True)):
        core.take(event)
    assert [effect.value for effect in core.done(SetGauge) if effect.gauge is REDIS_ROUND_TRIP] == [0.4, None]
    assert core.state.redis_round_trip_seconds is None


def test_refusals_and_silence_of_redis_are_logged_separately(core: Core) -> None:
    for event in (
        RedisReplied(),
        RedisFailed("misconf", "MISCONF no space", is_away=True, is_reply=True),
        RedisFailed("misconf", "MISCONF no space", is_away=True, is_reply=True),
        RedisFailed("network", "refused", is_away=True),
        RedisReplied(),
    ):
        core.take(event)
    assert [fields["refused"] for event, fields in core.logged if event == log_events.REDIS_LOST] == [True, False]


def test_a_change_of_the_eviction_policy_is_logged_once(core: Core) -> None:
    for policy in (SAFE_POLICY, "allkeys-lru", "allkeys-lru", SAFE_POLICY):
        core.take(EvictionPolicySeen(policy))
    assert [event for event, _ in core.logged] == [log_events.REDIS_EVICTS_KEYS, log_events.REDIS_KEEPS_KEYS]


def test_a_second_tick_at_the_same_time_does_nothing(core: Core) -> None:
    core.child(Role.ZYGOTE, 2, "generation-1")
    first = core.take(Ticked())
    assert {type(effect) for effect in first} >= {Register, Spawn}
    assert core.take(Ticked()) == []


def test_the_start_of_a_child_that_failed_to_start_is_retried_later(core: Core) -> None:
    zygote = next(
        effect.child for effect in core.take(Ticked()) if isinstance(effect, Spawn) and effect.child.slot == 2
    )
    core.take(Started(zygote.slot, zygote.nonce, error="EAGAIN"))
    assert (log_events.FLEET_CALL_FAILED, "EAGAIN") in [(event, fields["error"]) for event, fields in core.logged]
    assert all(effect.child.role is not Role.ZYGOTE for effect in core.take(Ticked()) if isinstance(effect, Spawn))
    core.now = 5.0
    assert any(effect.child.role is Role.ZYGOTE for effect in core.take(Ticked()) if isinstance(effect, Spawn))


def test_a_master_that_was_suspended_kills_no_child(core: Core) -> None:
    worker = core.child(Role.WORKER, 8)
    core.child(Role.ZYGOTE, 2, "generation-1")
    core.take(Ticked())
    core.now = 1000.0
    assert [effect for effect in core.take(Ticked()) if isinstance(effect, SignalChild)] == []
    assert worker.why is None


def test_the_master_exits_once_when_its_fleet_has_stopped(core: Core) -> None:
    core.request(RequestKind.DRAIN)
    assert [effect for effect in core.take(Ticked()) if isinstance(effect, Leave)] == [Leave()]
    assert core.take(Ticked()) == []


def test_a_stop_that_waits_for_redis_logs_the_reason(core: Core) -> None:
    worker = core.child(Role.WORKER, 8)
    worker.has_work = True
    core.request(RequestKind.DRAIN)
    core.take(Ticked())
    core.take(LeasesRenewed(failed=True))
    core.now = 1.0
    core.take(Ticked(redis_silent_since=0.0))
    (said,) = [fields for event, fields in core.logged if event == log_events.FLEET_WAITING]
    assert (said["waits_for"], said["in_hand"]) == ("redis", 1)


def test_two_cores_with_the_same_state_decide_the_same(core: Core) -> None:
    other = Core(core.file)
    other.state.surroundings = dataclasses.replace(core.state.surroundings)
    assert core.take(Ticked()) == other.take(Ticked())
