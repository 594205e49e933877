"""A Rota client that borrows its connections from a redis-py or valkey-py client of the application. The Rota client
keeps its usual deadlines, and raises its usual errors.
"""

import asyncio
import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rota
from rota.client.blocking.client import Client
from rota.protocol.keys import Keys
from rota.server.address import parse_address
from rota.server.connection import Connection
from support.faulty_link import FaultyLink
from support.servers import Server, free_port
from support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning")
SECONDS = 30


class Library(NamedTuple):
    """A Redis client library: the name of its package, and the prefix of its class names."""

    package: str
    prefix: str

    def of(self, name: str, module: str = "") -> Any:
        """Return the class `name` from a module of the library, for example `Redis` or `RedisCluster`."""
        found = importlib.import_module(f"{self.package}{module}")
        return getattr(found, name.replace("Redis", self.prefix))

    def client(self, url: str, **options: Any) -> Any:
        return self.of("Redis").from_url(url, **options)

    def aclient(self, url: str, **options: Any) -> Any:
        return self.of("Redis", ".asyncio").from_url(url, **options)


LIBRARIES = {"redis-py": Library("redis", "Redis"), "valkey-py": Library("valkey", "Valkey")}


@pytest.fixture(name="library", params=LIBRARIES)
def _library(request: pytest.FixtureRequest) -> Library:
    library = LIBRARIES[request.param]
    pytest.importorskip(library.package)
    return library


@pytest.fixture(name="own")
def _own(library: Library, link: FaultyLink) -> Iterator[Any]:
    """Yield the application's own client. It connects through the link, and retries failed calls by itself."""
    own = library.client(link.url, socket_timeout=2, retry=_retries(library), retry_on_timeout=True)
    yield own
    own.close()


@pytest.fixture(name="client")
def _client(own: Any, namespace: str) -> Iterator[Client]:
    with Client(redis=own, namespace=namespace, timeout_seconds=3) as client:
        client.enqueue("warm", queue="warm")  # afterwards, the server knows the script
        yield client


def _retries(library: Library) -> Any:
    no_backoff = library.of("NoBackoff", ".backoff")
    return library.of("Retry", ".retry")(no_backoff(), 3)


def call(task_id: str = "a") -> rota.Call:
    return rota.Call("work", queue="q", id=task_id)


def serve_one(client: Client) -> threading.Thread:
    """Start a thread in which a consumer takes one task from the queue `q` and ends the task. Returns the thread."""

    def serve() -> None:
        with client.consumer("q") as consumer:
            next(consumer).done()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


SOURCES: dict[str, Callable[[Library, Server], Any]] = {
    "a client": lambda library, server: library.client(server.url),
    "a client that decodes": lambda library, server: library.client(server.url, decode_responses=True),
    "a client of RESP3": lambda library, server: library.client(server.url, protocol=3),
    "a client with a short timeout": lambda library, server: library.client(server.url, socket_timeout=0.2),
    "a client on a Unix socket": lambda library, server: library.client(f"unix://{server.socket_path}"),
    "a pool": lambda library, server: library.of("ConnectionPool").from_url(server.url),
    "a pool that blocks": lambda library, server: library.of("BlockingConnectionPool").from_url(
        server.url, max_connections=4, timeout=1
    ),
}


