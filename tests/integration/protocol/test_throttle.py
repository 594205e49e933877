"""Tasks with their own rate: how many of them may start, and what happens to tasks that may not start yet."""

from collections import Counter
from typing import Any

import pytest

from model.items import slack_us
from rota.protocol.entry import Kind
from rota.protocol.new_tasks import NewTask
from rota.protocol.outcome import DONE, Done, Outcome, Release, RetryOutcome
from rota.protocol.turns import Claim, RateRequest, Throttled, ThrottleStatus
from support.clock import TimedFleet
from support.protocol import HELD_US, SECOND_US, Fleet, body_of, one_tier

Q = one_tier("q")
TENTH_US = SECOND_US // 10
START, THROTTLED = ThrottleStatus.START, ThrottleStatus.THROTTLED


TENTH = RateRequest(b"", "r", TENTH_US, 1)


def throttle(fleet: TimedFleet, owner: str, claim: Claim, rate: RateRequest = TENTH, **differs: Any) -> Throttled:
    """Apply this rate to a claimed task. Returns whether and when it may start."""
    return fleet.run(fleet.store.throttle(owner, rate._replace(entry=claim.entry.text, **differs)))


def claim_one(fleet: TimedFleet, owner: str) -> Claim:
    [claim] = fleet.turn(owner, Q, held=fleet.inflight(owner)).claims
    return claim


class Work:
    """Workers that claim tasks and apply a rate to them. `starts` lists the tasks that were allowed to start, each with
    the time of its start by the clock of Redis.
    """

    def __init__(self, fleet: TimedFleet, interval_us: int = TENTH_US, burst: int = 1, workers: int = 3) -> None:
        self.fleet, self.interval_us, self.burst = fleet, interval_us, burst
        self.owners = [fleet.register(f"node:{number}") for number in range(workers)]
        self.starts: list[tuple[int, str]] = []
        self.asked: Counter[str] = Counter()

    def go_on(self, name: str = "r") -> bool:
        """Let each worker claim one task and apply the rate to it. Returns whether any worker found a task."""
        done = [self._step(owner, name) for owner in self.owners]
        return any(done)

    def _step(self, owner: str, name: str) -> bool:
        claims = self.fleet.turn(owner, Q).claims
        if not claims:
            return False
        [claim] = claims
        self.asked[claim.entry.id] += 1
        status, us = throttle(self.fleet, owner, claim, RateRequest(b"", name, self.interval_us, self.burst))
        if status is START:
            self.starts.append((self.fleet.clock_us + us, claim.entry.id))
            self.fleet.turn(owner, Q, (claim, DONE), limit=0)
        return True

    def run_out(self) -> None:
        """Run until no task is left. Tasks that had to wait are promoted when they are due."""
        while True:
            while self.go_on():
                pass
            reply = self.fleet.promote()
            if not reply.moved:
                if reply.next_due_us is None:
                    return
                self.fleet.clock_us = max(self.fleet.clock_us, reply.next_due_us)

    def check(self) -> None:
        """Check that no start is too early: the k-th start after any other start must come at least k intervals later,
        minus the permitted slack.
        """
        times = sorted(at for at, _ in self.starts)
        slack = slack_us(self.interval_us, self.burst)
        for number, first in enumerate(times):
            assert all(at - first >= k * self.interval_us - slack for k, at in enumerate(times[number:]))


