"""Two masters that exchange a pool's loads, and the decisions about the pool, through a real server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest
import redis

from rota.child.slot_memory import SlotMemory
from rota.protocol.keys import Keys
from rota.protocol.scaling import ScalingStore
from rota.protocol.tiers import QueueShare, domain_of
from rota.server.address import parse_address
from rota.server.aio_connection import AioConnection, Opener
from rota_supervisor.master.core.effects import ExchangeScaling, LagObjective, ScaledPool
from rota_supervisor.master.core.master_events import Event, PoolSeen, ScalingSeen
from rota_supervisor.master.core.scaling_rule import Decision
from rota_supervisor.master.effects.background import Background
from rota_supervisor.master.effects.scaling_exchange import ScalingExchange
from support.servers import Server

LEASE_SECONDS = 30.0
POOL = ScaledPool(
    *("main", (domain_of([QueueShare("mail", cap=3)]),), {"mail": LagObjective(5, 0.99)}, 1, 0, 8, 8, None),
    is_blocked=False,
    first_crashes=0,
    workers=(),
)
OTHER = POOL._replace(pool="other")
DECISION = Decision(
    wanted=4,
    unbounded=9,
    shares={"a": 3, "b": 1},
    needs={"a": 3, "b": 1},
    steady=2,
    drain=4,
    tail=3,
    limited_by=("cpu",),
    reason="4 workers: busy",
    drain_seconds=1.5,
    lag_ratio=0.5,
)


@dataclass
class Node:
    """A node that exchanges loads with the code of a real master. `seen` receives the results as events, as the core of
    a master would.
    """

    name: str
    exchange: ScalingExchange
    seen: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)

    async def asks(self, *pools: ScaledPool) -> ScalingSeen:
        self.exchange.start(ExchangeScaling(pools, LEASE_SECONDS, max_cpu=1.0))
        event = await self.seen.get()
        assert isinstance(event, ScalingSeen)
        return event

    async def sees(self, pool: ScaledPool = POOL) -> PoolSeen:
        return (await self.asks(pool)).pools[pool.pool]


@pytest.fixture
def memory() -> SlotMemory:
    return SlotMemory.create(2)


@pytest.fixture
def client(server: Server) -> Iterator["redis.Redis"]:
    client = redis.Redis(unix_socket_path=server.socket_path)
    yield client
    client.close()


@pytest.fixture
def run(
    server: Server, namespace: str, memory: SlotMemory
) -> Callable[[Callable[[Node, Node], Awaitable[None]]], None]:
    """Return a function that runs a test's coroutine with two nodes."""

    async def with_two(use: Callable[[Node, Node], Awaitable[None]]) -> None:
        background = Background()
        connections = [AioConnection(Opener(parse_address(server.url), f"rota:{name}")) for name in "ab"]
        nodes = []
        for name, connection in zip("ab", connections, strict=True):
            seen: asyncio.Queue[Event] = asyncio.Queue()
            store = ScalingStore(namespace)
            exchange = ScalingExchange(connection, store, name, memory, background, seen.put_nowait)
            nodes.append(Node(name, exchange, seen))
        try:
            await use(*nodes)
        finally:
            await background.cancel()
            for connection in connections:
                await connection.close()

    return lambda use: asyncio.run(with_two(use))


Run = Callable[[Callable[[Node, Node], Awaitable[None]]], None]


def test_only_the_leader_of_a_pool_receives_its_loads_and_backlog(
    run: Run, client: "redis.Redis", namespace: str
) -> None:
    client.rpush(Keys(namespace).ready_lane("mail"), '["work",[]]')

    async def use(a: Node, b: Node) -> None:
        first = await a.sees()
        assert first.leader == "a"
        assert first.inputs is not None
        assert [row.queue for row in first.inputs.queues] == ["mail"]
        assert (await b.sees())[1:] == ("a", None, None)
        second = await a.sees()
        assert second.inputs is not None
        assert [load.node for load in second.inputs.nodes] == ["a", "b"]
        assert second.inputs.queues[0][:2] == ("mail", 1)
        assert (second.inputs.queues[0].cap, second.inputs.queues[0].objective_seconds) == (3, 5)

    run(use)


def test_a_decision_of_the_leader_reaches_every_node(run: Run) -> None:
    publishing = POOL._replace(publish=DECISION)

    async def use(a: Node, b: Node) -> None:
        await a.sees()
        assert (await b.sees(publishing)).decision is None, "only the leader decides"
        assert (await a.sees(publishing)).decision == DECISION
        for node in (b, a, b):
            assert (await node.sees()).decision == DECISION

    run(use)


def test_a_node_that_no_longer_has_the_pool_gives_up_its_lead_at_once(run: Run) -> None:
    async def use(a: Node, b: Node) -> None:
        assert (await a.asks(POOL, OTHER)).pools.keys() == {"main", "other"}
        await b.asks(POOL, OTHER)
        await a.asks(POOL)
        seen = await b.asks(POOL, OTHER)
        assert {name: pool.leader for name, pool in seen.pools.items()} == {"main": "a", "other": "b"}
        assert (await a.asks()) == ScalingSeen({})
        assert (await b.sees()).leader == "b"

    run(use)


def test_a_pool_that_the_server_refuses_does_not_stop_the_others(
    run: Run, client: "redis.Redis", namespace: str
) -> None:
    client.set(Keys(namespace).loads("main"), "garbage")

    async def use(a: Node, _: Node) -> None:
        seen = await a.asks(POOL, OTHER)
        assert set(seen.pools) == {"other"}
        assert not seen.failed

    run(use)


def test_the_exchange_about_scaling_fails_visibly_without_a_server(run: Run) -> None:
    async def use(a: Node, _: Node) -> None:
        await a.sees()
        a.exchange._connection = AioConnection(Opener(parse_address("redis://127.0.0.1:1/0"), "rota:gone"))
        assert await a.asks(POOL) == ScalingSeen({}, failed=True)

    run(use)
