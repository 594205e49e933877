"""Rates of queues and of tasks if every start is late. The starts keep the average rate, and never exceed its limit.
The tests advance the clock.
"""

import random
from collections.abc import Callable, Iterator

import pytest

from model.items import slack_us
from rota.protocol.outcome import DONE
from rota.protocol.tiers import QueueShare
from rota.protocol.turns import RateRequest, ThrottleStatus
from rota.tasks.options import Rate, parse_rate
from support.clock import TimedFleet
from support.protocol import SECOND_US, tiers

StartsOf = Callable[[TimedFleet, Rate], list[int]]
STARTS = 120
RATES = ("1/s", "2/s", "5/s", "8/s", "10/s", "19/s", "20/s", "100/s", "1000/s", "30/m")


def lateness(rate: Rate) -> Iterator[int]:
    """Yield a delay in microseconds for each start. The delays are random, but the same in each run. They are shorter
    than the slack of the rate, so later starts can make up for them.
    """
    numbers, most = random.Random(7), slack_us(*rate)
    while True:
        yield numbers.randrange(most)


def starts_of_queue(fleet: TimedFleet, rate: Rate) -> list[int]:
    """Run the waiting tasks of a queue with this rate. The worker claims them late. Returns the time of each start."""
    serving, owner, late = (
        tiers([QueueShare("q", interval_us=rate.interval_us, burst=rate.burst)]),
        fleet.register(),
        lateness(rate),
    )
    fleet.push(*map(str, range(STARTS)))
    starts: list[int] = []
    while len(starts) < STARTS:
        reply = fleet.turn(owner, serving)
        starts += [fleet.clock_us] * len(reply.claims)
        fleet.turn(owner, serving, *((claim, DONE) for claim in reply.claims), limit=0)
        if not reply.claims:
            fleet.clock_us += reply.wait_us + next(late)
    return starts


def starts_of_task(fleet: TimedFleet, rate: Rate) -> list[int]:
    """Run waiting tasks to which this rate applies, in a queue without a rate. Tasks that have to wait for the rate are
    promoted late. Returns the time of each start.
    """
    serving, owner, late = tiers([QueueShare("q")]), fleet.register(), lateness(rate)
    fleet.push(*map(str, range(STARTS)))
    starts: list[int] = []
    while len(starts) < STARTS:
        for claim in fleet.turn(owner, serving).claims:
            status, us = fleet.run(fleet.store.throttle(owner, RateRequest(claim.entry.text, "r", *rate)))
            if status is ThrottleStatus.START:
                starts.append(fleet.clock_us + us)
                fleet.turn(owner, serving, (claim, DONE), limit=0)
        due_us = fleet.promote().next_due_us
        if due_us is not None and not fleet.lane() + fleet.delayed_lane():
            fleet.clock_us = max(fleet.clock_us, due_us + next(late))
    return starts


@pytest.mark.parametrize("text", RATES)
@pytest.mark.parametrize("starts_of", [starts_of_queue, starts_of_task])
def test_late_starts_keep_the_average_rate_and_never_exceed_it(
    timed: TimedFleet, text: str, starts_of: StartsOf
) -> None:
    rate = parse_rate(text)
    starts, slack = starts_of(timed, rate), slack_us(*rate)
    assert starts[-1] - starts[0] <= 1.005 * (STARTS - 1) * rate.interval_us + slack
    for number, first in enumerate(starts):
        assert all(at - first >= k * rate.interval_us - slack for k, at in enumerate(starts[number:]))


def test_a_very_late_start_is_not_followed_by_extra_starts(timed: TimedFleet) -> None:
    serving, owner = tiers([QueueShare("q", interval_us=SECOND_US // 10)]), timed.register()
    timed.push(*map(str, range(10)))
    assert len(timed.turn(owner, serving).claims) == 1
    timed.clock_us += 10 * SECOND_US
    reply = timed.turn(owner, serving, held=timed.inflight(owner))
    assert len(reply.claims) == 1
    reply = timed.turn(owner, serving, held=timed.inflight(owner))
    assert 0.45 * SECOND_US / 10 < reply.wait_us <= SECOND_US / 10
