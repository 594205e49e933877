"""The times of an attempt by the Redis clock. Lag is never understated, and an early start is never overlooked."""

import pytest

from rota.child.child_process import Fence, fence_ns
from rota.child.slot_memory import SlotMemory
from rota.protocol.entry import parse_entry
from rota.worker.loop_state import ENDLESS, Span, span_of
from rota.worker.redis_times import Anchor, RedisClock, times_of

# The Redis clock showed 1,000,000 us at a moment when the worker's clock was between 5 ms and 7 ms.
ANCHOR = Anchor(1_000_000, 5_000_000, 7_000_000)


def test_lag_is_the_sum_of_promotion_lag_and_queue_wait() -> None:
    entry = parse_entry(b"a q d 400000 600000 0 0 0 0 -")
    times = times_of(entry, ANCHOR, 9_000_000)
    assert times.start_us == 1_004_000
    assert times.lag_seconds == pytest.approx(0.604)
    assert times.promotion_lag_seconds == pytest.approx(0.2)
    assert times.wait_seconds == pytest.approx(0.404)
    assert not times.early


def test_an_immediate_task_has_no_promotion_lag() -> None:
    assert times_of(parse_entry(b"a q i 1 1 0 0 0 0 -"), ANCHOR, 9_000_000).promotion_lag_seconds is None


def test_a_start_that_may_have_been_early_counts_as_early() -> None:
    entry = parse_entry(b"a q d 1003000 1003000 0 0 0 0 -")
    times = times_of(entry, ANCHOR, 9_000_000)  # the Redis time is between 1,002,000 and 1,004,000 us
    assert times.early
    assert times.lag_seconds == pytest.approx(0.001)


def test_lag_is_never_negative() -> None:
    assert times_of(parse_entry(b"a q d 2000000 2000000 0 0 0 0 -"), ANCHOR, 9_000_000).lag_seconds == 0.0


def test_the_worker_stops_itself_shortly_before_its_lease_ends() -> None:
    slot = SlotMemory.create(1).slot(0)
    fence = Fence(slot, lease_seconds=20.0)
    slot.renewed_ns = 100 * 10**9
    assert not fence.is_up(118 * 10**9)
    assert fence.is_up(119 * 10**9)
    slot.renewed_ns = 119 * 10**9
    assert not fence.is_up(119 * 10**9)
    assert fence_ns(20.0) == 18 * 10**9


@pytest.mark.parametrize(("random", "request_at"), [(0.0, 100), (0.999, 91), (0.5, 95)])
def test_workers_request_recycling_at_random_counts_below_max_tasks(random: float, request_at: int) -> None:
    assert span_of(100, 0.1, random) == Span(request_at, 100)


def test_without_max_tasks_a_worker_never_requests_recycling() -> None:
    assert span_of(0, 0.1, 0.5) is ENDLESS
    assert span_of(1, 1.0, 0.999) == Span(1, 1)


MINUTE_NS = 60 * 10**9


def test_a_delayed_reply_uses_the_clock_reading_of_an_immediate_reply() -> None:
    clock = RedisClock()
    clock.from_immediate_reply(now_us=1_000_000, sent_ns=5_000_000, received_ns=7_000_000)
    # Both clocks have advanced by ten seconds since the first reading. This turn was sent four seconds before its reply
    # arrived.
    anchor = clock.from_delayed_reply(now_us=11_000_000, sent_ns=6_000_000_000, received_ns=10_006_000_000)
    assert anchor == Anchor(11_000_000, 10_005_000_000, 10_006_000_000)


@pytest.mark.parametrize("now_us", [1, 99_000_000])
def test_after_a_change_of_the_redis_clock_lag_counts_from_the_actual_send(now_us: int) -> None:
    clock = RedisClock()
    clock.from_immediate_reply(now_us=1_000_000, sent_ns=5_000_000, received_ns=7_000_000)
    anchor = clock.from_delayed_reply(now_us, sent_ns=6_000_000_000, received_ns=10_006_000_000)
    assert anchor == Anchor(now_us, 6_000_000_000, 10_006_000_000)


def test_a_reading_of_the_redis_clock_is_used_for_a_minute() -> None:
    clock = RedisClock()
    assert not clock.is_good(5)
    clock.from_immediate_reply(now_us=1_000_000, sent_ns=5, received_ns=7)
    assert clock.is_good(MINUTE_NS)
    assert not clock.is_good(MINUTE_NS + 7)


def test_the_more_precise_of_two_clock_readings_within_a_minute_is_used() -> None:
    clock = RedisClock()
    clock.from_immediate_reply(now_us=1_000_000, sent_ns=5_000_000, received_ns=7_000_000)
    clock.from_immediate_reply(
        now_us=3_000_000, sent_ns=1_005_000_000, received_ns=2_007_000_000
    )  # this reply arrived a second late
    anchor = clock.from_delayed_reply(now_us=11_000_000, sent_ns=6_000_000_000, received_ns=10_006_000_000)
    assert anchor.sent_ns == 10_005_000_000


def test_a_clock_reading_that_contradicts_the_known_one_replaces_it() -> None:
    clock = RedisClock()
    clock.from_immediate_reply(now_us=1_000_000, sent_ns=5_000_000, received_ns=7_000_000)
    clock.from_immediate_reply(
        now_us=90_000_000, sent_ns=1_005_000_000, received_ns=1_007_000_000
    )  # the server's clock was set
    anchor = clock.from_delayed_reply(now_us=99_000_000, sent_ns=6_000_000_000, received_ns=10_006_000_000)
    assert anchor.sent_ns == 10_005_000_000
