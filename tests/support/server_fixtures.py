"""A pytest plugin for tests that damage a server or the link to it. Each test has its own server.

Parametrize `server_options` to start the server with other configuration lines. Override `server_environment` to set
other environment variables.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
import redis

import rota
from rota_supervisor.acl_roles import AclRole
from support.acl_users import as_user
from support.faulty_link import FaultyLink
from support.fleets import Fleets, RunningFleet
from support.servers import Server
from support.waiting import repeating, until

LEASE_SECONDS = 2.5
SHORT_LEASE = {"seconds": LEASE_SECONDS, "renew_seconds": 0.6}


class Shaken(Fleets):
    """A server, a faulty link to it, and fleets that connect directly or through the link. `redis` is a client with a
    direct connection.
    """

    def __init__(self, server: Server, link: FaultyLink, namespace: str, folder: Path) -> None:
        super().__init__(server.url, namespace, folder)
        self.server = server
        self.link = link
        self.namespace = namespace
        self.folder = folder
        self.replica: Server | None = None
        self.redis = redis.Redis.from_url(server.url, socket_timeout=30)

    def start_late_node(self, label: str) -> RunningFleet:
        """Start another node behind the link. Its only worker runs a task until the task is released."""
        settings = {"tiers": [["late"]], "unserved_queues": "warn", "workers": 1, "lease": SHORT_LEASE}
        late = self.node("late", redis_url=as_user(self.link.url, AclRole.FLEET), **settings).start()
        late.hold(label, queue="late")
        return late

    def lose_link(self) -> None:
        """Cut the link, and refuse connections."""
        self.link.refuse()
        self.link.cut()

    def heal_link_late(self) -> None:
        """Heal the link after the pollers of other nodes have checked twice which owners renewed their leases."""
        pulse = f"{{{self.namespace}}}:pulse"
        for _ in range(2):
            last = self.redis.hget(pulse, "at")
            until(lambda: self.redis.hget(pulse, "at") != last, "a sweep")  # noqa: B023 - called in here
        self.link.heal()

    def start_replica(self) -> Server:
        """Start a replica of this server."""
        self.do("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        folder = self.server.folder / "replica"
        folder.mkdir()
        self.replica = Server(self.server.binary, folder, replicaof=f"127.0.0.1 {self.server.port}").start()
        with redis.Redis.from_url(self.replica.url) as asking:
            until(lambda: asking.info("replication")["master_link_status"] == "up", "a replica that was sent all")
        self.redis.incr("written-after-that")
        until(lambda: self.do("WAIT", "1", "100") == 1, "the replica has all data")
        return self.replica

    def start_behind_link(self, **settings: Any) -> RunningFleet:
        """Start a fleet behind the link and wait until it is ready. Its own client connects directly."""
        fleet = self.make(redis_url=as_user(self.link.url, AclRole.FLEET), **settings)
        return fleet.start()

    def do(self, *command: str) -> Any:
        """Run a command on the server."""
        return self.redis.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py does not type it

    def info(self, field: str) -> int:
        """Return a number from the server's INFO."""
        return int(self.redis.info("all")[field])


@pytest.fixture
def link(server: Server) -> Iterator[FaultyLink]:
    """Run a faulty link to the server that all tests share."""
    with FaultyLink(server.port) as made:
        yield made


@pytest.fixture
def fleet_behind_link(server: Server, namespace: str, tmp_path: Path, link: FaultyLink) -> Iterator[RunningFleet]:
    """Create an unstarted fleet of one worker that connects through `link`. Its clients connect directly."""
    made = RunningFleet(server.url, namespace, tmp_path, redis_url=as_user(link.url, AclRole.FLEET), workers=1)
    yield made
    link.heal()
    made.close()


@pytest.fixture
def server_options() -> dict[str, str]:
    return {}


@pytest.fixture
def server_environment() -> dict[str, str]:
    return {}


