"""The inspection and control of tasks and queues: status, cancel, pause, resume, and revive."""

from datetime import UTC, datetime, timedelta

import pytest

import rota
from rota.client.blocking.client import Client
from rota.durations import utc_datetime
from rota.protocol.outcome import DeadOutcome, Done, RetryOutcome, ran_by, run_record_of
from rota.protocol.replies import CancelStatus
from rota.protocol.task_states import State
from support.protocol import Fleet, one_tier

SERVING = one_tier("q")


def test_status_follows_a_task_from_schedule_to_end(client: Client, fleet: Fleet) -> None:
    before = datetime.now(UTC)
    handle = client.enqueue("work", queue="q", id="a", delay=600)
    status = handle.status()
    assert (status.state, status.queue, status.name, status.attempt) == (State.SCHEDULED, "q", "work", 1)
    assert status.due_at is not None
    assert before + timedelta(seconds=590) < status.due_at < before + timedelta(seconds=660)

    fleet.redis.zadd(fleet.keys.delayed, {"a": 1.0})
    fleet.promote()
    assert handle.status().state is State.READY
    owner = fleet.register()
    [claim] = fleet.turn(owner, SERVING).claims
    status = handle.status()
    assert (status.state, status.owner, status.attempt) == (State.RUNNING, owner, 1)

    fleet.turn(owner, SERVING, (claim, RetryOutcome(600_000_000)), limit=0)
    status = handle.status()
    assert (status.state, status.failures, status.attempt) == (State.SCHEDULED, 1, 2)

    fleet.redis.zadd(fleet.keys.delayed, {"a": 1.0})
    fleet.promote()
    [claim] = fleet.turn(owner, SERVING).claims
    fleet.turn(owner, SERVING, (claim, Done()), limit=0)
    status = handle.status()
    assert (status.state, status.failures, status.attempt, status.owner) == (State.DONE, 1, 2, owner)


def test_the_status_of_an_ended_task_has_time_node_and_duration(client: Client, fleet: Fleet) -> None:
    client.enqueue("work", queue="q", id="a", delay=600)
    fleet.redis.zadd(fleet.keys.delayed, {"a": 1.0})
    fleet.promote()
    owner = fleet.register()
    [claim] = fleet.turn(owner, SERVING).claims
    started_us = claim.entry.due_us + 1_500_000
    run = run_record_of(started_us, 2_500_000, ran_by(77, "work"))
    fleet.turn(owner, SERVING, (claim, Done()), limit=0, run=run)
    status = client.status("a", args=True)
    assert (status.state, status.name, status.queue, status.attempt) == (State.DONE, "work", "q", 1)
    assert (status.node, status.pid, status.run_seconds, status.lag_seconds) == ("node", 77, 2.5, 1.5)
    assert (status.started_at, status.due_at) == (utc_datetime(started_us), utc_datetime(claim.entry.due_us))
    assert status.ended_at is not None
    assert abs(status.ended_at.timestamp() - fleet.now_us() / 1e6) < 60
    assert (status.has_result, status.result_refused, status.args, status.kwargs) == (False, "", None, None)


def test_the_status_of_a_task_never_shows_a_start_after_its_end(client: Client, fleet: Fleet) -> None:
    """A worker reports the latest possible time of the start. If the worker's turn takes long to reach the server, the
    reported time is later than the end of the task.
    """
    client.enqueue("work", queue="q", id="a")
    owner = fleet.register()
    [claim] = fleet.turn(owner, SERVING).claims
    run = run_record_of(fleet.now_us() + 60_000_000, 1_000_000, ran_by(77, "work"))
    fleet.turn(owner, SERVING, (claim, Done()), limit=0, run=run)
    status = client.status("a")
    assert status.ended_at is not None
    assert status.started_at == status.ended_at - timedelta(seconds=1)


def test_arguments_are_returned_on_request(client: Client) -> None:
    client.enqueue("work", args=[1, "b"], kwargs={"c": None}, queue="q", id="a")
    assert (client.status("a").args, client.status("a").kwargs) == (None, None)
    asked = client.status("a", args=True)
    assert (asked.args, asked.kwargs) == ([1, "b"], {"c": None})


def test_the_status_of_an_unknown_id_lists_possible_reasons(client: Client) -> None:
    status = client.status("nobody", args=True)
    assert (status.state, status.error, status.args) == (State.UNKNOWN, "", None)
    assert "never enqueued" in status.why


def test_the_status_of_a_purged_task_is_cancelled_with_the_reason(client: Client, fleet: Fleet) -> None:
    handle = client.enqueue("work", queue="q")
    fleet.run(fleet.store.purge("q"))
    status = handle.status()
    assert (status.state, status.name, status.attempt, status.run_seconds) == (State.CANCELLED, "work", 0, None)
    assert "purged" in status.why


