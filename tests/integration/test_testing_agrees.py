"""`rota.testing.capture` replies to calls in the same way as a real server."""

from dataclasses import replace

import pytest

import rota
from rota.testing import capture
from support.servers import Server


@rota.task(name="agreeing", queue="images", retries=3)
def agreeing(number: int) -> None:
    del number


@rota.task(name="agreeing_once", unique=True)
def agreeing_once(number: int) -> None:
    del number


def _story(client: rota.Client) -> list[object]:
    """Enqueue tasks in several ways, and return the client's view of these tasks before any worker runs them."""
    seen: list[object] = []

    def note(handle: rota.Handle[None]) -> None:
        status = handle.status()
        told = (status.state, status.queue, status.name, status.kind, status.attempt, status.failures)
        seen.append((handle.duplicate, handle.id == first.id, told, status.due_at is None, status.ready_at is None))

    first = agreeing.using(client=client, id="first").enqueue(1)
    note(first)
    note(agreeing.using(client=client, id="first", delay=60).enqueue(2))
    later = agreeing.using(client=client, delay=60).enqueue(3)
    note(later)
    held = [agreeing_once.using(client=client).enqueue(number) for number in (1, 1, 2)]
    for handle in held:
        note(handle)
    assert held[0].id == held[1].id
    seen.append([later.cancel(), later.cancel(), client.cancel("nobody")])
    note(later)
    seen.append(later.wait(timeout=5).state)
    seen.append(held[0].cancel())
    note(held[0])
    seen.append(agreeing_once.using(client=client).enqueue(1).duplicate)
    note(client.enqueue(rota.Call("foreign", [1], queue="q", front=True)))
    seen.append(client.status("nobody").state)
    many = client.enqueue_many([agreeing.using(id="first").call(4), agreeing.using(id="new").call(5)])
    seen.append([handle.duplicate for handle in many])
    seen += _story_of_groups(client)
    return seen


def _story_of_groups(client: rota.Client) -> list[object]:
    chain = client.enqueue(rota.chain(agreeing.using(id="link").call(1), agreeing.using(id="next").call(2)))
    again = client.enqueue(rota.chain(agreeing.using(id="link").call(1), agreeing.using(id="next").call(2)))
    seen: list[object] = [chain.ids, chain.status().id, again.ids, again.duplicate]
    members = [agreeing.using(id="one").call(1), agreeing.using(id="first").call(2), agreeing_once.call(9)]
    group = client.enqueue(rota.group(members, then=agreeing.using(id="then", delay=60).call(3), id="g"))
    added = group.add([agreeing.using(id="more").call(4), agreeing_once.call(9)])
    seen += [[each.duplicate for each in added], replace(group.status(), opened_at=None)]
    seen += [client.cancel("one"), group.status().cancelled, client.enqueue(rota.group(members, id="g")).duplicate]
    seen += [client.map(agreeing, [1, 2], id="m").status().total, client.group("m").cancel(), group.status().left]
    seen += [client.group("nobody").status(), client.group("nobody").cancel(), client.group("m").status().state]
    return seen


def test_rota_testing_capture_replies_like_a_real_server(server: Server, namespace: str) -> None:
    with rota.Client(server.url, namespace) as client:
        told = _story(client)
    with capture():
        assert _story(rota.Client("redis://nowhere.invalid")) == told


@pytest.mark.parametrize("goal", ["wait", "wait_started", "result"])
def test_capture_and_server_reply_alike_about_an_id_never_enqueued(server: Server, namespace: str, goal: str) -> None:
    def reply_of(client: rota.Client) -> object:
        try:
            return getattr(client, goal)("nobody", timeout=5)
        except rota.ResultNotStored as error:
            return str(error)

    with rota.Client(server.url, namespace) as client:
        told = reply_of(client)
    with capture():
        assert reply_of(rota.Client("redis://nowhere.invalid")) == told