class TestBlocking:
    @pytest.mark.parametrize("source", SOURCES)
    def test_tasks_are_enqueued_taken_and_waited_for(
        self, library: Library, server: Server, namespace: str, source: str
    ) -> None:
        own = SOURCES[source](library, server)
        with Client(redis=own, namespace=namespace) as client:
            handles = client.enqueue_many(call(f"t{n}") for n in range(300))
            assert client.status("t299").state == "ready"
            serving = serve_one(client)
            assert handles[0].wait(SECONDS).state == "done"
            serving.join()
        pool = getattr(own, "connection_pool", own)
        pool.disconnect()

    def test_a_borrowed_connection_is_returned_and_still_works(self, own: Any, client: Client) -> None:
        client.enqueue(call())
        assert not own.connection_pool._in_use_connections
        assert own.ping()
        own.set("a-key-of-the-application", "1")
        assert own.get("a-key-of-the-application") == b"1"
        own.delete("a-key-of-the-application")

    def test_a_borrowed_connection_is_returned_with_its_own_socket_timeout(
        self, library: Library, server: Server, namespace: str
    ) -> None:
        own = library.client(server.url, decode_responses=True, socket_timeout=7)
        with Client(redis=own, namespace=namespace) as client:
            client.enqueue(call())
            connection = own.connection_pool._available_connections[-1]
            assert connection._sock.gettimeout() == 7
            own.set(f"{namespace}-key", "text", ex=10)
            assert own.get(f"{namespace}-key") == "text"
        own.close()

    def test_a_borrowed_connection_without_a_socket_is_returned_to_its_pool(
        self, own: Any, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Wrapped:
            """A connection that wraps another one. An application's pool may lend such connections."""

        pool, wrapped = own.connection_pool, Wrapped()
        released: list[Any] = []
        monkeypatch.setattr(pool, "get_connection", lambda *_: wrapped)
        monkeypatch.setattr(pool, "release", released.append)
        with pytest.raises(rota.Unavailable, match="_sock"):
            client.enqueue(call())
        assert released == [wrapped]

    def test_a_forked_child_and_its_parent_use_separate_connections(self, client: Client) -> None:
        client.enqueue(call("before"))
        child = os.fork()
        if not child:
            try:
                client.enqueue(call("in-the-child"))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        client.enqueue(call("in-the-parent"))
        assert {each.id for each in client.peek("q")} == {"before", "in-the-child", "in-the-parent"}

    def test_an_enqueue_whose_reply_is_lost_counts_once(self, client: Client, link: FaultyLink) -> None:
        link.lose_replies(1, of="enqueue")
        assert not client.enqueue(call()).duplicate
        assert link.lost["enqueue"] == 1
        [queue] = [each for each in client.queues() if each.queue == "q"]
        assert queue.ready == 1

    def test_an_enqueue_that_lost_all_its_replies_can_be_repeated_safely(
        self, client: Client, link: FaultyLink
    ) -> None:
        link.lose_replies(2, of="enqueue")
        with pytest.raises(rota.Uncertain) as caught:
            client.enqueue(call())
        assert [handle.id for handle in caught.value.repeat()] == ["a"]
        [queue] = [each for each in client.queues() if each.queue == "q"]
        assert queue.ready == 1

    def test_a_call_without_a_nonce_is_never_retried(self, client: Client, link: FaultyLink) -> None:
        client.cancel("unknown")  # afterwards, the server knows the script
        before = link.calls["cancel"]
        link.lose_replies(1, of="cancel")
        with pytest.raises(rota.Uncertain):
            client.cancel("unknown")
        assert link.calls["cancel"] == before + 1

    def test_an_unreachable_server_raises_unavailable(self, own: Any, client: Client, link: FaultyLink) -> None:
        link.refuse()
        link.cut()
        with pytest.raises(rota.Unavailable, match=r"^the application's Redis client \(127.0.0.1:.* is not reachable"):
            client.enqueue(call())
        link.heal()
        client.enqueue(call())
        assert not own.connection_pool._in_use_connections

    def test_a_silent_server_takes_no_longer_than_the_clients_timeout(
        self, library: Library, link: FaultyLink, namespace: str
    ) -> None:
        own = library.client(link.url)  # without a deadline from Rota, it would wait forever
        with Client(redis=own, namespace=namespace, timeout_seconds=0.5) as client:
            client.enqueue("warm", queue="warm")
            link.silence(replies=True)
            began = time.monotonic()
            status = client.status("a")
            assert status.state == "unknown"
            assert time.monotonic() - began < SECONDS / 2
            link.heal()
            client.enqueue(call())
        own.close()

    def test_a_wait_continues_after_a_lost_connection(self, client: Client, link: FaultyLink) -> None:
        handle = client.enqueue(call())
        states: list[str] = []
        waiting = threading.Thread(target=lambda: states.append(handle.wait(SECONDS).state))
        waiting.start()
        until(lambda: link.calls["blpop"] > 0, "the wait is parked in the server")
        link.cut()
        serve_one(client).join()
        waiting.join()
        assert states == ["done"]

    def test_credentials_are_fetched_from_the_provider_of_the_application(
        self, library: Library, server: Server, namespace: str
    ) -> None:
        class Provider(library.of("CredentialProvider", ".credentials")):  # type: ignore[misc]  # a class of the library
            password = "first"

            def get_credentials(self) -> tuple[str, str]:
                return user, self.password

        user, provider = f"{namespace}-user", Provider()
        with library.client(server.url) as admin:
            admin.execute_command("ACL", "SETUSER", user, "on", ">first", "~*", "&*", "+@all")
            own = library.of("Redis")(port=server.port, credential_provider=provider)
            with Client(redis=own, namespace=namespace) as client:
                client.enqueue(call("with-the-first"))
                admin.execute_command("ACL", "SETUSER", user, "resetpass", ">second")
                admin.execute_command("CLIENT", "KILL", "USER", user)
                with pytest.raises(rota.Unavailable, match="in the client given as redis"):
                    client.enqueue(call("with-the-first-again"))
                provider.password = "second"
                client.enqueue(call("with-the-second"))
            own.close()
            admin.execute_command("ACL", "DELUSER", user)


ASYNC_SOURCES: dict[str, Callable[[Library, Server], Any]] = {
    "a client": lambda library, server: library.aclient(server.url),
    "a client that decodes": lambda library, server: library.aclient(server.url, decode_responses=True),
    "a client of RESP3": lambda library, server: library.aclient(server.url, protocol=3),
    "a pool": lambda library, server: library.of("ConnectionPool", ".asyncio").from_url(server.url),
    "a pool that blocks": lambda library, server: library.of("BlockingConnectionPool", ".asyncio").from_url(
        server.url, max_connections=4, timeout=1
    ),
}


class TestAsyncio:
    @pytest.mark.parametrize("source", ASYNC_SOURCES)
    def test_tasks_are_enqueued_and_waited_for(
        self, library: Library, server: Server, namespace: str, source: str
    ) -> None:
        async def main() -> str:
            own = ASYNC_SOURCES[source](library, server)
            async with rota.AsyncClient(redis=own, namespace=namespace) as client:
                handles = await client.enqueue_many(call(f"t{n}") for n in range(300))
                assert (await client.status("t299")).state == "ready"
                waiting = asyncio.create_task(handles[0].wait(SECONDS))
                with Client(server.url, namespace) as blocking:
                    serving = serve_one(blocking)
                    status = await waiting
                    serving.join()
            pool = getattr(own, "connection_pool", own)
            assert not pool._in_use_connections
            await pool.disconnect()
            return status.state

        assert asyncio.run(main()) == "done"

    def test_an_enqueue_whose_reply_is_lost_counts_once(
        self, library: Library, link: FaultyLink, namespace: str
    ) -> None:
        async def main() -> None:
            own = library.aclient(link.url, retry=_aretries(library), retry_on_timeout=True)
            async with rota.AsyncClient(redis=own, namespace=namespace, timeout_seconds=3) as client:
                await client.enqueue("warm", queue="warm")
                link.lose_replies(1, of="enqueue")
                assert not (await client.enqueue(call("a"))).duplicate
                link.lose_replies(2, of="enqueue")
                with pytest.raises(rota.Uncertain) as caught:
                    await client.enqueue(call("b"))
                assert [handle.id for handle in await caught.value.arepeat()] == ["b"]
                [queue] = [each for each in await client.queues() if each.queue == "q"]
                assert queue.ready == 2
            await own.aclose()

        asyncio.run(main())
        assert link.lost["enqueue"] == 3

    def test_a_call_without_a_nonce_is_never_retried(self, library: Library, link: FaultyLink, namespace: str) -> None:
        async def main() -> None:
            own = library.aclient(link.url, retry=_aretries(library), retry_on_timeout=True)
            async with rota.AsyncClient(redis=own, namespace=namespace, timeout_seconds=3) as client:
                await client.cancel("unknown")  # afterwards, the server knows the script
                before = link.calls["cancel"]
                link.lose_replies(1, of="cancel")
                with pytest.raises(rota.Uncertain):
                    await client.cancel("unknown")
                assert link.calls["cancel"] == before + 1
            await own.aclose()

        asyncio.run(main())

    def test_an_unreachable_server_raises_unavailable(self, library: Library, link: FaultyLink, namespace: str) -> None:
        async def main() -> None:
            own = library.aclient(link.url)
            async with rota.AsyncClient(redis=own, namespace=namespace, timeout_seconds=3) as client:
                link.refuse()
                with pytest.raises(rota.Unavailable, match=r"^the application's Redis client .* is not reachable"):
                    await client.enqueue(call("b"))
                link.heal()
                await client.enqueue(call("b"))
            await own.aclose()

        asyncio.run(main())

    def test_a_wait_continues_after_a_lost_connection(
        self, library: Library, server: Server, link: FaultyLink, namespace: str
    ) -> None:
        async def main() -> str:
            own = library.aclient(link.url)
            async with rota.AsyncClient(redis=own, namespace=namespace, timeout_seconds=3) as client:
                handle = await client.enqueue(call("a"))
                waiting = asyncio.create_task(handle.wait(SECONDS))
                await asyncio.to_thread(until, lambda: link.calls["blpop"] > 0, "the wait is parked in the server")
                link.cut()
                with Client(server.url, namespace) as blocking:
                    serving = serve_one(blocking)
                    status = await waiting
                    serving.join()
            await own.aclose()
            return status.state

        assert asyncio.run(main()) == "done"

    def test_a_consumer_on_a_borrowed_async_client_is_refused(
        self, library: Library, server: Server, namespace: str
    ) -> None:
        client = rota.AsyncClient(redis=library.aclient(server.url), namespace=namespace)
        with pytest.raises(TypeError, match=r"rota\.Client\(redis=\.\.\.\)\.consumer"):
            client.consumer("q")


def _aretries(library: Library) -> Any:
    no_backoff = library.of("NoBackoff", ".backoff")
    return library.of("Retry", ".asyncio.retry")(no_backoff(), 3)


class TestCluster:
    """Tests on a Redis Cluster of two nodes. One node has all slots until a test moves some of them."""

    @pytest.fixture(name="nodes")
    def _nodes(self, server: Server, tmp_path: Path) -> Iterator[list[Server]]:
        with ExitStack() as running:
            nodes = []
            for name in ("one", "two"):
                (tmp_path / name).mkdir()
                bus = str(free_port())  # the default, the port plus 10,000, may be in use
                nodes.append(Server(server.binary, tmp_path / name, cluster_enabled="yes", cluster_port=bus))
                running.callback(nodes[-1].stop)
                nodes[-1].start()
            one, two = nodes
            run_command(one, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            run_command(one, "CLUSTER", "MEET", "127.0.0.1", two.port, two.options["cluster_port"])
            until(
                lambda: all(cluster_info(node)["cluster_known_nodes"] == "2" for node in nodes), "nodes that have met"
            )
            until(lambda: all(cluster_info(node)["cluster_state"] == "ok" for node in nodes), "a cluster that is up")
            yield nodes

    def test_a_cluster_client_follows_its_namespace_when_the_slot_moves(
        self, library: Library, nodes: list[Server], namespace: str
    ) -> None:
        own = library.of("RedisCluster", ".cluster")(host="127.0.0.1", port=nodes[0].port)
        with Client(redis=own, namespace=namespace) as client:
            client.enqueue_many(call(f"t{n}") for n in range(300))
            assert [each.ready for each in client.queues()] == [300]
            move_slot(nodes, namespace)
            handle = client.enqueue(call("there"))
            serving = serve_one(client)
            assert handle.wait(SECONDS).state == "done"
            serving.join()
        own.close()

    def test_an_asyncio_cluster_client_follows_its_namespace_when_the_slot_moves(
        self, library: Library, nodes: list[Server], namespace: str
    ) -> None:
        async def main() -> None:
            own = library.of("RedisCluster", ".asyncio.cluster")(host="127.0.0.1", port=nodes[0].port)
            async with rota.AsyncClient(redis=own, namespace=namespace) as client:
                await client.enqueue_many(call(f"t{n}") for n in range(300))
                assert [each.ready for each in await client.queues()] == [300]
                await asyncio.to_thread(move_slot, nodes, namespace)
                handle = await client.enqueue(call("there"))
                assert (await handle.status()).state == "ready"
            await own.aclose()

        asyncio.run(main())


def run_command(node: Server, *words: str | int) -> Any:
    connection = Connection(parse_address(node.url))
    try:
        return connection.execute(*words)
    finally:
        connection.close()


def cluster_info(node: Server) -> dict[str, str]:
    lines = run_command(node, "CLUSTER", "INFO").decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if line)


def move_slot(nodes: list[Server], namespace: str) -> None:
    """Move this namespace's slot from the first node to the second. The keys in the slot are deleted."""
    one, two = nodes
    run_command(one, "FLUSHALL")
    slot = run_command(one, "CLUSTER", "KEYSLOT", Keys(namespace).tasks)
    name_of_one, name_of_two = (run_command(node, "CLUSTER", "MYID").decode() for node in nodes)
    run_command(two, "CLUSTER", "SETSLOT", slot, "IMPORTING", name_of_one)
    run_command(one, "CLUSTER", "SETSLOT", slot, "MIGRATING", name_of_two)
    for node in (two, one):
        run_command(node, "CLUSTER", "SETSLOT", slot, "NODE", name_of_two)
