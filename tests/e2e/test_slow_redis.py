"""A fleet whose Redis server responds slowly. Every view reports the round trip time, and still shows the queues."""

import json
import re
import time
from typing import Any, Final

import pytest

from rota_supervisor.master_snapshot import SLOW_SECONDS
from support.faulty_link import FaultyLink
from support.fleet_process import FleetProcess
from support.fleets import RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

DEADLINE_SECONDS: Final = 60.0
WAITING: Final = 30
MOST_LATE_SECONDS: Final = 25.0  # long, because it takes several slow round trips to read all queues


def delayed(fleet: RunningFleet, link: FaultyLink, milliseconds: int) -> RunningFleet:
    """Start a fleet with waiting tasks in a paused queue, and then make each round trip to Redis take this long."""
    fleet.start()
    fleet.client.pause("default")
    for number in range(WAITING):
        fleet.client.enqueue("note", args=[str(number)], queue="default")
    link.delay(milliseconds / 2000)
    return fleet


def status_of(fleet: FleetProcess) -> dict[str, Any]:
    code, body = fleet.get("/status.json")
    assert code == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def slow_line(text: str) -> int | None:
    """Return the round trip time in milliseconds that this output reports, or None if it reports none."""
    found = re.search(r"Redis is slow: ([\d,]+) ms per round trip", text)
    return int(found[1].replace(",", "")) if found else None


@pytest.mark.parametrize("milliseconds", [50, 150, 400, 900])
def test_every_view_shows_the_round_trip_of_a_slow_redis(
    fleet_behind_link: RunningFleet, link: FaultyLink, milliseconds: int
) -> None:
    fleet = delayed(fleet_behind_link, link, milliseconds)
    until(
        lambda: slow_line(status_of(fleet)["headlines"][0]["text"]) is not None,
        lambda: status_of(fleet)["headlines"],
        DEADLINE_SECONDS,
    )
    first = status_of(fleet)["headlines"][0]
    assert first["where"] == "redis"
    assert milliseconds * 0.9 <= (slow_line(first["text"]) or 0) <= milliseconds * 3
    until(lambda: fleet.metrics().total("rota_queue_ready_tasks", queue="default") == WAITING, "the gauges are there")
    assert fleet.metrics().total("rota_redis_round_trip_seconds") >= max(SLOW_SECONDS, milliseconds / 1000 * 0.9)
    for arguments in (["top", "--once"], ["status"], ["health"], ["health", "--ready"]):
        shown = fleet.rota(*arguments)
        assert shown.returncode == 0, shown.stderr
        # `rota health` only checks that the master is alive, which does not depend on Redis.
        if arguments != ["health"]:
            assert slow_line(shown.stdout), (arguments, shown.stdout)


def test_each_scrape_shows_recent_queue_states_while_redis_is_slow(
    fleet_behind_link: RunningFleet, link: FaultyLink
) -> None:
    fleet = delayed(fleet_behind_link, link, 900)
    until(lambda: fleet.metrics().total("rota_queue_ready_tasks", queue="default") == WAITING, "the gauges are there")
    for _ in range(24):
        scrape = fleet.metrics()
        assert scrape.total("rota_queue_ready_tasks", queue="default") == WAITING
        assert scrape.total("rota_queue_states_age_seconds") < MOST_LATE_SECONDS
    seen = status_of(fleet)
    assert seen["queue_states_age_seconds"] is not None
    assert all(row["state"] for row in seen["queues"])
    until(lambda: "are shown as they were" in status_of(fleet)["headlines"][0]["text"], "its age is shown")


def test_the_liveness_probe_responds_at_once_while_redis_is_slow(
    fleet_behind_link: RunningFleet, link: FaultyLink
) -> None:
    fleet = delayed(fleet_behind_link, link, 900)
    began = time.monotonic()
    for _ in range(20):
        assert fleet.get("/livez")[0] == 200
    assert time.monotonic() - began < DEADLINE_SECONDS / 10


def test_the_status_is_never_shown_as_healthy_if_redis_is_silent(
    fleet_behind_link: RunningFleet, link: FaultyLink
) -> None:
    fleet = fleet_behind_link.start()
    link.silence(requests=True, replies=True)
    lines: list[dict[str, Any]] = []

    def is_reported() -> bool:
        found = status_of(fleet)
        lines.extend(found["headlines"])
        if found["queue_states_age_seconds"] is None:
            assert not any("no queue is late" in row["text"] for row in found["headlines"])
        return str(found["headlines"][0]["text"]).startswith(("Redis does not respond", "Redis has not responded"))

    until(is_reported, lambda: lines[-1], DEADLINE_SECONDS)
