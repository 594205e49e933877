"""The demo's proof: it must fail for whatever the demo claims not to have happened."""

import dataclasses

import pytest

from rota_supervisor.demo.books import FleetBooks, QueueNumbers
from rota_supervisor.demo.checks import Evidence, check_run
from rota_supervisor.demo.journal import Accepted, Mark, What

ACCEPTED = (
    Accepted("one", "send", "mail", sent_at=100.0, delay_seconds=0.0),
    Accepted("two", "send", "mail", sent_at=100.0, delay_seconds=5.0),
    Accepted("three", "build", "reports", sent_at=100.0, delay_seconds=0.0),
)


def mark(what: What, task_id: str, pid: int, at: float, due_at: float = 100.0) -> Mark:
    return Mark(what, task_id, "send", 1, pid, at, due_at)


MARKS = (
    mark(What.START, "one", 7, 101.0),
    mark(What.FAILED, "one", 7, 101.1),
    mark(What.START, "one", 8, 103.0, due_at=102.9),
    mark(What.DONE, "one", 8, 103.1),
    mark(What.START, "two", 7, 105.1, due_at=105.05),
    mark(What.DONE, "two", 7, 105.2),
    mark(What.START, "three", 9, 101.0),  # killed
    mark(What.START, "three", 10, 101.5),
    mark(What.DONE, "three", 10, 102.0),
)
BOOKS = FleetBooks(
    queues={
        "mail": QueueNumbers(0, 0, 0, accepted=2, done=2),
        "reports": QueueNumbers(0, 0, 0, accepted=1, done=1),
    },
    running=4,
    desired=4,
    restarts={("worker", "signal"): 1},
    recovered=1,
    early=0,
    missing=0,
)
GOOD = Evidence(ACCEPTED, MARKS, (MARKS[6],), BOOKS)


def failed(evidence: Evidence) -> dict[str, str]:
    """What did not hold, by name."""
    return {check.name: check.seen for check in check_run(evidence) if not check.ok}


def with_books(**changes: object) -> Evidence:
    return dataclasses.replace(GOOD, books=dataclasses.replace(BOOKS, **changes))  # type: ignore[arg-type]  # any field


def with_marks(*more: Mark) -> Evidence:
    return dataclasses.replace(GOOD, marks=(*MARKS, *more))


def test_a_run_with_a_retry_and_a_killed_worker_holds() -> None:
    assert failed(GOOD) == {}


def test_a_task_that_was_never_done_is_named() -> None:
    lost = dataclasses.replace(GOOD, marks=MARKS[:-1])

    assert failed(lost)["every task ran"] == "1 of 3 never done: build three"


def test_a_task_that_was_never_started_is_named() -> None:
    more = Accepted("four", "send", "mail", 100.0, 0.0)

    assert "send four" in failed(dataclasses.replace(GOOD, accepted=(*ACCEPTED, more)))["every task ran"]


def test_a_run_that_produced_nothing_shows_nothing() -> None:
    nothing = dataclasses.replace(BOOKS, queues={}, restarts={}, recovered=0)

    assert "every task ran" in failed(Evidence((), (), (), nothing))


def test_a_task_done_twice_is_named() -> None:
    twice = with_marks(mark(What.START, "one", 8, 104.0), mark(What.DONE, "one", 8, 104.1))

    assert "send one" in failed(twice)["none ran twice"]


def test_an_attempt_cut_short_is_excused_for_the_killed_worker_only() -> None:
    other_worker = dataclasses.replace(GOOD, kills=(dataclasses.replace(MARKS[6], pid=77),))
    other_task = with_marks(mark(What.START, "two", 9, 105.05, due_at=105.05))

    assert "none ran twice" in failed(other_worker)
    assert "send two" in failed(other_task)["none ran twice"]


@pytest.mark.parametrize(
    ("at", "due_at"),
    [(104.99, 100.0), (105.01, 105.02)],
    ids=["before it was promised", "before its due time"],
)
def test_an_early_start_is_named(at: float, due_at: float) -> None:
    marks = [entry for entry in MARKS if entry.task_id != "two"]
    early = (*marks, mark(What.START, "two", 7, at, due_at), mark(What.DONE, "two", 7, 106.0))

    assert "send two" in failed(dataclasses.replace(GOOD, marks=early))["none started early"]


def test_an_early_start_that_the_fleet_counted_fails() -> None:
    assert failed(with_books(early=1)).keys() == {"none started early"}


def test_a_run_of_a_task_that_nobody_sent_fails() -> None:
    stranger = with_marks(mark(What.START, "x", 7, 101.0), mark(What.DONE, "x", 7, 101.0))

    assert "send x" in failed(stranger)["none from nowhere"]


def test_a_short_audit_fails_and_so_does_none() -> None:
    assert failed(with_books(missing=1)) == {"audit": "1 missing in Redis"}
    assert failed(with_books(missing=None)).keys() == {"audit"}


@pytest.mark.parametrize("queues", [{}, {"mail": QueueNumbers(0, 0, 0, 4, 3)}, {"mail": QueueNumbers(0, 0, 0, 3, 2)}])
def test_counts_that_disagree_with_the_journals_fail(queues: dict[str, QueueNumbers]) -> None:
    assert failed(with_books(queues=queues)).keys() == {"the counts agree"}


def test_a_kill_that_the_fleet_did_not_count_fails() -> None:
    assert failed(with_books(restarts={})).keys() == {"kill noticed"}
    assert failed(with_books(recovered=0)).keys() == {"kill noticed"}


def test_a_fault_names_some_tasks_and_not_thousands() -> None:
    many = tuple(Accepted(str(number), "send", "mail", 100.0, 0.0) for number in range(1000))
    seen = failed(Evidence(many, (), (), BOOKS))["every task ran"]

    assert seen == "1000 of 1,000 never done: send 0, send 1, send 2, ..."
