"""Each command that a fleet sends loses a reply: the server receives the request, but the reply does not arrive.
Everything must still take effect exactly once.
"""

import os
import signal
from collections.abc import Callable

import pytest

import rota
from rota import Call
from support.fleets import RunningFleet
from support.server_fixtures import SHORT_LEASE, Shaken, everything_ended_once, extra_runs
from support.waiting import until

NOTES = 200
BILLS = 30  # the number of tasks with a rate of 20 starts per second
MOST_ROUNDS = 40  # several rounds may be needed, because it is random which tasks a claim takes
EACH_PERIOD = ("promote", "sweep", "renew", "announce")  # the scripts that a fleet calls at regular intervals


def lose(shaken: Shaken, script: str) -> None:
    """Arrange that the next reply to this script is lost, and wait until it has been lost."""
    before = shaken.link.lost[script]
    shaken.link.lose_replies(1, of=script)
    until(lambda: shaken.link.lost[script] > before, f"a lost reply of {script}")


def finish(shaken: Shaken, fleet: RunningFleet) -> None:
    """Let the link work again, and check that every task ends exactly once."""
    shaken.link.heal()
    everything_ended_once(fleet)


def test_lost_replies_to_periodic_scripts_have_no_effect(shaken: Shaken) -> None:
    fleet = shaken.start_behind_link(lease=SHORT_LEASE)
    fleet.client.enqueue_many(Call("note", ["due"], queue="default", delay=n / 50) for n in range(NOTES))
    for script in EACH_PERIOD:
        lose(shaken, script)
    fleet.wait_for("end", NOTES, label="due")
    finish(shaken, fleet)


def test_lost_replies_to_claims_and_acks_run_no_task_twice(shaken: Shaken) -> None:
    fleet = shaken.start_behind_link()
    # The first lost reply belongs to the turn behind a BLPOP, which claims the task. The second belongs to the turn
    # that settles the task.
    for number in range(3):
        label = f"alone{number}"
        shaken.link.lose_replies(1, of="turn")
        fleet.hold(label)
        shaken.link.lose_replies(1, of="turn")
        fleet.release(label)
        until(lambda: shaken.link.lost["turn"] >= 2 * (number + 1), "two lost replies")  # noqa: B023 - called in here
    fleet.client.enqueue_many(Call("note", ["many"], queue="default") for _ in range(NOTES))
    for _ in range(5):
        lose(shaken, "turn")
    fleet.client.enqueue_many(Call("note", ["many"], queue="default") for _ in range(NOTES))
    fleet.wait_for("end", 2 * NOTES, label="many")
    finish(shaken, fleet)
    assert not fleet.log("worker.lost")


def test_a_lost_reply_to_mark_started_starts_no_at_most_once_task_twice(shaken: Shaken) -> None:
    fleet = shaken.start_behind_link(workers=1)
    fleet.client.enqueue_many(Call("once", ["many"], queue="default") for _ in range(NOTES))
    for _ in range(5):
        lose(shaken, "mark_started")
    fleet.wait_for("end", NOTES, label="many")
    finish(shaken, fleet)
    assert len(fleet.journal("start")) == NOTES
    assert not fleet.log("task.stale")