@pytest.mark.parametrize(
    "text",
    [
        "\na a",
        "\na \n 0 0 0 -",
        "\n!1 done\na q i 1 1 0 0 0 0 -\n 0 0 0 -",
        "\n!1 odd 1 -\na q i 1 1 0 0 0 0 -\n 0 0 0 -",
        "\n!1 done x -\na q i 1 1 0 0 0 0 -\n 0 0 0 -",
        "\n!1 done 1 -\na q i 99999999999999999999 1 0 0 0 0 -\n 0 0 0 -",
        "\n!1 done 99999999999999999999 -\na q i 1 1 0 0 0 0 -\n 0 0 0 -",
        "\n!1 done 1 -\na q i 1 1 0 0 0 0 -\n 0 0 0",
        "\n!1 done 1 -\na q i 1 1 0 0 0 0 -",
        "\n!1 done 1 -\na q z 1 1 0 0 0 0 -\n 0 0 0 -",
    ],
)
def test_the_status_of_a_task_is_unknown_if_the_record_of_its_end_is_invalid(
    client: Client, fleet: Fleet, text: str
) -> None:
    fleet.redis.set(fleet.keys.ends, text)
    status = client.status("a")
    assert status.state is State.UNKNOWN
    assert status.error or status.why


def test_the_status_of_a_dead_task_has_the_reason_and_it_can_be_revived(client: Client, fleet: Fleet) -> None:
    handle = client.enqueue("work", queue="q", id="a")
    owner = fleet.register()
    [claim] = fleet.turn(owner, SERVING).claims
    fleet.turn(owner, SERVING, (claim, DeadOutcome(b'{"why":"no such address"}')), limit=0)
    status = handle.status()
    assert (status.state, status.name) == (State.DEAD, "work")
    assert status.death is not None
    assert status.death["why"] == status.error == "no such address"
    assert handle.cancel() is CancelStatus.DEAD
    assert client.revive("a")
    assert handle.status().state is State.READY
    assert not client.revive("a")


def test_status_returns_every_error_and_never_raises(client: Client, fleet: Fleet) -> None:
    assert client.status("nobody").state is State.UNKNOWN
    odd = client.status("{no} name")
    assert odd.state is State.UNKNOWN
    assert "not valid" in odd.error
    assert "id must be a string" in client.status(7).error  # type: ignore[arg-type]  # that is the claim
    fleet.redis.set(fleet.keys.tasks, "text")
    assert "refused" in client.status("a").error


def test_status_shows_a_task_whose_body_cannot_be_read(client: Client, fleet: Fleet) -> None:
    fleet.redis.hset(fleet.keys.tasks, "a", "garbage")
    assert client.status("a").name == ""


@pytest.mark.parametrize("delay", [0, 600])
def test_a_waiting_task_is_cancelled_and_never_claimed(client: Client, fleet: Fleet, delay: float) -> None:
    handle = client.enqueue("work", queue="q", delay=delay)
    assert handle.cancel() is CancelStatus.CANCELLED
    assert (handle.status().state, handle.status().owner) == (State.CANCELLED, "")
    assert fleet.claim(fleet.register(), SERVING) == []


def test_cancelling_a_running_task_marks_it_for_its_worker(client: Client, fleet: Fleet) -> None:
    client.enqueue("work", queue="q", id="a")
    owner = fleet.register()
    assert fleet.claim(owner, SERVING) == ["a"]
    assert client.cancel("a") is CancelStatus.RUNNING
    assert fleet.run(fleet.store.renew(20_000, [owner])).cancelled == set(fleet.inflight_entries(owner))


@pytest.mark.parametrize("kill_after", [0, -1, float("nan"), timedelta(0)])
def test_an_invalid_kill_after_is_refused(client: Client, kill_after: float) -> None:
    with pytest.raises(ValueError, match="kill_after must be"):
        client.cancel("a", kill_after=kill_after)


def test_an_unknown_task_cannot_be_cancelled(client: Client) -> None:
    assert client.cancel("nobody") is CancelStatus.UNKNOWN
    with pytest.raises(rota.InvalidName, match="id 'a b'"):
        client.cancel("a b")


def test_a_paused_queue_is_not_claimed_from(client: Client, fleet: Fleet) -> None:
    client.enqueue("work", queue="q", id="a")
    owner = fleet.register()
    assert client.pause("q")
    assert not client.pause("q")
    assert fleet.claim(owner, SERVING) == []
    assert client.resume("q")
    assert not client.resume("q")
    assert fleet.claim(owner, SERVING) == ["a"]
    with pytest.raises(rota.InvalidName):
        client.pause("q-delayed")
