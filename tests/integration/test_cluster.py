"""Clients and commands on a real Redis Cluster. Its slots move and its primaries are replaced while they are used."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rota
from rota.child.child_settings import ServerSettings
from rota.client.blocking.client import Client
from rota.protocol.keys import Keys
from rota.protocol.nodes import Announced
from rota.protocol.store import Store
from rota.server.address import address_of
from rota.server.connection import ConnectionOptions, connect
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.server_check import check_server
from rota_supervisor.testing import erase
from support.clusters import Cluster
from support.fleet_process import rota as rota_command
from support.servers import Server
from support.waiting import until

SECONDS = 30.0


@pytest.fixture(scope="module", name="cluster")
def _cluster(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(server.binary, tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(name="moves")
def _moves(cluster: Cluster, namespace: str) -> list[Callable[[], object]]:
    """Return the ways in which another node gets the slot of the namespace."""

    def fail_over() -> None:
        owner = cluster.owner_of(namespace)
        cluster.fail_over(owner)
        cluster.wait_for_another(owner, namespace)
        cluster.wait_until_complete()

    return [lambda: cluster.move_slot(namespace), fail_over]


@pytest.fixture(name="client")
def _client(cluster: Cluster, namespace: str) -> Iterator[Client]:
    with Client(cluster.url, namespace, timeout_seconds=SECONDS) as client:
        yield client


def in_cluster(cluster: Cluster, namespace: str, **settings: str) -> Config:
    return Config(**{"redis_url": cluster.url, "namespace": namespace, "tiers": [["default"]], **settings})  # type: ignore[arg-type]  # the values have the types of the keys


def test_a_blocking_client_follows_the_slot(client: Client, moves: list[Callable[[], object]]) -> None:
    client.enqueue_many(rota.Call("note", id=f"before-{n}", queue="default") for n in range(300))
    for number, move in enumerate(moves, 1):
        move()
        client.enqueue("note", id=f"after-{number}", queue="default")
        assert [each.ready for each in client.queues()] == [300 + number]


def test_an_asyncio_client_follows_the_slot(
    cluster: Cluster, namespace: str, moves: list[Callable[[], object]]
) -> None:
    async def program() -> list[int]:
        counts = []
        async with rota.AsyncClient(cluster.url, namespace, timeout_seconds=SECONDS) as client:
            await client.enqueue("note", queue="default")
            for move in moves:
                await asyncio.to_thread(move)
                await client.enqueue("note", queue="default")
                counts += [each.ready for each in await client.queues()]
        return counts

    assert asyncio.run(program()) == [2, 3]


def test_calls_that_an_asyncio_client_makes_together_are_not_in_doubt_after_a_move(
    cluster: Cluster, namespace: str, moves: list[Callable[[], object]]
) -> None:
    """A cancel is not repeated if its outcome is uncertain, unlike an enqueue."""

    async def program() -> list[str]:
        results: list[str] = []
        async with rota.AsyncClient(cluster.url, namespace, timeout_seconds=SECONDS) as client:
            await client.enqueue("note", queue="default")
            for move in moves:
                await asyncio.to_thread(move)
                results += await asyncio.gather(*(client.cancel("unknown") for _ in range(20)))
        return results

    assert asyncio.run(program()) == ["unknown"] * 40


def test_closing_a_client_ends_the_calls_that_a_migration_holds_up(
    cluster: Cluster, client: Client, namespace: str
) -> None:
    errors: list[BaseException | None] = []

    async def program() -> None:
        async with rota.AsyncClient(cluster.url, namespace, timeout_seconds=SECONDS) as aclient:
            held_up = [asyncio.create_task(aclient.enqueue("note", queue="default"))]
            await asyncio.wait(held_up, timeout=0.3)
        errors.extend(await asyncio.gather(*held_up, return_exceptions=True))  # type: ignore[arg-type]

    def enqueue() -> None:
        with pytest.raises(rota.Unavailable) as caught:
            client.enqueue("note", queue="default")
        errors.append(caught.value)

    move = cluster.slot_move(namespace)
    move.begin()
    try:
        blocking = threading.Thread(target=enqueue)
        blocking.start()
        asyncio.run(asyncio.wait_for(program(), 5))
        client.close()
        blocking.join(5)
    finally:
        move.finish()
    assert [type(error) for error in errors] == [rota.Unavailable, rota.Unavailable]


def test_the_error_names_the_reason_if_the_new_node_cannot_be_reached(cluster: Cluster, namespace: str) -> None:
    with Client(cluster.url, namespace, timeout_seconds=1) as hasty:
        hasty.enqueue("note", queue="default")
        new = cluster.move_slot(namespace)
        cluster.freeze(new)
        try:
            with pytest.raises(rota.Unavailable, match=rf"is not reachable: .*{new.port}: the server did not reply"):
                hasty.enqueue("note", queue="default")
        finally:
            cluster.thaw(new)
    cluster.wait_until_complete()


def test_a_namespace_of_a_test_is_erased(cluster: Cluster, client: Client, namespace: str) -> None:
    client.enqueue("note", queue="default")
    erase(cluster.url, namespace)
    assert not cluster.do(cluster.owner_of(namespace), "EXISTS", Keys(namespace).tasks)


def test_calls_during_a_migration_are_carried_out_once_when_it_ends(
    cluster: Cluster, client: Client, namespace: str
) -> None:
    client.enqueue("note", id="first", queue="default")
    sending: list[threading.Thread] = []

    def send_once() -> None:
        if not sending:
            calls = [rota.Call("note", id=f"during-{n}", queue="default") for n in range(1200)]
            sending.append(threading.Thread(target=client.enqueue_many, args=[calls]))
            owner = cluster.owner_of(namespace)
            before = _refused_calls(cluster, owner)
            sending[0].start()
            until(lambda: _refused_calls(cluster, owner) > before, "a call that the node refused")

    cluster.move_slot(namespace, send_once)
    sending[0].join()
    assert [each.ready for each in client.queues()] == [1201]
    assert client.enqueue("note", id="during-1199", queue="default").duplicate


def _refused_calls(cluster: Cluster, node: Server) -> int:
    return int(cluster.do(node, "INFO", "commandstats").get("cmdstat_evalsha", {}).get("rejected_calls", 0))


def test_a_script_is_refused_whole_while_its_slot_moves(cluster: Cluster, client: Client, namespace: str) -> None:
    """Without the key that never exists, the script would write to some keys and fail at the first one that has
    moved.
    """
    client.enqueue("note", id="first", queue="default")
    owner = cluster.owner_of(namespace)
    tasks = Keys(namespace).tasks

    def check() -> None:
        before = cluster.do(owner, "DEBUG", "DIGEST")
        with (
            Client(cluster.url, namespace, timeout_seconds=0.2) as hasty,
            pytest.raises(rota.Unavailable, match="hash slot of the namespace is being moved"),
        ):
            hasty.enqueue("note", id="refused", queue="default")
        assert cluster.do(owner, "DEBUG", "DIGEST") == before

    new = cluster.move_slot(namespace, check)
    assert cluster.do(new, "HKEYS", tasks) == ["first"]


def test_a_wait_survives_each_move(
    cluster: Cluster, client: Client, namespace: str, moves: list[Callable[[], object]]
) -> None:
    handle = client.enqueue("note", queue="default")
    states: list[str] = []
    waiting = threading.Thread(target=lambda: states.append(handle.wait(SECONDS).state))
    waiting.start()
    until(lambda: cluster.do(cluster.owner_of(namespace), "HLEN", Keys(namespace).waiters), "a waiter that is known")
    for move in moves:
        move()
    assert handle.cancel() == "cancelled"
    waiting.join()
    assert states == ["cancelled"]


def test_a_wait_of_an_asyncio_client_survives_each_move(
    cluster: Cluster, namespace: str, moves: list[Callable[[], object]]
) -> None:
    async def program() -> str:
        async with rota.AsyncClient(cluster.url, namespace, timeout_seconds=SECONDS) as client:
            handle = await client.enqueue("note", queue="default")
            waiting = asyncio.create_task(handle.wait(SECONDS))
            for move in moves:
                await asyncio.to_thread(move)
            assert await handle.cancel() == "cancelled"
            return (await waiting).state

    assert asyncio.run(program()) == "cancelled"


def test_a_reader_of_events_and_a_consumer_survive_each_move(
    cluster: Cluster, client: Client, namespace: str, moves: list[Callable[[], object]]
) -> None:
    connection = connect(address_of(ServerSettings(cluster.url, namespace)), ConnectionOptions("master"))
    announced = Announced(events=100)
    connection.run(Store(namespace).announce("node", b"{}", 600_000, ["default"], announced))
    connection.close()
    with client.events(timeout=SECONDS) as events, client.consumer("default") as consumer:
        for number, move in enumerate((lambda: None, *moves)):
            move()
            client.enqueue("note", id=f"t{number}", queue="default")
            assert next(event.task_id for event in events if event.event == "enqueued") == f"t{number}"
            task = next(consumer)
            assert task.id == f"t{number}"
            task.done()
        assert until(lambda: client.status("t2").state == "done", "the last task is settled")


def test_a_server_check_in_a_cluster_succeeds_without_a_warning(cluster: Cluster, namespace: str) -> None:
    assert check_server(in_cluster(cluster, namespace), open_namespace=True).warnings == []


def test_a_url_of_another_node_is_refused_with_the_right_scheme(cluster: Cluster, namespace: str) -> None:
    owner = cluster.owner_of(namespace)
    [warning] = check_server(in_cluster(cluster, namespace, redis_url=owner.url), open_namespace=True).warnings
    assert "the server is a node of a cluster" in warning
    other = cluster.others(owner)[0]
    with pytest.raises(
        Failure, match=r"another node has the hash slot of the namespace: begin redis_url with"
    ) as failure:
        check_server(in_cluster(cluster, namespace, redis_url=other.url), open_namespace=True)
    assert failure.value.code == ExitCode.UNREACHABLE
    with (
        Client(other.url, namespace) as client,
        pytest.raises(rota.Unavailable, match=r"MOVED .*begin redis_url with redis\+cluster://"),
    ):
        client.enqueue("note", queue="default")


def test_doctor_reports_a_url_of_one_node_and_a_cluster_that_needs_all_slots(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    owner = cluster.owner_of(namespace)
    found = {}
    for url in (owner.url, cluster.url):
        (tmp_path / "rota.toml").write_text(f'redis_url = "{url}"\nnamespace = "{namespace}"\n')
        done = rota_command(tmp_path, "doctor", "--json")
        found[url] = {each["id"] for each in json.loads(done.stdout)["findings"] if "cluster" in each["id"]}
    assert found[owner.url] == {"redis-cluster-one-node", "redis-cluster-coverage"}
    assert found[cluster.url] == {"redis-cluster-coverage"}


def test_a_cluster_url_of_a_single_server_is_refused(server: Server, namespace: str) -> None:
    url = server.url.replace("redis://", "redis+cluster://")
    with pytest.raises(Failure, match="is not a node of a cluster: begin redis_url with redis://"):
        check_server(Config(redis_url=url, namespace=namespace), open_namespace=True)
    with Client(url, namespace) as client, pytest.raises(rota.Unavailable, match="cluster support disabled"):
        client.enqueue("note", queue="default")


def test_nodes_that_do_not_run_are_named_in_the_error(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    gone = Server(cluster.nodes[0].binary, tmp_path).port
    with pytest.raises(Failure, match=rf"no node of the cluster has hash slot \d+: 127\.0\.0\.1:{gone}: no connection"):
        check_server(
            in_cluster(cluster, namespace, redis_url=f"redis+cluster://127.0.0.1:{gone}"), open_namespace=False
        )
