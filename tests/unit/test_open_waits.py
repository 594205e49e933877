"""What a client waits for: which waits are asked about, and who is told what."""

import pytest

from rota.client.waits import Goal, OpenWaits, Wait, WaitQuestion
from rota.protocol.store import BATCH
from rota.protocol.views import TaskState

DONE = TaskState("done")
UNKNOWN = TaskState("unknown")
END_OF_A = WaitQuestion(Goal.END, "a")


def opened(*questions: WaitQuestion) -> tuple[OpenWaits, list[Wait]]:
    """Waits that were asked about once, and have no end."""
    waits = [Wait(question) for question in questions]
    open_waits = OpenWaits()
    for wait in waits:
        open_waits.add(wait)
    asked = open_waits.next_questions()
    open_waits.answer(asked, [None] * len(asked))
    return open_waits, waits


def is_told(wait: Wait) -> bool:
    return wait.sleep(0.0)


def test_what_is_new_is_asked_about_once() -> None:
    open_waits = OpenWaits()
    for _ in range(2):
        open_waits.add(Wait(END_OF_A))
    assert list(open_waits.next_questions()) == [END_OF_A]
    open_waits.answer({END_OF_A: ""}, [None])
    assert not open_waits.next_questions()


def test_all_who_wait_for_the_same_are_told_and_no_others() -> None:
    end_of_b = WaitQuestion(Goal.END, "b")
    open_waits, waits = opened(END_OF_A, END_OF_A, end_of_b)
    open_waits.answer({END_OF_A: "", end_of_b: ""}, [DONE, None])
    assert [is_told(wait) for wait in waits] == [True, True, False]
    assert waits[0].found == DONE
    assert len(open_waits) == 1


def test_a_wake_up_has_every_wait_for_that_task_asked_about() -> None:
    questions = [WaitQuestion(goal, "a") for goal in Goal]
    open_waits, _ = opened(*questions, WaitQuestion(Goal.END, "b"))
    open_waits.wake("done", "a")
    open_waits.wake("done", "nobody")
    assert open_waits.next_questions() == dict.fromkeys(questions, "done")


def test_how_a_task_ended_is_known_by_its_wake_up_when_nothing_else_is() -> None:
    open_waits, [wait] = opened(END_OF_A)
    open_waits.wake("expired", "a")
    open_waits.answer(open_waits.next_questions(), [UNKNOWN])
    assert wait.found == TaskState("expired")


@pytest.mark.parametrize("word", ["started", "no word of ours", ""])
def test_a_start_says_nothing_of_the_end_nor_does_what_somebody_else_pushed(word: str) -> None:
    open_waits, [wait] = opened(WaitQuestion(Goal.START, "a"))
    open_waits.wake(word, "a")
    open_waits.answer(open_waits.next_questions(), [UNKNOWN])
    assert wait.found == UNKNOWN


def test_what_the_answer_had_no_room_for_is_asked_again_with_what_is_known() -> None:
    end_of_b = WaitQuestion(Goal.END, "b")
    open_waits, _ = opened(END_OF_A, end_of_b)
    for task_id in ("a", "b"):
        open_waits.wake("done", task_id)
    open_waits.answer(open_waits.next_questions(), [DONE])
    assert open_waits.next_questions() == {end_of_b: "done"}


def test_no_more_is_asked_at_once_than_a_script_takes() -> None:
    open_waits = OpenWaits()
    for number in range(BATCH + 1):
        open_waits.add(Wait(WaitQuestion(Goal.END, str(number))))
    asked = open_waits.next_questions()
    assert len(asked) == BATCH
    open_waits.answer(asked, [None] * BATCH)
    assert list(open_waits.next_questions()) == [WaitQuestion(Goal.END, str(BATCH))]


def test_a_wait_that_is_over_is_asked_about_no_more() -> None:
    open_waits, [wait] = opened(END_OF_A)
    assert not is_told(wait)
    open_waits.ask_all()
    assert not open_waits.next_questions()
    assert len(open_waits) == 0


def test_what_goes_on_is_asked_about_again_with_what_woke_it() -> None:
    open_waits, _ = opened(END_OF_A)
    open_waits.wake("done", "a")
    open_waits.ask_all()
    assert open_waits.next_questions() == {END_OF_A: "done"}


def test_who_is_given_up_is_told_nothing_and_sleeps_no_more() -> None:
    open_waits, [wait] = opened(END_OF_A)
    open_waits.give_up("closed")
    assert is_told(wait)
    assert wait.found is None
