"""A single server with an append-only file dies. It still has all the enqueues that it acknowledged, as `durability`
promises.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import rota
from support.fleets import Measure
from support.servers import Server
from support.slow_disk import SlowDisk
from support.waiting import until


class Logging:
    """A server that syncs its append-only file every second. The disk can be stalled."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.disk = SlowDisk(folder, binary)
        self.server = Server(self.disk.binary, folder, appendonly="yes", appendfsync="everysec").start()

    def connect(self) -> "redis.Redis":
        return redis.Redis.from_url(self.server.url)

    def has_waitaof(self) -> bool:
        with self.connect() as asking:
            return b"waitaof" in asking.command_list()

    def stall_in_a_sync(self) -> None:
        """Stall the disk, and wait until the server has begun to sync to the disk. The sync cannot end. Therefore the
        server delays incoming data by 2 s from then on.
        """
        self.disk.stall()
        with self.connect() as asking:
            until(lambda: asking.incr("written") and asking.info("persistence")["aof_pending_bio_fsync"], "a sync")

    def kill_and_start(self) -> None:
        self.server.kill()
        self.disk.go_on()
        self.server.start()

    def kept(self, namespace: str) -> set[str]:
        with self.connect() as asking:
            return {task_id.decode() for task_id in asking.hkeys(f"{{{namespace}}}:tasks")}


@pytest.fixture(name="logging")
def _logging(server: Server, tmp_path: Path) -> Iterator[Logging]:
    made = Logging(server.binary, tmp_path)
    try:
        yield made
    finally:
        made.disk.go_on()
        made.server.stop()


def _enqueue(client: rota.Client, task_id: str) -> str:
    return client.enqueue("note", queue="default", id=task_id).id


def test_tasks_enqueued_with_waitaof_survive_a_server_crash_after_a_disk_stall(
    logging: Logging, namespace: str, measured: Measure
) -> None:
    if not logging.has_waitaof():
        pytest.skip("this server has no WAITAOF: see test_waitaof_is_refused_if_the_server_lacks_it")
    url = logging.server.url
    plain = rota.Client(url, namespace)
    logged = rota.Client(url, namespace, durability="waitaof", timeout_seconds=4)
    hurried = rota.Client(url, namespace, durability="waitaof", timeout_seconds=0.5)
    with plain, logged, hurried:
        acknowledged = {_enqueue(logged, f"logged-{number}") for number in range(3)}
        hurried.status("nothing")
        logging.stall_in_a_sync()
        at_once = {_enqueue(plain, f"plain-{number}") for number in range(50)}
        with pytest.raises(rota.Uncertain, match="not written the tasks to its disk") as caught:
            _enqueue(hurried, "unconfirmed")
        logging.kill_and_start()
        kept = logging.kept(namespace)
        assert acknowledged <= kept
        measured("acknowledged at once and lost, of 50", len(at_once - kept))
        assert at_once - kept, "nothing was lost, so this test shows nothing"
        doubt = caught.value
        assert [handle.id for handle in until(lambda: _repeated(doubt), "a sync")] == ["unconfirmed"]
    logging.kill_and_start()
    assert logging.kept(namespace) >= acknowledged | {"unconfirmed"}


def _repeated(doubt: rota.Uncertain) -> "list[rota.Handle[object]]":
    try:
        return doubt.repeat()
    except (rota.Uncertain, rota.Unavailable):
        return []


def test_many_enqueues_with_waitaof_wait_for_the_disk_together(logging: Logging, namespace: str) -> None:
    if not logging.has_waitaof():
        pytest.skip("this server has no WAITAOF")
    with rota.Client(logging.server.url, namespace, durability="waitaof") as client, logging.connect() as asking:
        calls = [rota.Call("note", queue="default") for _ in range(2_000)]
        acknowledged = {handle.id for handle in client.enqueue_many(calls)}
        waits = asking.info("commandstats")["cmdstat_waitaof"]["calls"]
    # One WAITAOF tests whether the server can confirm writes at all, one waits for the enqueues, and one follows if the
    # script had to be sent as text.
    assert waits <= 3
    logging.kill_and_start()
    assert logging.kept(namespace) == acknowledged
