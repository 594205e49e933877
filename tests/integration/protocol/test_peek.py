"""The script `peek`. It reads the tasks in a given state, one page at a time."""

import pytest

from rota.protocol.new_tasks import NewTask
from rota.protocol.outcome import DeadOutcome, RetryOutcome
from rota.protocol.store import BATCH
from rota.protocol.views import Peeked
from support.protocol import Fleet, one_tier

Q = one_tier("q", "other")
MANY = 100_000


def peek(fleet: Fleet, place: str, queue: str = "", task: str = "", *, offset: int = 0, count: int = BATCH) -> Peeked:
    return fleet.run(fleet.store.peek(place, queue, task, offset, count))


def ids(page: Peeked) -> list[str]:
    return [task.id for task in page.tasks]


def test_ready_tasks_are_shown_in_the_order_they_are_served(fleet: Fleet) -> None:
    fleet.push("c", "d")
    fleet.push("a", "b", due="+1000")
    fleet.push("elsewhere", queue="other")
    fleet.redis.zadd(fleet.keys.delayed, {"a": 1.0, "b": 2.0})
    fleet.promote()
    page = peek(fleet, "ready", "q")
    assert (ids(page), page.examined, page.next_offset) == (["a", "b", "c", "d"], 4, None)
    first = page.tasks[0]
    assert (first.queue, first.name, first.due_us, first.owner) == ("q", "work", 1_000_000, "")
    assert 0 < first.since_us <= page.now_us
    pages = [peek(fleet, "ready", "q", offset=offset, count=3) for offset in (0, 3)]
    assert [ids(page) for page in pages] == [["a", "b", "c"], ["d"]]
    assert [page.next_offset for page in pages] == [3, None]


def test_scheduled_tasks_are_shown_in_due_order(fleet: Fleet) -> None:
    fleet.push("late", due="+9000000")
    fleet.push("soon", due="+5000000", queue="other")
    fleet.redis.zadd(fleet.keys.delayed, {'["bare","q","write",[]]': 4_000_000_000})
    page = peek(fleet, "scheduled")
    assert [(task.id, task.queue, task.name) for task in page.tasks] == [
        ("soon", "other", "work"), ("late", "q", "work"), ("bare", "q", "write"),
    ]  # fmt: skip
    assert page.tasks[2].due_us == 4_000_000_000_000_000
    assert ids(peek(fleet, "scheduled", "q")) == ["late", "bare"]
    assert ids(peek(fleet, "scheduled", task="write")) == ["bare"]


def test_running_tasks_are_shown_with_owner_and_progress(fleet: Fleet) -> None:
    fleet.push("a", "b", "c")
    owners = [fleet.register(), fleet.register("node:2")]
    [first] = fleet.turn(owners[0], Q).claims
    fleet.turn(owners[1], Q, limit=2)
    fleet.run(fleet.store.store_progress([(owners[0], first.entry.text, b"1 2 3 rows")]))
    fleet.run(fleet.store.cancel("b"))  # this task is still running, because its worker has not been notified yet
    page = peek(fleet, "running")
    assert sorted((task.id, task.owner) for task in page.tasks) == [
        ("a", owners[0]),
        ("b", owners[1]),
        ("c", owners[1]),
    ]
    assert [task.detail for task in page.tasks if task.detail] == [b"1 2 3 rows"]
    pages = [peek(fleet, "running", count=1, offset=offset) for offset in (0, 1)]
    assert [len(page.tasks) for page in pages] in ([1, 2], [2, 1]), "an owner is shown whole"
    assert [page.next_offset for page in pages] == [1, None]


def test_dead_tasks_are_shown_latest_first_with_their_death_record(fleet: Fleet) -> None:
    owner = fleet.register()
    for task_id in ("a", "b"):
        fleet.push(task_id)
        [claim] = fleet.turn(owner, Q).claims
        fleet.turn(owner, Q, (claim, RetryOutcome(0, b'{"reason":"failed"}')), limit=0)
        fleet.promote()
        [claim] = fleet.turn(owner, Q).claims
        fleet.turn(owner, Q, (claim, DeadOutcome(b'{"reason":"retries"}')), limit=0)
    page = peek(fleet, "dead")
    assert ids(page) == ["b", "a"]
    assert (page.tasks[0].detail, page.tasks[0].failures, page.tasks[0].name) == (b'{"reason":"retries"}', 2, "work")


def test_cancelled_tasks_and_tombstones_are_not_shown(fleet: Fleet) -> None:
    fleet.push("a", "b", "c")
    for task_id in ("a", "b"):
        fleet.run(fleet.store.cancel(task_id))
    fleet.push("a")
    page = peek(fleet, "ready", "q")
    assert (ids(page), page.examined) == (["c", "a"], 4)


@pytest.mark.parametrize("place", ["ready", "scheduled", "running", "dead"])
def test_peek_shows_invalid_items_and_continues(fleet: Fleet, place: str) -> None:
    owner = fleet.register()
    garbage = ["\xff", "a b c", "[" * 2000, '["write",[1]]', '["x\x1b","q\x1b","n\x1b",[]]']
    for number, text in enumerate(garbage):
        fleet.redis.rpush(fleet.keys.ready_lane("q"), text)
        fleet.redis.zadd(fleet.keys.delayed, {text: number})
        fleet.redis.zadd(fleet.keys.dead, {text: number})
        fleet.redis.rpush(fleet.keys.inflight(owner), text)
    page = peek(fleet, place, "q" if place == "ready" else "")
    assert page.examined == len(page.tasks) == len(garbage)
    assert "write" in [task.name for task in page.tasks]
    assert all(task.name.isprintable() for task in page.tasks)


def test_peek_reads_a_page_at_the_same_cost_with_100000_waiting_tasks(fleet: Fleet) -> None:
    """The cost is the number of commands that the server has counted, including commands that scripts run."""
    costs = []
    for first, last in ((0, 10), (10, MANY)):
        for start in range(first, last, BATCH):
            numbers = range(start, min(start + BATCH, last))
            fleet.enqueue(*(NewTask(f"r{n}", "q", b'["r","q","work",[]]') for n in numbers))
            fleet.enqueue(*(NewTask(f"s{n}", "q", b'["s","q","work",[]]', f"@{4 * 10**15 + n}") for n in numbers))
        before = fleet.commands()
        pages = [peek(fleet, "ready", "q", count=10), peek(fleet, "scheduled", count=10)]
        costs.append(fleet.commands() - before)
        assert [ids(page) for page in pages] == [[f"{letter}{n}" for n in range(10)] for letter in "rs"]
    assert costs[0] == costs[1]
    assert ids(peek(fleet, "ready", "q", offset=MANY - 5)) == [f"r{n}" for n in range(MANY - 5, MANY)]
