"""A fleet is stopped while its server is unavailable. If no task is claimed, the fleet exits without waiting. Otherwise
it waits only for a short time.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.fleets import Measure, RunningFleet
from support.hanging_resolver import HangingResolver
from support.masters import ON_ONE_SERVER
from support.server_fixtures import SHORT_LEASE, Shaken
from support.waiting import until

pytestmark = ON_ONE_SERVER

PROMISED_SECONDS = 2.0
DRAIN_SECONDS = 4.0
PROMISED_BEYOND_DRAIN_SECONDS = 5.0
# Extra time for an overloaded machine; if the promise were broken, a stop would take ten times as long.
SLACK_SECONDS = 4.0


@pytest.fixture
def resolver(tmp_path: Path) -> HangingResolver:
    return HangingResolver(tmp_path)


def refuse(shaken: Shaken, _: HangingResolver) -> None:
    shaken.lose_link()


def fall_silent(shaken: Shaken, _: HangingResolver) -> None:
    os.kill(shaken.server.pid, signal.SIGSTOP)


def hang_in_the_resolver(shaken: Shaken, resolver: HangingResolver) -> None:
    resolver.hang()
    shaken.lose_link()


def start(shaken: Shaken, resolver: HangingResolver, drain_seconds: float) -> RunningFleet:
    fleet = shaken.make(
        redis_url=f"redis://localhost:{shaken.link.port}/0",
        workers=3,
        lease=SHORT_LEASE,
        limits={"drain_seconds": drain_seconds},
    )
    fleet.environment |= resolver.environment
    return fleet.start()


def seconds_to_stop(fleet: RunningFleet) -> float:
    began = time.monotonic()
    fleet.term()
    assert fleet.exit_code() == 0
    return time.monotonic() - began


def end(shaken: Shaken) -> None:
    os.kill(shaken.server.pid, signal.SIGCONT)
    shaken.link.heal()


@pytest.mark.parametrize("noticed", [True, False], ids=["noticed", "just now"])
@pytest.mark.parametrize("go_away", [refuse, fall_silent, hang_in_the_resolver])
def test_the_stop_of_an_idle_fleet_does_not_wait_for_a_missing_server(
    shaken: Shaken,
    resolver: HangingResolver,
    measured: Measure,
    go_away: Callable[[Shaken, HangingResolver], None],
    noticed: bool,
) -> None:
    fleet = start(shaken, resolver, drain_seconds=60)
    go_away(shaken, resolver)
    if noticed:
        until(lambda: any(line["role"] == "master" for line in fleet.log("redis.lost")), "the master has noticed")
    seconds = seconds_to_stop(fleet)
    measured("seconds to stop", seconds)
    end(shaken)
    assert seconds < PROMISED_SECONDS + SLACK_SECONDS
    (waiting,) = fleet.log("fleet.waiting")
    assert (waiting["waits_for"], waiting["in_hand"]) == ("redis", 0)
    assert waiting["seconds"] <= PROMISED_SECONDS


@pytest.mark.parametrize("go_away", [refuse, fall_silent, hang_in_the_resolver])
def test_a_stop_without_the_server_waits_at_most_5_s_beyond_the_drain(
    shaken: Shaken,
    resolver: HangingResolver,
    measured: Measure,
    go_away: Callable[[Shaken, HangingResolver], None],
) -> None:
    fleet = start(shaken, resolver, DRAIN_SECONDS)
    for label in ("ends meanwhile", "never ends"):
        fleet.hold(label)
    go_away(shaken, resolver)
    fleet.release("ends meanwhile")  # the server is unavailable, so the worker cannot send the outcome of this task
    fleet.wait_for("end", label="ends meanwhile")
    seconds = seconds_to_stop(fleet)
    measured("seconds to stop, above the drain", seconds - DRAIN_SECONDS)
    end(shaken)
    assert DRAIN_SECONDS <= seconds < DRAIN_SECONDS + PROMISED_BEYOND_DRAIN_SECONDS + SLACK_SECONDS
    (waiting,) = fleet.log("fleet.waiting")
    assert (waiting["waits_for"], waiting["in_hand"]) == ("redis", 2)
    assert waiting["seconds"] <= DRAIN_SECONDS + PROMISED_BEYOND_DRAIN_SECONDS


def test_a_server_that_returns_during_the_drain_receives_every_outcome(
    shaken: Shaken, resolver: HangingResolver
) -> None:
    fleet = start(shaken, resolver, drain_seconds=60)
    for label in ("first", "second"):
        fleet.hold(label)
    refuse(shaken, resolver)
    fleet.release("first")
    fleet.wait_for("end", label="first")
    fleet.term()
    until(lambda: fleet.log("fleet.waiting"), "the stop waits")
    end(shaken)
    fleet.release("second")
    assert fleet.exit_code() == 0
    assert fleet.books_balance()
    assert not fleet.log("task.recovered")
