"""Tasks that are enqueued at the head of their lane."""

import pytest

from rota.protocol.new_tasks import FRONT, Enqueued, NewTask
from rota.protocol.outcome import RetryOutcome
from support.clock import TimedFleet
from support.protocol import SECOND_US, body_of, one_tier

Q = one_tier("q")


def front(task_id: str, due: str = "", key: str = "") -> NewTask:
    return NewTask(task_id, "q", body_of(task_id), due + FRONT, key)


def test_of_tasks_enqueued_at_the_front_the_latest_is_claimed_first(timed: TimedFleet) -> None:
    timed.push("a", "b")
    timed.enqueue(front("c"))
    timed.enqueue(front("d"), NewTask("e", "q", body_of("e")), front("f"))
    assert timed.lane() == ["f", "d", "c", "a", "b", "e"]
    owner = timed.register()
    assert timed.claim(owner, Q, limit=3) == ["f", "d", "c"]


def test_the_delayed_lane_is_served_before_front_tasks(timed: TimedFleet) -> None:
    timed.push("late", due="+1")
    timed.enqueue(front("a"))
    timed.clock_us += SECOND_US
    timed.promote()
    assert timed.claim(timed.register(), Q, limit=2) == ["late", "a"]


def test_a_delayed_front_task_is_promoted_to_the_head(timed: TimedFleet) -> None:
    due = timed.clock_us + SECOND_US
    timed.push("a", due=f"@{due}")
    timed.enqueue(front("b", f"@{due + 1}"), front("c", f"@{due + 2}", key="k"))
    timed.push("d", due=f"@{due + 3}")
    timed.clock_us += 2 * SECOND_US
    promoted = timed.promote()
    assert promoted.moved == {"q": 4}
    assert timed.delayed_lane() == ["c", "b", "a", "d"]
    assert timed.redis.hlen(timed.keys.tickets) == 0
    assert timed.redis.hgetall(timed.keys.counts)["delayed:q"] == "0"
    claim = timed.turn(timed.register(), Q).claims[0]
    assert (claim.entry.due_us, claim.entry.ready_us, claim.entry.flag) == (due + 2, promoted.now_us, "u")


def test_the_retry_of_a_task_enqueued_at_the_front_goes_to_the_back(timed: TimedFleet) -> None:
    timed.enqueue(front("a", "+1"))
    timed.clock_us += 5
    timed.promote()
    owner = timed.register()
    claim = timed.turn(owner, Q).claims[0]
    timed.push("b", due="+1")
    timed.clock_us += 5
    timed.promote()
    timed.turn(owner, Q, (claim, RetryOutcome(0)), limit=0)
    timed.promote()
    assert timed.delayed_lane() == ["b", "a"]


def test_a_delayed_front_task_can_be_listed_counted_and_cancelled(timed: TimedFleet) -> None:
    timed.enqueue(front("a", "+9000000"), front("b", "+9000000", key="k"))
    assert timed.run(timed.store.status("a")).state == "scheduled"
    assert {task.id for task in timed.run(timed.store.peek("scheduled", "q", "", 0, 9)).tasks} == {"a", "b"}
    timed.run(timed.store.heal("0"))
    assert timed.redis.hgetall(timed.keys.counts)["delayed:q"] == "2"
    timed.run(timed.store.cancel("b"))
    assert timed.enqueue(front("c", key="k")) == [Enqueued()]
    assert timed.run(timed.store.audit()).missing == 0


@pytest.mark.parametrize("due", ["^^", "+^", "^+5", "@^", "x^"])
def test_a_task_with_an_invalid_due_time_is_ready_at_once(timed: TimedFleet, due: str) -> None:
    timed.enqueue(NewTask("a", "q", body_of("a"), due))
    assert timed.lane() == ["a"]
