"""The confirmations for which an enqueue waits, depending on `durability`. The tests use a server with a replica, and a
server with an append-only file.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

import rota
from rota.client.blocking.client import Client
from rota.protocol.store import BATCH
from rota.server.session import Durability
from support.faulty_link import FaultyLink
from support.protocol import Fleet
from support.servers import Server
from support.waiting import until

SECONDS = 2.0  # the client waits for the replica for three quarters of this time, which is enough on a busy machine
HASTY_SECONDS = 0.8  # only for tests in which no confirmation ever arrives


@contextmanager
def replicated(server: Server, folder: Path) -> Iterator[tuple[Server, Server]]:
    """Yield another server of this kind and its replica. The replica takes a second to start."""
    folders = [folder / name for name in ("first", "second")]
    for each in folders:
        each.mkdir()
    first = Server(server.binary, folders[0], repl_diskless_sync_delay="0").start()
    second = Server(server.binary, folders[1], replicaof=f"127.0.0.1 {first.port}")
    try:
        second.start()
        with redis.Redis.from_url(first.url) as asking:
            until(lambda: asking.incr("written") and asking.wait(1, 100) == 1, "a replica that has all")
        yield first, second
    finally:
        first.stop()
        second.stop()


@pytest.fixture(name="pair", scope="module")
def _pair(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Yield a server and its replica. All tests that change neither of the two share this pair."""
    with replicated(server, tmp_path_factory.mktemp("pair")) as pair:
        yield pair


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Suspend the process of a replica during the block, so that the replica receives nothing."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def waiting(server: Server, namespace: str, durability: Durability = "wait", seconds: float = SECONDS) -> Client:
    return Client(server.url, namespace, durability=durability, timeout_seconds=seconds)


def call(task_id: str) -> rota.Call:
    return rota.Call("work", queue="q", id=task_id)


def test_with_durability_wait_an_enqueue_returns_once_a_replica_has_it(
    pair: tuple[Server, Server], namespace: str
) -> None:
    first, second = pair
    with waiting(first, namespace) as client, redis.Redis.from_url(second.url) as replica:
        client.enqueue(call("a"))
        assert replica.hexists(f"{{{namespace}}}:tasks", "a")
        ids = [f"many-{number}" for number in range(2 * BATCH)]
        assert [handle.id for handle in client.enqueue_many(map(call, ids))] == ids
        assert replica.hlen(f"{{{namespace}}}:tasks") == 1 + len(ids)


def test_with_durability_wait_an_async_enqueue_returns_once_a_replica_has_it(
    pair: tuple[Server, Server], namespace: str
) -> None:
    first, second = pair

    async def program() -> None:
        async with rota.AsyncClient(first.url, namespace, durability="wait", timeout_seconds=SECONDS) as client:
            await client.enqueue(call("a"))
            with redis.Redis.from_url(second.url) as replica:
                assert replica.hexists(f"{{{namespace}}}:tasks", "a")
            with stopped(second):
                with pytest.raises(
                    rota.Uncertain, match=r"has accepted .* no replica has the tasks .*await arepeat\(\)"
                ) as caught:
                    await client.enqueue(call("b"))
                assert (await client.status("b")).state == "ready", "looking waits for no confirmation"
            [handle] = await caught.value.arepeat()
            assert (handle.id, handle.duplicate) == ("b", False)

    asyncio.run(program())


def test_an_enqueue_that_no_replica_confirms_raises_a_repeatable_uncertain(
    pair: tuple[Server, Server], namespace: str
) -> None:
    first, second = pair
    fleet = Fleet(first, namespace)
    with waiting(first, namespace) as client:
        with stopped(second):
            with pytest.raises(
                rota.Uncertain, match=r"has accepted .* no replica has the tasks .*repeat\(\)"
            ) as caught:
                client.enqueue(call("a"))
            assert (caught.value.ids, caught.value.accepted) == (("a",), ())
            assert fleet.lane() == ["a"]
        [handle] = caught.value.repeat()
        assert (handle.id, handle.duplicate) == ("a", False)
        assert client.enqueue(call("a")).duplicate
    assert fleet.lane() == ["a"]
    fleet.close()


def test_repeating_an_enqueue_on_a_new_connection_does_not_confirm_it(
    pair: tuple[Server, Server], namespace: str
) -> None:
    first, second = pair
    with waiting(first, namespace, seconds=HASTY_SECONDS) as client, stopped(second):
        with pytest.raises(rota.Uncertain) as caught:
            client.enqueue(call("a"))
        client.close()
        with pytest.raises(rota.Uncertain, match="no replica has the tasks"):
            caught.value.repeat()
        client.close()
        with pytest.raises(rota.Uncertain, match="no replica has the tasks"):
            client.enqueue(call("a"))  # the task is already live, but no other server has it yet


