"""The open waits of a client: which queries the client sends for them, and when each wait ends."""

import pytest

from rota.client.waits import Goal, OpenWaits, TaskQuery, Wait
from rota.protocol.store import BATCH
from rota.protocol.views import TaskState

DONE = TaskState("done")
UNKNOWN = TaskState("unknown")
END_OF_A = TaskQuery(Goal.END, "a")


def opened(*queries: TaskQuery) -> tuple[OpenWaits, list[Wait]]:
    """Return waits for these queries. Each query was sent once, and its reply ended no wait."""
    waits = [Wait(query) for query in queries]
    open_waits = OpenWaits()
    for wait in waits:
        open_waits.add(wait)
    pending = open_waits.next_queries()
    open_waits.resolve(pending, [None] * len(pending))
    return open_waits, waits


def has_ended(wait: Wait) -> bool:
    return wait.sleep(0.0)


def test_each_new_wait_of_a_client_is_queried_once() -> None:
    open_waits = OpenWaits()
    for _ in range(2):
        open_waits.add(Wait(END_OF_A))
    assert list(open_waits.next_queries()) == [END_OF_A]
    open_waits.resolve({END_OF_A: ""}, [None])
    assert not open_waits.next_queries()


def test_all_waits_for_an_ended_task_are_resolved_and_no_others() -> None:
    end_of_b = TaskQuery(Goal.END, "b")
    open_waits, waits = opened(END_OF_A, END_OF_A, end_of_b)
    open_waits.resolve({END_OF_A: "", end_of_b: ""}, [DONE, None])
    assert [has_ended(wait) for wait in waits] == [True, True, False]
    assert waits[0].found == DONE
    assert len(open_waits) == 1


def test_a_notification_about_a_task_queries_every_wait_for_it() -> None:
    queries = [TaskQuery(goal, "a") for goal in Goal]
    open_waits, _ = opened(*queries, TaskQuery(Goal.END, "b"))
    open_waits.wake("done", "a")
    open_waits.wake("done", "nobody")
    assert open_waits.next_queries() == dict.fromkeys(queries, "done")


def test_the_notification_provides_the_end_of_a_task_that_redis_forgot() -> None:
    open_waits, [wait] = opened(END_OF_A)
    open_waits.wake("expired", "a")
    open_waits.resolve(open_waits.next_queries(), [UNKNOWN])
    assert wait.found == TaskState("expired")


@pytest.mark.parametrize("word", ["started", "no word of ours", ""])
def test_start_notifications_and_unknown_ones_do_not_report_the_end_of_a_task(word: str) -> None:
    open_waits, [wait] = opened(TaskQuery(Goal.START, "a"))
    open_waits.wake(word, "a")
    open_waits.resolve(open_waits.next_queries(), [UNKNOWN])
    assert wait.found == UNKNOWN


def test_wait_queries_that_the_reply_omits_are_sent_again() -> None:
    end_of_b = TaskQuery(Goal.END, "b")
    open_waits, _ = opened(END_OF_A, end_of_b)
    for task_id in ("a", "b"):
        open_waits.wake("done", task_id)
    open_waits.resolve(open_waits.next_queries(), [DONE])
    assert open_waits.next_queries() == {end_of_b: "done"}


def test_one_call_contains_at_most_as_many_wait_queries_as_a_script_accepts() -> None:
    open_waits = OpenWaits()
    for number in range(BATCH + 1):
        open_waits.add(Wait(TaskQuery(Goal.END, str(number))))
    queries = open_waits.next_queries()
    assert len(queries) == BATCH
    open_waits.resolve(queries, [None] * BATCH)
    assert list(open_waits.next_queries()) == [TaskQuery(Goal.END, str(BATCH))]


def test_a_wait_that_timed_out_is_not_queried_again() -> None:
    open_waits, [wait] = opened(END_OF_A)
    assert not has_ended(wait)
    open_waits.query_all()
    assert not open_waits.next_queries()
    assert len(open_waits) == 0


def test_an_open_wait_is_queried_again_with_its_notification() -> None:
    open_waits, _ = opened(END_OF_A)
    open_waits.wake("done", "a")
    open_waits.query_all()
    assert open_waits.next_queries() == {END_OF_A: "done"}


def test_giving_up_a_wait_ends_it_without_a_result() -> None:
    open_waits, [wait] = opened(END_OF_A)
    open_waits.give_up("closed")
    assert has_ended(wait)
    assert wait.found is None