def test_a_lost_reply_to_throttle_does_not_count_as_an_attempt(shaken: Shaken) -> None:
    """The lost reply may have permitted the task to start, or may have delayed the task. Neither counts as an
    attempt.
    """
    fleet = shaken.start_behind_link(workers=2)
    fleet.client.enqueue_many(Call("bill", ["one", "bill"], queue="default") for _ in range(BILLS))
    for _ in range(5):
        lose(shaken, "throttle")
    fleet.wait_for("end", BILLS, label="bill")
    finish(shaken, fleet)
    assert len(fleet.journal("start")) == BILLS
    assert {line.crashes for line in fleet.journal("start")} == {0}


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "silent"])
def test_a_lost_reply_to_an_enqueue_creates_only_one_task(shaken: Shaken, cut: bool) -> None:
    fleet = shaken.start()
    with rota.Client(shaken.link.url, shaken.namespace, timeout_seconds=0.5) as client:
        shaken.link.lose_replies(1, of="enqueue", cut=cut)
        now = client.enqueue("note", args=["now"], queue="default")
        shaken.link.lose_replies(1, of="enqueue", cut=cut)
        later = client.enqueue("note", args=["later"], queue="default", delay=0.2)
    fleet.wait_for("end", id=now.id)
    fleet.wait_for("end", id=later.id)
    fleet.wait_until_nothing_waits(30)
    assert shaken.link.lost["enqueue"] == 2
    assert len(fleet.journal("start")) == 2
    assert fleet.books_balance()


def test_an_owner_whose_registration_reply_was_lost_expires(shaken: Shaken) -> None:
    fleet = shaken.start_behind_link(workers=1, lease=SHORT_LEASE)
    fleet.edit(workers=2)
    shaken.link.lose_replies(1, of="register")
    fleet.hup()
    fleet.until_workers(2)
    assert shaken.link.lost["register"] == 1
    owners = f"{{{shaken.namespace}}}:owners"
    until(lambda: shaken.redis.zcard(owners) == 2, "the end of the third")
    fleet.client.enqueue_many(Call("note", ["after"], queue="default") for _ in range(NOTES))
    fleet.wait_for("end", NOTES, label="after")
    finish(shaken, fleet)


def test_a_lost_reply_to_reap_charges_the_crash_only_once(shaken: Shaken) -> None:
    fleet = shaken.start_behind_link()
    first = fleet.hold("killed")
    shaken.link.lose_replies(1, of="reap")
    os.kill(first.pid, signal.SIGKILL)
    _, second = fleet.wait_for("start", 2, label="killed")
    until(lambda: shaken.link.lost["reap"] == 1, "the lost reply")
    assert (second.id, second.crashes) == (first.id, 1)
    fleet.release("killed")
    fleet.until_workers(2)
    fleet.wait_until_nothing_waits(30)
    assert extra_runs(fleet) == {first.id: 1}
    assert fleet.books_balance()


def hold_up_until(fleet: RunningFleet, happened: Callable[[], object]) -> None:
    """Repeatedly enqueue a long task among short tasks until `happened` returns true. In each round, all short tasks
    must end while the long task is still running.
    """
    behind = 0
    for number in range(MOST_ROUNDS):
        label = f"long{number}"
        notes: list[Call[None]] = [Call("note", ["note"], queue="default") for _ in range(NOTES)]
        fleet.client.enqueue_many([*notes, Call("hold", [label], queue="default"), *notes[:20]])
        fleet.wait_for("start", label=label)
        behind += NOTES + 20
        fleet.wait_for("end", behind, label="note")
        fleet.release(label)
        if happened():
            return
    raise AssertionError("the long task was not claimed before others in any of these rounds")


def test_prefetched_tasks_are_returned_once_even_if_the_reply_is_lost(shaken: Shaken) -> None:
    fleet = shaken.start_behind_link()
    shaken.link.lose_replies(1, of="return_prefetched")
    hold_up_until(fleet, lambda: shaken.link.lost["return_prefetched"])
    finish(shaken, fleet)


def test_a_lost_request_to_return_prefetched_tasks_is_repeated(shaken: Shaken) -> None:
    # The worker waits for a reply for at most a quarter of the lease, which is 2 s here.
    fleet = shaken.start_behind_link(lease={"seconds": 8.0})
    swallowed: list[int] = []

    def swallow_one(name: str, is_reply: bool, port: int) -> bool:
        if name != "return_prefetched" or is_reply or swallowed:
            return True
        swallowed.append(port)
        return False

    shaken.link.gate = swallow_one
    hold_up_until(fleet, lambda: swallowed)
    finish(shaken, fleet)