@pytest.mark.parametrize(("interval_us", "burst"), [(TENTH_US, 1), (SECOND_US // 100, 10), (SECOND_US // 1000, 1)])
def test_throttled_tasks_start_in_order_and_each_waits_only_once(
    timed: TimedFleet, interval_us: int, burst: int
) -> None:
    timed.push(*(f"{number:03}" for number in range(60)))
    work = Work(timed, interval_us, burst)
    work.run_out()
    work.check()
    assert sorted(task_id for _, task_id in work.starts) == [f"{number:03}" for number in range(60)]
    assert max(work.asked.values()) == 2
    assert [task_id for _, task_id in sorted(work.starts)] == sorted(task_id for _, task_id in work.starts)
    length = max(at for at, _ in work.starts) - min(at for at, _ in work.starts)
    assert length < 61 * interval_us
    assert timed.run(timed.store.audit()).missing == 0


def test_tasks_promoted_late_are_throttled_at_most_once_more(timed: TimedFleet) -> None:
    timed.push(*(f"{number:03}" for number in range(40)))
    work = Work(timed)
    while work.go_on():
        pass
    timed.clock_us += 2 * SECOND_US  # time passes without a poller, so twenty tasks are due at the same time
    work.run_out()
    work.check()
    assert len(work.starts) == 40
    assert sum(work.asked.values()) <= 3 * 40


def test_throttled_tasks_do_not_delay_tasks_with_another_rate_or_none(timed: TimedFleet) -> None:
    timed.push(*(f"a{number}" for number in range(20)), "b", "plain")
    work = Work(timed, workers=1)
    for _ in range(20):
        work.go_on("account a")
    owner = work.owners[0]
    claim = claim_one(timed, owner)
    assert (claim.entry.id, throttle(timed, owner, claim, name="account b").status) == ("b", START)
    timed.turn(owner, Q, (claim, Done()), limit=0)
    assert claim_one(timed, owner).entry.id == "plain"
    assert [task_id for _, task_id in work.starts] == ["a0"]


def throttled(fleet: TimedFleet) -> tuple[str, Claim, Throttled]:
    """Let an owner start one task and claim another, which has to wait for the same rate. Returns the owner, the claim
    of the waiting task, and the reply of the rate's script about this task.
    """
    fleet.push("a", "b")
    owner = fleet.register()
    first = claim_one(fleet, owner)
    assert throttle(fleet, owner, first) == Throttled(START, 0)
    fleet.turn(owner, Q, (first, Done()), limit=0)
    second = claim_one(fleet, owner)
    answer = throttle(fleet, owner, second)
    assert answer.status is THROTTLED
    return owner, second, answer


def test_a_throttled_task_keeps_its_due_time_and_attempt_count(timed: TimedFleet) -> None:
    owner, claim, (_, until_us) = throttled(timed)
    assert timed.inflight(owner) == []
    assert timed.redis.hgetall(timed.keys.counts) == {"running:q": "0", "delayed:q": "1"}
    status = timed.run(timed.store.status("b"))
    assert (status.state, status.kind, status.due_us) == ("scheduled", "throttled", until_us)
    timed.clock_us = until_us
    now = timed.promote().now_us
    back = claim_one(timed, owner).entry
    assert (back.kind, back.due_us, back.ready_us) == (Kind.THROTTLED, claim.entry.due_us, now)
    assert (back.failures, back.crashes, back.losses, back.releases, back.flag) == (0, 0, 0, 0, "-")
    assert timed.redis.hgetall(timed.keys.tickets) == {}


def test_throttling_a_task_wakes_a_poller(timed: TimedFleet) -> None:
    timed.push("c")
    timed.redis.delete(timed.keys.poller_doorbell)
    timed.silence()
    throttled(timed)
    assert timed.redis.llen(timed.keys.poller_doorbell) == 1


def test_a_throttled_task_that_may_start_soon_is_held_and_not_put_back(timed: TimedFleet) -> None:
    timed.push("a", "b", "c")
    owner = timed.register()
    answers = [throttle(timed, owner, claim_one(timed, owner), interval_us=HELD_US - 10) for _ in range(3)]
    assert [status for status, _ in answers] == [START, START, THROTTLED]
    assert 0 < answers[1].us < HELD_US


def test_a_repeated_throttle_call_changes_nothing(timed: TimedFleet) -> None:
    owner, claim, _ = throttled(timed)
    before = timed.snapshot()
    assert throttle(timed, owner, claim) == Throttled(ThrottleStatus.GONE, 0)
    assert timed.turn(owner, Q, (claim, Release()), limit=0).stale == (claim.entry.text,)
    assert {key for key, digest in timed.snapshot().items() if before.get(key) != digest} <= {
        f"{{{timed.keys.namespace}}}:clock",
        timed.keys.doorbell("q"),
    }


def test_a_task_that_is_cancelled_or_not_held_is_not_throttled(timed: TimedFleet) -> None:
    owner, claim = timed.claimed("a")
    stranger = timed.register("node:2")
    assert throttle(timed, stranger, claim).status is ThrottleStatus.GONE
    timed.run(timed.store.cancel("a"))
    assert throttle(timed, owner, claim).status is ThrottleStatus.GONE
    timed.turn(owner, Q, (claim, Release()), limit=0)
    assert timed.run(timed.store.status("a")).state == "cancelled"
    assert not timed.redis.exists(timed.keys.rate("r"))


def test_a_task_that_would_expire_before_its_start_uses_up_no_rate(timed: TimedFleet) -> None:
    timed.push("a", "b", "c")
    owner = timed.register()
    assert throttle(timed, owner, claim_one(timed, owner)).status is START
    late = claim_one(timed, owner)
    assert throttle(timed, owner, late, latest_us=timed.clock_us + TENTH_US // 4) == Throttled(ThrottleStatus.LATE, 0)
    assert timed.inflight(owner) == ["a", "b"]
    until_us = throttle(timed, owner, claim_one(timed, owner), latest_us=timed.clock_us + SECOND_US).us
    assert until_us < timed.clock_us + TENTH_US


def test_a_cancelled_throttled_task_frees_its_unique_key(timed: TimedFleet) -> None:
    timed.enqueue(NewTask("a", "q", body_of("a")), NewTask("b", "q", body_of("b"), unique_key="k"))
    owner = timed.register()
    for _ in "ab":
        throttle(timed, owner, claim_one(timed, owner))
    assert timed.run(timed.store.cancel("b")) == "cancelled"
    assert not timed.redis.exists(timed.keys.unique("k"))
    assert timed.redis.hgetall(timed.keys.tickets) == {}
    assert timed.run(timed.store.audit()).missing == 0


@pytest.mark.parametrize("outcome", [RetryOutcome(0), Release()])
def test_a_throttled_task_can_be_retried_and_released(timed: TimedFleet, outcome: Outcome) -> None:
    """A retry starts like any other attempt, so the rate is applied again. A task that was given back keeps its
    reserved time.
    """
    owner, _, (_, until_us) = throttled(timed)
    timed.clock_us = until_us
    timed.promote()
    claim = claim_one(timed, owner)
    assert throttle(timed, owner, claim).status is START
    timed.turn(owner, Q, (claim, outcome), limit=0)
    timed.promote()
    again = claim_one(timed, owner)
    counters = again.entry.kind, again.entry.failures, again.entry.releases
    assert counters == ((Kind.RETRY, 1, 0) if isinstance(outcome, RetryOutcome) else (Kind.THROTTLED, 0, 1))
    assert throttle(timed, owner, again).status is THROTTLED


def test_a_throttled_task_is_not_charged_with_a_crash(timed: TimedFleet) -> None:
    owner, _, _ = throttled(timed)
    reaped = timed.exit(owner, ran=["b"])
    assert (reaped.requeued, reaped.dead) == ((), ())
    assert timed.run(timed.store.status("b")).crashes == 0


def test_throttling_a_task_removes_its_start_mark(timed: TimedFleet) -> None:
    timed.push("a", "b")
    owner = timed.register()
    throttle(timed, owner, claim_one(timed, owner))
    begun = timed.run(timed.store.mark_started(owner, claim_one(timed, owner).entry.text))
    answer = timed.run(timed.store.throttle(owner, RateRequest(begun, "r", TENTH_US, 1)))
    assert answer.status is THROTTLED
    timed.clock_us = answer.us
    timed.promote()
    assert claim_one(timed, owner).entry.flag == "-"


def test_the_key_of_a_rate_expires_when_it_no_longer_delays_a_start(fleet: Fleet) -> None:
    """A rate may apply to each of a million values of an argument, so the key of each value must expire."""
    owner, claim = fleet.claimed("a")
    asked = RateRequest(claim.entry.text, "r", 3600 * SECOND_US, 2)
    fleet.run(fleet.store.throttle(owner, asked))
    assert 3_500_000 < fleet.redis.pttl(fleet.keys.rate("r")) <= 3_600_001
    fleet.run(fleet.store.throttle(owner, asked))
    assert 7_100_000 < fleet.redis.pttl(fleet.keys.rate("r")) <= 7_200_001


def test_a_changed_rate_applies_from_the_next_call(timed: TimedFleet) -> None:
    """The waiting tasks keep the start times that the old rate gave them. The next task gets its start time from the
    new rate.
    """
    timed.push(*map(str, range(8)))
    owner = timed.register()
    hourly = [throttle(timed, owner, claim_one(timed, owner), interval_us=3600 * SECOND_US).us for _ in range(5)]
    assert hourly[-1] > timed.clock_us + 3 * 3600 * SECOND_US
    faster = throttle(timed, owner, claim_one(timed, owner)).us
    assert timed.clock_us < faster <= timed.clock_us + 5 * TENTH_US


@pytest.mark.parametrize("found", ["", "x", "1 2 3", "9" * 90, "99999999999999999 1 1 1", "1 1 1 0", "-1 2 3 4"])
def test_an_invalid_rate_key_is_ignored(timed: TimedFleet, found: str) -> None:
    timed.redis.set(timed.keys.rate("r"), found)
    throttled(timed)


def test_a_rate_key_of_another_type_is_replaced(timed: TimedFleet) -> None:
    timed.redis.rpush(timed.keys.rate("r"), "x")
    throttled(timed)


def test_a_clock_that_is_set_back_does_not_delay_throttled_tasks_for_long(timed: TimedFleet) -> None:
    owner, _, _ = throttled(timed)
    timed.run(timed.store.cancel("b"))
    timed.redis.delete(timed.keys.rate("r"))
    timed.push("c", "d")
    assert throttle(timed, owner, claim_one(timed, owner)).status is START
    timed.redis.set(timed.keys.rate("r"), f"{timed.clock_us + 3600 * SECOND_US} 0 0 {TENTH_US}")
    answer = throttle(timed, owner, claim_one(timed, owner))
    assert answer.us <= timed.clock_us + TENTH_US + HELD_US


def test_the_entries_of_throttled_tasks_stay_unique_if_the_clock_is_set_back(timed: TimedFleet) -> None:
    owner, _, (_, until_us) = throttled(timed)
    timed.clock_us = until_us
    timed.promote()
    claim = claim_one(timed, owner)
    timed.redis.set(timed.keys.rate("r"), f"{timed.clock_us + TENTH_US} 0 0 {TENTH_US}")
    timed.clock_us -= 60 * SECOND_US
    assert throttle(timed, owner, claim).us > claim.entry.ready_us
