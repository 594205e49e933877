"""The client's behavior if the server is unreachable, full or silent, or if the connection breaks in the middle of a
call.
"""

import itertools
import pickle
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import pytest
import redis

import rota
from rota.client.blocking.client import Client
from rota.client.command_replies import Exchange, NotReplied, Reply
from rota.protocol.store import BATCH
from support.faulty_link import FaultyLink
from support.protocol import Fleet
from support.servers import Server, free_port

T = TypeVar("T")


@pytest.fixture(name="client")
def _client(link: FaultyLink, namespace: str) -> Iterator[Client]:
    with Client(link.url, namespace, timeout_seconds=0.5) as client:
        client.enqueue("warm", queue="warm")  # afterwards, the server knows the script
        yield client


@contextmanager
def refusing_server(refusal: str) -> Iterator[str]:
    """Yield the URL of a server that replies to every command with this error."""

    class Refuse(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while header := self.rfile.readline():
                for _ in range(2 * int(header[1:])):
                    self.rfile.readline()
                self.wfile.write(f"-{refusal}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refuse) as refusing:
        thread = threading.Thread(target=refusing.serve_forever, args=(0.01,))
        thread.start()
        yield f"redis://127.0.0.1:{refusing.server_address[1]}/0"
        refusing.shutdown()
        thread.join()


def call(task_id: str) -> rota.Call:
    return rota.Call("work", queue="q", id=task_id)


def test_the_error_about_a_missing_server_does_not_show_the_password(namespace: str) -> None:
    port = free_port()
    with Client(f"redis://user:secret@127.0.0.1:{port}/0", namespace) as client:
        with pytest.raises(
            rota.Unavailable, match=f"Redis at redis://user:\\*\\*\\*@127.0.0.1:{port}/0 is not reachable: Connection"
        ) as caught:
            client.enqueue(call("a"))
        assert isinstance(caught.value, ConnectionError)
        assert "secret" not in str(caught.value)
        status = client.status("a")
        assert status.state == "unknown"
        assert "is not reachable" in status.error


def test_a_wrong_password_raises_unavailable(server: Server, namespace: str) -> None:
    with (
        Client(server.url.replace("redis://", "redis://nobody:wrong@"), namespace) as client,
        pytest.raises(
            rota.Unavailable,
            match=r"check the user and the password in redis_url, and the permissions \(ACL\) of that user on the "
            r"server",
        ),
    ):
        client.enqueue(call("a"))


REFUSALS = {
    "LOADING Redis is loading the dataset in memory": "Redis is loading",
    "BUSY Redis is busy running a script": "Redis is busy",
    "MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk": "unable to persist",
    "READONLY You can't write against a read only replica": "read only replica: set redis_url (or ROTA",
    "NOPERM this user has no permissions to run the 'evalsha' command": "no permissions to run",
    "NOAUTH Authentication required": "it needs a password: put it into redis_url (or ROTA_REDIS_URL), as in redis://:PASSWORD@HOST:PORT/0",
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_of_the_server_raises_unavailable(refusal: str) -> None:
    with refusing_server(refusal) as url, Client(url) as client:
        with pytest.raises(rota.Unavailable) as caught:
            client.enqueue(call("a"))
        assert REFUSALS[refusal] in str(caught.value)
        assert not isinstance(caught.value, rota.ServerFull)


def test_an_invalid_url_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="is not a Redis URL"):
        Client("http://localhost")
    with pytest.raises(ValueError, match="has the option 'retry_on_timeout'"):
        Client("redis://localhost?retry_on_timeout=yes")


def test_an_enqueue_raises_server_full_if_the_server_has_no_memory_left(
    server: Server, namespace: str, redis_client: "redis.Redis"
) -> None:
    with Client(server.url, namespace) as client:
        client.enqueue(call("before"))
        redis_client.config_set("maxmemory", 1)
        try:
            with pytest.raises(rota.ServerFull, match="its memory is full"):
                client.enqueue(call("full"))
            assert client.status("before").state == "ready"
        finally:
            redis_client.config_set("maxmemory", 0)
        assert not client.enqueue(call("full")).duplicate


def test_a_key_of_the_wrong_type_raises_unavailable_and_changes_nothing(
    server: Server, fleet: Fleet, namespace: str
) -> None:
    fleet.redis.set(fleet.keys.tasks, "text")
    with Client(server.url, namespace) as client, pytest.raises(rota.Unavailable, match="refused"):
        client.enqueue(call("a"))
    assert set(fleet.redis.scan_iter(match=f"{{{namespace}}}*")) == {fleet.keys.meta, fleet.keys.tasks}


def test_enqueues_succeed_after_the_script_cache_was_flushed(server: Server, fleet: Fleet, namespace: str) -> None:
    with Client(server.url, namespace) as client:
        for task_id in ("a", "b"):
            fleet.redis.script_flush()
            client.enqueue(call(task_id))
        fleet.redis.script_flush()
        client.enqueue_many([call(f"c-{number}") for number in range(3 * BATCH)])
    assert len(fleet.lane()) == 2 + 3 * BATCH


def records(fleet: Fleet) -> list[str]:
    """Return the keys in which the server records recent enqueues. After a lost reply, the record lets the client
    repeat its enqueue without adding a task twice.
    """
    return list(fleet.redis.scan_iter(match=fleet.keys.sent("*")))


def test_a_lost_reply_is_recovered_with_the_same_nonce(client: Client, link: FaultyLink, fleet: Fleet) -> None:
    client.enqueue(call("first"))  # the client checks the task name only with the first call
    before = link.requests
    link.lose_replies(1)
    handle = client.enqueue(call("a"))
    assert (handle.id, handle.duplicate) == ("a", False)
    assert link.requests == before + 2
    assert fleet.lane() == ["first", "a"]


def test_a_client_keeps_a_separate_record_of_each_call_without_a_reply(
    client: Client, link: FaultyLink, fleet: Fleet
) -> None:
    before = len(records(fleet))
    for number in range(3):
        client.enqueue(call(f"t{number}"))
    assert len(records(fleet)) == before
    link.lose_replies(2)
    with pytest.raises(rota.Uncertain) as caught:
        client.enqueue(call("a"))
    for number in range(3):
        client.enqueue(call(f"u{number}"))
    assert client.cancel("a") == "cancelled"
    assert [(handle.id, handle.duplicate) for handle in caught.value.repeat()] == [("a", False)]
    assert client.status("a").state == "cancelled"
    assert len(records(fleet)) == before + 1


def test_an_enqueue_without_a_reply_is_sent_again_on_a_new_connection(
    client: Client, link: FaultyLink, fleet: Fleet
) -> None:
    # All four calls run at the same time, because each reply is delayed. Therefore, each call uses its own connection.
    with ThreadPoolExecutor(4) as pool:
        link.delay(0.05)
        list(pool.map(client.enqueue, map(call, "1234")))
        link.heal()
    before = len(link.attempts)
    assert before > 1
    link.lose_replies(1, cut=False)
    assert not client.enqueue(call("a")).duplicate
    assert len(link.attempts) == before + 1
    assert fleet.lane().count("a") == 1


def test_an_enqueue_raises_uncertain_with_its_ids_after_two_lost_replies(
    client: Client, link: FaultyLink, fleet: Fleet
) -> None:
    link.lose_replies(2)
    with pytest.raises(rota.Uncertain, match=r"did not reply.*may have been accepted: repeat") as caught:
        client.enqueue(rota.Call("work", queue="q"))
    assert isinstance(caught.value, TimeoutError)
    assert fleet.lane() == [caught.value.id] == list(caught.value.ids)
    assert client.enqueue(call(caught.value.id)).duplicate
    assert fleet.lane() == [caught.value.id]


def test_an_enqueue_raises_uncertain_if_the_server_goes_after_it_was_sent(
    client: Client, link: FaultyLink, fleet: Fleet
) -> None:
    link.refuse()
    link.lose_replies(1)
    with pytest.raises(rota.Uncertain) as caught:
        client.enqueue(call("a"))
    assert caught.value.ids == ("a",)
    assert fleet.lane() == ["a"]


def test_a_silent_server_counts_as_a_lost_connection(client: Client, link: FaultyLink, fleet: Fleet) -> None:
    link.lose_replies(1, cut=False)
    assert client.enqueue(call("a")).id == "a"
    assert fleet.lane() == ["a"]
    link.lose_replies(2, cut=False)
    with pytest.raises(rota.Uncertain, match="did not reply"):
        client.enqueue(call("b"))


def test_the_uncertain_error_lists_accepted_and_uncertain_ids(
    client: Client, link: FaultyLink, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The client sends these tasks in two rounds: one of 4,000 tasks, and one of a single batch.
    ids = tuple(f"t-{number}" for number in range(8 * BATCH + 100))
    exchange = client._driver.pool.exchange
    rounds = itertools.count(1)

    def exchange_losing_the_second_round(asked: Exchange[T]) -> list[Reply[T]]:
        if next(rounds) >= 2:  # the replies to the second round and to its repetition are lost
            link.lose_replies(1)
        return exchange(asked)

    monkeypatch.setattr(client._driver.pool, "exchange", exchange_losing_the_second_round)
    with pytest.raises(rota.Uncertain) as caught:
        client.enqueue_many(map(call, ids))
    assert caught.value.accepted == ids[: 8 * BATCH]
    assert caught.value.ids == ids[8 * BATCH :]
    assert len(fleet.lane()) == len(ids)


def test_calls_other_than_enqueue_are_never_repeated(client: Client, link: FaultyLink) -> None:
    client.enqueue(call("a"))
    client.cancel("unknown")  # afterwards, the server knows this script too
    before = link.requests
    link.lose_replies(1)
    with pytest.raises(rota.Uncertain) as caught:
        client.cancel("a")
    assert caught.value.id == "a"
    assert link.requests == before + 1
    assert client.status("a").state == "cancelled"
    with pytest.raises(ValueError, match="only an enqueue can be repeated"):
        caught.value.repeat()


def uncertain(client: Client, link: FaultyLink, *ids: str) -> rota.Uncertain:
    link.lose_replies(2)
    with pytest.raises(rota.Uncertain) as caught:
        client.enqueue_many(map(call, ids))
    return caught.value


def test_repeating_an_uncertain_enqueue_adds_nothing_if_its_task_has_ended(
    client: Client, link: FaultyLink, fleet: Fleet
) -> None:
    doubt = uncertain(client, link, "a", "b")
    assert fleet.lane() == ["a", "b"]
    assert client.cancel("a") == "cancelled"
    handles = doubt.repeat()
    assert [(handle.id, handle.duplicate) for handle in handles] == [("a", False), ("b", False)]
    assert [handle.status().state for handle in handles] == ["cancelled", "ready"]
    assert fleet.lane() == ["a", "b"]


def test_repeating_an_uncertain_enqueue_that_never_arrived_enqueues_it(
    client: Client, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(asked: Exchange[T]) -> list[Reply[T]]:
        return [NotReplied("the way there was cut") for _ in asked.commands]

    monkeypatch.setattr(client._driver.pool, "exchange", lose)
    with pytest.raises(rota.Uncertain) as caught:
        client.enqueue(call("a"))
    monkeypatch.undo()
    assert fleet.lane() == []
    assert [handle.id for handle in caught.value.repeat()] == ["a"]
    assert fleet.lane() == ["a"]


def test_a_repeated_enqueue_without_a_reply_raises_uncertain_again(
    client: Client, link: FaultyLink, fleet: Fleet
) -> None:
    doubt = uncertain(client, link, "a")
    link.lose_replies(1)
    with pytest.raises(rota.Uncertain) as again:
        doubt.repeat()
    assert again.value.ids == ("a",)
    assert [handle.id for handle in again.value.repeat()] == ["a"]
    assert fleet.lane() == ["a"]


def test_an_uncertain_enqueue_cannot_be_repeated_too_late(
    client: Client, link: FaultyLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubt = uncertain(client, link, "a")
    before = link.requests
    monkeypatch.setattr("rota.client.sender.REPEAT_SECONDS", 0)
    with pytest.raises(rota.Uncertain, match="too late"):
        doubt.repeat()
    assert link.requests == before


def test_an_unpickled_uncertain_error_has_its_ids_but_cannot_be_repeated(client: Client, link: FaultyLink) -> None:
    doubt = pickle.loads(pickle.dumps(uncertain(client, link, "a")))
    assert (doubt.ids, doubt.accepted) == (("a",), ())
    with pytest.raises(ValueError, match="only by the process that sent it"):
        doubt.repeat()


def test_a_client_reconnects_to_a_restarted_server(tmp_path_factory: pytest.TempPathFactory, server: Server) -> None:
    own = Server(server.binary, tmp_path_factory.mktemp("own"), appendonly="yes", appendfsync="always").start()
    try:
        with Client(own.url, "restarted") as client:
            client.enqueue(call("a"))
            own.kill()
            with pytest.raises(rota.Unavailable):
                client.enqueue(call("b"))
            own.start()
            assert client.status("a").state == "ready"
            client.enqueue(rota.Call("work", queue="q", id="c", delay=timedelta(hours=1)))
            assert client.status("c").state == "scheduled"
    finally:
        own.stop()