@pytest.fixture
def shaken(
    server: Server, server_options: dict[str, str], server_environment: dict[str, str], namespace: str, tmp_path: Path
) -> Iterator[Shaken]:
    folder, fleet_folder = tmp_path / "server", tmp_path / "fleet"
    folder.mkdir(exist_ok=True)
    fleet_folder.mkdir()
    own = Server(server.binary, folder, **server_options)
    own.environment = server_environment
    own.start()
    try:
        with FaultyLink(own.port) as link:
            ground = Shaken(own, link, namespace, fleet_folder)
            yield ground
            link.heal()
            for fleet in ground.made:
                fleet.close()
            ground.redis.close()
            if ground.replica is not None:
                ground.replica.stop()
    finally:
        own.stop()


class Producer:
    """A producer that enqueues short tasks, one after another in each of its threads, for a block of code.

    `accepted` maps the id of each confirmed task to the monotonic time of its confirmation, in the order of
    confirmations. An uncertain enqueue is repeated for `patience_seconds`. If it is still uncertain then, the task's id
    is added to `doubtful`. `options` are client options.
    """

    def __init__(
        self, url: str, namespace: str, *, threads: int = 1, patience_seconds: float = 0.0, **options: Any
    ) -> None:
        self.accepted: dict[str, float] = {}
        self.doubtful: list[str] = []
        self._client = rota.Client(url, namespace, **options)
        self._threads = threads
        self._block = ExitStack()
        self._patience_seconds = patience_seconds

    def __enter__(self) -> Self:
        self._block.enter_context(self._client)
        self._block.enter_context(repeating(self._produce, 0.005, self._threads))
        return self

    def __exit__(self, *_: object) -> None:
        self._block.close()

    def wait_for(self, more: int) -> None:
        """Wait until this number of additional tasks have been accepted."""
        wanted = len(self.accepted) + more
        until(lambda: len(self.accepted) >= wanted, f"{more} more accepted tasks")

    def _produce(self) -> None:
        try:
            self._accept([self._client.enqueue("note", queue="default")])
        except rota.Uncertain as doubt:
            self._repeat(doubt)
        except rota.Unavailable:  # the enqueue was not carried out
            return

    def _repeat(self, doubt: rota.Uncertain) -> None:
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                self._accept(doubt.repeat())
            except (rota.Uncertain, rota.Unavailable):
                if time.monotonic() > deadline:
                    self.doubtful += doubt.ids
                    return
                time.sleep(0.05)
            else:
                return

    def _accept(self, handles: "list[rota.Handle[object]]") -> None:
        self.accepted |= dict.fromkeys((handle.id for handle in handles), time.monotonic())


def wait_until_all_ran(fleet: RunningFleet, producer: Producer) -> None:
    """Wait until every accepted task has ended and no task is left, including tasks with an uncertain enqueue."""
    wanted = set(producer.accepted)
    until(lambda: wanted <= {line.id for line in fleet.journal("end")}, "the end of all accepted tasks")
    until(fleet.books_balance, "balanced books")


def lost_of(fleet: RunningFleet, producer: Producer) -> set[str]:
    """Wait until all tasks have ended and the audit finds no fault. Returns the ids of the tasks that were acknowledged
    but never ran.
    """
    fleet.wait_until_nothing_waits(30)
    until(fleet.books_balance, "balanced books")
    return set(producer.accepted) - {line.id for line in fleet.journal("end")}


def extra_runs(fleet: RunningFleet) -> dict[str, int]:
    """Return the number of extra starts of each task that was started more than once."""
    starts: dict[str, int] = {}
    for line in fleet.journal("start"):
        starts[line.id] = starts.get(line.id, 0) + 1
    return {task_id: count - 1 for task_id, count in starts.items() if count > 1}


def nothing_was_requeued(fleet: RunningFleet) -> None:
    """Check that no lease was lost, that no worker exited, and that no task was given back because its worker died or
    lost its lease.
    """
    scrape = fleet.metrics()
    assert scrape.total("rota_leases_lost_total") == 0
    assert scrape.total("rota_tasks_recovered_total") == 0
    assert not fleet.log("worker.exited")
    assert not fleet.log("task.recovered")


def everything_ended_once(fleet: RunningFleet) -> None:
    """Check that all accepted tasks end, no task runs or is returned twice, and the counters match."""
    fleet.wait_until_nothing_waits(30)
    assert not extra_runs(fleet)
    nothing_was_requeued(fleet)
    assert fleet.books_balance()
