"""The server's clock jumps forward or back by an hour. No lease expires because of this, and no task starts too
early.
"""

import time
from pathlib import Path

import pytest

from rota import Call
from support.fleets import RunningFleet
from support.server_fixtures import (
    LEASE_SECONDS,
    SHORT_LEASE,
    Producer,
    Shaken,
    extra_runs,
    nothing_was_requeued,
    wait_until_all_ran,
)
from support.shifted_clock import ShiftedClock
from support.waiting import until

# After the clock has jumped forward, every fleet seems dead by the server's clock until its next heartbeat. Clients
# then warn that no fleet serves the queue.
pytestmark = pytest.mark.filterwarnings("ignore::rota.errors.UnservedQueue")

HOUR = 3600.0
LOAD = 50


@pytest.fixture
def clock(tmp_path: Path) -> ShiftedClock:
    return ShiftedClock(tmp_path)


@pytest.fixture
def server_environment(clock: ShiftedClock) -> dict[str, str]:
    return clock.environment


def timed(label: str, seconds: float) -> Call[None]:
    """Return a delayed call of the task that records the server's time when it runs."""
    return Call("tell_time", [label], queue="default", delay=seconds)


def nothing_was_early(fleet: RunningFleet) -> None:
    """Check that no task was started before its due time, according to the server's clock."""
    told = fleet.journal("time")
    assert len(told) == len({line.id for line in told}) == 40
    assert all(int(line.label) / 1_000_000 >= line.due_at for line in told)


def jump(shaken: Shaken, clock: ShiftedClock, seconds: float) -> None:
    before = shaken.redis.time()[0]
    clock.shift(seconds)
    until(lambda: abs(shaken.redis.time()[0] - before) > HOUR / 2, "another time")


def test_a_forward_jump_of_the_servers_clock_expires_no_lease(shaken: Shaken, clock: ShiftedClock) -> None:
    fleet = shaken.start(workers=3, lease=SHORT_LEASE)
    late = shaken.start_late_node("ends on the late node")
    fleet.hold("ends later")
    workers = fleet.workers()
    fleet.client.enqueue_many(timed("within the hour", HOUR / 2 + n) for n in range(20))
    fleet.client.enqueue_many(timed("soon after the jump", HOUR + 5 + n / 20) for n in range(20))
    not_yet = fleet.client.enqueue_many([timed("in two hours", 2 * HOUR)])
    with Producer(shaken.server.url, shaken.namespace) as producer:
        producer.wait_for(LOAD)
        shaken.lose_link()  # from now on, this node cannot renew its lease, but must not be considered lost
        jump(shaken, clock, HOUR)
        shaken.heal_link_late()
        time.sleep(1.4 * LEASE_SECONDS)  # waits until the grace period has ended
        producer.wait_for(LOAD)
    for label in ("ends later", "ends on the late node"):
        fleet.release(label)
        fleet.wait_for("end", label=label)
    fleet.wait_for("end", 20, label="within the hour")
    fleet.wait_for("end", 20, label="soon after the jump")
    wait_until_all_ran(fleet, producer)
    nothing_was_early(fleet)
    assert not fleet.journal(label="in two hours")
    assert [handle.status().state for handle in not_yet] == ["scheduled"]
    assert not extra_runs(fleet)
    assert fleet.workers() == workers
    nothing_was_requeued(fleet)
    nothing_was_requeued(late)


def test_a_jump_of_the_servers_clock_back_and_forth_expires_no_lease(shaken: Shaken, clock: ShiftedClock) -> None:
    fleet = shaken.start(workers=3, lease=SHORT_LEASE)
    fleet.hold("ends later")
    workers = fleet.workers()
    fleet.client.enqueue_many(timed("soon", 2 + n / 20) for n in range(20))
    with Producer(shaken.server.url, shaken.namespace) as producer:
        producer.wait_for(LOAD)
        jump(shaken, clock, -HOUR)
        fleet.client.enqueue_many(timed("meanwhile", 1 + n / 20) for n in range(20))
        time.sleep(1.4 * LEASE_SECONDS)
        producer.wait_for(LOAD)
        fleet.wait_for("end", 20, label="meanwhile")
        assert not fleet.journal(label="soon"), "started an hour early, by the only clock there is"
        jump(shaken, clock, 0)
        fleet.wait_for("end", 20, label="soon")
        producer.wait_for(LOAD)
    fleet.release("ends later")
    fleet.wait_for("end", label="ends later")
    wait_until_all_ran(fleet, producer)
    nothing_was_early(fleet)
    assert not extra_runs(fleet)
    assert fleet.workers() == workers
    nothing_was_requeued(fleet)
