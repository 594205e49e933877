"""Following task events in an application: the position at which it starts, the selection of events, the time limit,
and the connection.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import redis

import rota
from rota.client.blocking.client import Client
from rota.protocol.new_tasks import NewTask
from rota.protocol.nodes import Announced
from rota.protocol.outcome import Done
from support.faulty_link import FaultyLink
from support.protocol import Fleet, one_tier
from support.servers import Server
from support.waiting import repeating, until

KEPT = 1000
Q = one_tier("q")


def enable_events(fleet: Fleet) -> None:
    fleet.run(fleet.store.announce("node", b"{}", 60_000, ["q"], Announced(events=KEPT)))


@pytest.fixture
def followed(fleet: Fleet) -> Fleet:
    enable_events(fleet)
    return fleet


def ids(client: Client, after: str | None = "0", **wanted: str) -> list[str]:
    """Return the task ids of all stored events that match `wanted`."""
    return [event.task_id for event in client.events(after, timeout=0, **wanted)]


def test_stored_events_come_in_order_before_new_ones(followed: Fleet, client: Client) -> None:
    for start in (0, 350):  # each of the two calls adds more events than one page contains
        followed.push(*(f"a{number}" for number in range(start, start + 350)))
    with client.events("0", timeout=30) as events:
        assert [next(events).task_id for _ in range(700)] == [f"a{number}" for number in range(700)]
        followed.push("late")
        event = next(events)
    assert (event.event, event.task_id, event.queue, event.task) == ("enqueued", "late", "q", "work")


def test_without_a_position_only_later_events_are_returned(followed: Fleet, client: Client) -> None:
    followed.push("before")
    with client.events(timeout=30) as events:
        followed.push("after")
        assert next(events).task_id == "after"


def test_a_reader_can_continue_at_the_position_of_another(followed: Fleet, client: Client) -> None:
    followed.push("a", "b", "c")
    with client.events("0") as events:
        assert [next(events).task_id for _ in range(2)] == ["a", "b"]
        position = events.position
    assert ids(client, position) == ["c"]


def test_the_position_of_a_reader_moves_past_events_that_its_filter_skips(followed: Fleet, client: Client) -> None:
    followed.push("mine")
    followed.push("other", queue="elsewhere")
    with client.events("0", queue="q", timeout=0) as events:
        assert [event.task_id for event in events] == ["mine"]
        assert ids(client, events.position) == []


def test_events_can_be_filtered_by_queue_and_task(followed: Fleet, client: Client) -> None:
    followed.push("a")
    followed.push("b", queue="elsewhere")
    followed.enqueue(NewTask("c", "q", b'["c","q","other",[]]'))
    assert ids(client, queue="elsewhere") == ["b"]
    assert ids(client, task="other") == ["c"]
    assert ids(client, queue="q", task="work") == ["a"]


def test_iteration_ends_after_its_timeout_without_events(followed: Fleet, client: Client) -> None:
    with client.events(queue="q", timeout=0.3) as events, repeating(lambda: followed.push("x", queue="other"), 0.01):
        assert list(events) == []


def test_reading_events_that_no_master_writes_raises_how_to_enable_them(fleet: Fleet, client: Client) -> None:
    with pytest.raises(rota.EventsOff, match="enabled = true"):
        client.events()
    enable_events(fleet)
    fleet.push("a")
    fleet.run(fleet.store.announce("node", b"{}", 60_000, []))
    assert ids(client) == ["a"]  # events that were stored earlier can still be read


def test_invalid_requests_are_refused(client: Client) -> None:
    for wanted in ({"queue": "no queue"}, {"task": "no task"}):
        with pytest.raises(rota.InvalidName, match="is not valid"):
            client.events(**wanted, timeout=0)
    with pytest.raises(ValueError, match="must be the id of an event"):
        client.events(5, timeout=0)  # type: ignore[arg-type]  # what a caller without types may do


@pytest.mark.parametrize("place", ["", "now", "$", "-", "1-", "1-2-3", "9" * 30])
def test_an_invalid_position_is_refused(client: Client, place: str) -> None:
    with pytest.raises(ValueError, match="must be the id of an event"):
        client.events(place)


@pytest.mark.parametrize("chosen", [{"queue": "q-delayed"}, {"queue": ""}, {"task": "a b"}])
def test_invalid_queue_and_task_names_are_refused(client: Client, chosen: dict[str, Any]) -> None:
    with pytest.raises(rota.InvalidName):
        client.events("0", **chosen)


def test_a_forked_child_continues_over_its_own_connection(followed: Fleet, client: Client) -> None:
    followed.push("a", "b")
    reader = client.events("0", timeout=0)
    assert next(reader).task_id == "a"
    before = len(followed.redis.client_list())
    (heard, told), (leave, left) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(left)
        os.write(told, " ".join(event.task_id for event in reader).encode())
        os.read(leave, 1)
        os._exit(0)
    assert os.read(heard, 100) == b"b"
    assert len(followed.redis.client_list()) == before + 1
    os.close(left)
    os.waitpid(child, 0)
    assert [event.task_id for event in reader] == ["b"]


def test_a_reader_that_fell_behind_gets_events_lost_and_can_continue(followed: Fleet, client: Client) -> None:
    followed.push("first")
    events = client.events("0")
    next(events)
    for batch in range(5):
        followed.push(*(f"{batch}-{number}" for number in range(500)))
    with pytest.raises(rota.EventsLost, match="no longer stored"):
        next(events)
    oldest: Any = followed.redis.xrange(followed.keys.events, count=1)
    assert next(events).id == oldest[0][0]
    events.close()


def test_a_position_after_the_end_of_the_stream_raises_events_lost(followed: Fleet, client: Client) -> None:
    """Such a position occurs after a failover to a replica that has not received the last writes."""
    followed.push("a")
    with client.events("99999999999999-0", timeout=0) as events:
        with pytest.raises(rota.EventsLost, match="lost its latest writes"):
            next(events)
        followed.push("b")
        assert [event.task_id for event in events] == ["b"]


def test_a_reader_continues_after_its_connection_is_killed(followed: Fleet, namespace: str, link: FaultyLink) -> None:
    with rota.Client(link.url, namespace) as client, client.events(timeout=30) as events:
        for number in range(3):
            link.cut()
            followed.push(f"a{number}")
            assert next(events).task_id == f"a{number}"


def heal_after(link: FaultyLink, attempts: int) -> None:
    until(lambda: len(link.attempts) > attempts, "tries to connect")
    link.heal()


def test_an_event_reader_continues_after_an_outage_and_misses_nothing(
    followed: Fleet, namespace: str, link: FaultyLink
) -> None:
    with rota.Client(link.url, namespace) as client, client.events(timeout=30) as events:
        link.refuse()
        link.cut()
        followed.push(*(f"a{number}" for number in range(20)))
        before = len(link.attempts)
        with ThreadPoolExecutor(1) as pool:
            healing = pool.submit(heal_after, link, before + 2)
            assert [next(events).task_id for _ in range(20)] == [f"a{number}" for number in range(20)]
        healing.result()


def test_an_outage_longer_than_the_timeout_is_an_error(followed: Fleet, namespace: str, link: FaultyLink) -> None:
    followed.push("a")
    with rota.Client(link.url, namespace) as client, client.events(timeout=0.2) as events:
        link.refuse()
        link.cut()
        with pytest.raises(rota.Unavailable):
            next(events)
        link.heal()
        followed.push("b")
        assert next(events).task_id == "b"


def test_a_reader_continues_after_a_restart_of_the_server(server: Server, tmp_path: Path) -> None:
    own = Server(server.binary, tmp_path, appendonly="yes", appendfsync="always").start()
    with ExitStack() as stack:
        stack.callback(own.stop)
        fleet = stack.enter_context(closing(Fleet(own, "restarted")))
        enable_events(fleet)
        events = stack.enter_context(stack.enter_context(rota.Client(own.url, "restarted")).events(timeout=30))
        fleet.push("a")
        assert next(events).event == "enqueued"
        own.kill()
        own.start()
        after = stack.enter_context(closing(Fleet(own, "restarted")))
        owner = after.register()
        after.turn(owner, Q, (after.turn(owner, Q).claims[0], Done()), limit=0)
        assert [next(events).event for _ in range(2)] == ["started", "done"]


@pytest.mark.usefixtures("followed")
def test_a_user_without_permission_to_wait_for_events_gets_an_error(
    server: Server, namespace: str, redis_client: "redis.Redis"
) -> None:
    redis_client.acl_setuser(
        "half", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-xread"], reset=True
    )
    url = server.url.replace("redis://", "redis://half:pw@")
    with rota.Client(url, namespace) as client, pytest.raises(rota.Unavailable, match=r"(?i)permission"):
        client.events()
    redis_client.acl_deluser("half")