def test_the_uncertain_error_separates_confirmed_from_unconfirmed_tasks(
    pair: tuple[Server, Server], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    # The client sends these tasks in two rounds: one of 4,000 tasks, and one of a single batch.
    ids = [f"t-{number}" for number in range(8 * BATCH + 100)]
    with waiting(first, namespace) as client:
        exchange = client._driver.pool.exchange
        rounds: list[int] = []

        def stopping_the_replica(*args: object) -> object:
            if rounds:
                os.kill(second.pid, signal.SIGSTOP)
            rounds.append(1)
            return exchange(*args)  # type: ignore[arg-type]  # passed on as it came

        monkeypatch.setattr(client._driver.pool, "exchange", stopping_the_replica)
        with pytest.raises(rota.Uncertain) as caught:
            client.enqueue_many(map(call, ids))
        os.kill(second.pid, signal.SIGCONT)
    assert list(caught.value.accepted) == ids[: 8 * BATCH]
    assert list(caught.value.ids) == ids[8 * BATCH :]
    assert len(rounds) == 2, "an enqueue without confirmation is not sent again by itself"


def test_an_enqueue_repeated_after_a_lost_reply_is_confirmed_too(pair: tuple[Server, Server], namespace: str) -> None:
    first, _ = pair
    with (
        FaultyLink(first.port) as link,
        Client(link.url, namespace, durability="wait", timeout_seconds=SECONDS) as client,
    ):
        client.enqueue(call("warm"))
        before = link.calls["wait"]
        link.lose_replies(1, of="wait")
        assert client.enqueue(call("a")).id == "a"
        assert link.calls["wait"] == before + 2  # the call was sent twice, each time with one WAIT


def test_an_enqueue_needs_confirmation_even_if_its_script_was_just_loaded(
    pair: tuple[Server, Server], namespace: str
) -> None:
    first, second = pair
    with waiting(first, namespace) as client, redis.Redis.from_url(first.url) as asking:
        client.enqueue(call("a"))
        asking.script_flush()
        client.close()
    hasty = waiting(first, namespace, seconds=HASTY_SECONDS)
    with hasty, stopped(second), pytest.raises(rota.Uncertain, match="no replica has the tasks"):
        hasty.enqueue(call("b"))


def test_an_enqueue_that_the_server_refuses_does_not_raise_uncertain(
    pair: tuple[Server, Server], namespace: str
) -> None:
    first, _ = pair
    with waiting(first, namespace) as client, redis.Redis.from_url(first.url) as asking:
        client.enqueue(call("a"))
        asking.config_set("maxmemory", "1")
        try:
            with pytest.raises(rota.ServerFull):
                client.enqueue(call("b"))
        finally:
            asking.config_set("maxmemory", "0")


def test_a_client_disconnects_from_a_primary_that_lost_its_replicas(
    server: Server, namespace: str, tmp_path: Path
) -> None:
    with (
        replicated(server, tmp_path) as (first, second),
        rota.Client(first.url, namespace) as client,
        redis.Redis.from_url(first.url) as asking,
    ):
        client.enqueue(call("a"))
        second.stop()
        until(lambda: asking.info("replication")["connected_slaves"] == 0, "the end of the replica")
        asking.config_set("min-replicas-to-write", "1")
        before = {each["id"] for each in asking.client_list()}
        with pytest.raises(rota.Unavailable, match="NOREPLICAS"):
            client.enqueue(call("b"))
        until(lambda: len(before - {each["id"] for each in asking.client_list()}) == 1, "a connection that was closed")


def test_only_enqueues_wait_for_a_replica(pair: tuple[Server, Server], namespace: str) -> None:
    first, second = pair
    with waiting(first, namespace) as client:
        client.enqueue(call("a"))
        with stopped(second):
            assert client.cancel("a") == "cancelled"
            assert client.pause("q")


class TestWaitaof:
    """Tests of WAITAOF, on a server that writes an append-only file. Redis has this command since version 7.2."""

    @pytest.fixture(name="logging")
    def _logging(self, server: Server, tmp_path: Path) -> Iterator[Server]:
        logging = Server(server.binary, tmp_path, appendonly="yes", appendfsync="always").start()
        try:
            yield logging
        finally:
            logging.stop()

    def test_with_waitaof_an_enqueue_is_on_disk_or_refused_by_an_old_server(
        self, logging: Server, namespace: str
    ) -> None:
        with waiting(logging, namespace, "waitaof") as client:
            if self._has_waitaof(logging):
                assert client.enqueue(call("a")).id == "a"
            else:
                with pytest.raises(rota.Unavailable, match=r"requires Redis or Valkey 7\.2"):
                    client.enqueue(call("a"))
        expected = ["a"] if self._has_waitaof(logging) else []
        fleet = Fleet(logging, namespace)
        assert fleet.lane() == expected
        fleet.close()

    def test_with_waitaof_a_server_without_append_only_file_gets_no_enqueue(
        self, server: Server, namespace: str
    ) -> None:
        with waiting(server, namespace, "waitaof") as client, pytest.raises(rota.Unavailable, match="appendonly yes"):
            client.enqueue(call("a"))
        fleet = Fleet(server, namespace)
        assert fleet.lane() == []
        fleet.close()

    def test_an_enqueue_is_unconfirmed_if_the_append_only_file_is_turned_off(
        self, logging: Server, namespace: str
    ) -> None:
        if not self._has_waitaof(logging):
            pytest.skip("this server has no WAITAOF")
        with waiting(logging, namespace, "waitaof") as client, redis.Redis.from_url(logging.url) as asking:
            client.enqueue(call("a"))
            asking.config_set("appendonly", "no")
            with pytest.raises(rota.Uncertain, match="the server reported WAITAOF cannot be used"):
                client.enqueue(call("b"))

    @staticmethod
    def _has_waitaof(server: Server) -> bool:
        with redis.Redis.from_url(server.url) as asking:
            return b"waitaof" in asking.command_list()


def test_an_unknown_durability_level_is_refused(server: Server) -> None:
    with pytest.raises(ValueError, match='expected one of "none", "wait", "waitaof"'):
        Client(server.url, durability="fsync")  # type: ignore[arg-type]  # as from a caller without types
