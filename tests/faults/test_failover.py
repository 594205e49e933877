"""A service with real sentinels. Its primary dies, is replaced, or comes back. In each case, the fleet continues to
work, and no acknowledged task is lost.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

import rota
from rota.protocol.keys import Keys
from rota.server.session import Durability
from support.fleets import Measure, RunningFleet
from support.following import after, check_followed, lines_by_group
from support.sentinels import Sentinels
from support.server_fixtures import Producer, extra_runs, lost_of
from support.servers import Server
from support.waiting import until

AFTER_FAILOVER_SECONDS = 5.0
GROUPS = 10
MEMBERS = 20
T = TypeVar("T")
# 150 such values are three times as much data as the kernel buffers for the two replicas together.
LARGE = "x" * 200_000


def load(service: Sentinels, fleet: RunningFleet, durability: Durability = "none", threads: int = 2) -> Producer:
    """Return a producer of tasks. If the outcome of a call is uncertain, the producer repeats the call until the server
    acknowledges it. It gives up when the server may have forgotten the nonce, because a repetition would then count as
    a new call.
    """
    options: dict[str, Any] = {"durability": durability, "timeout_seconds": 2}
    return Producer(service.url, fleet.namespace, threads=threads, patience_seconds=30, **options)


@pytest.fixture(name="service")
def _service(server: Server, tmp_path: Path) -> Iterator[Sentinels]:
    folder = tmp_path / "service"
    folder.mkdir()
    with Sentinels(server.binary, folder, appendonly="yes") as service:
        yield service


@pytest.fixture(name="fleet")
def _fleet(service: Sentinels, namespace: str, tmp_path: Path) -> Iterator[RunningFleet]:
    folder = tmp_path / "fleet"
    folder.mkdir()
    fleet = RunningFleet(service.url, namespace, folder, workers=3)
    try:
        yield fleet.start()
    finally:
        fleet.close()


def seconds_until_work_goes_on(fleet: RunningFleet) -> float:
    """Wait until another task ends, and return the number of seconds that this took. Call this when there is a new
    primary. Fails if the wait takes longer than promised.
    """
    began = time.monotonic()
    seen = len(fleet.journal("end"))
    until(lambda: len(fleet.journal("end")) > seen, "the work continues", AFTER_FAILOVER_SECONDS)
    return time.monotonic() - began


def test_killed_primary_loses_only_unreplicated_tasks(
    service: Sentinels, fleet: RunningFleet, measured: Measure
) -> None:
    primary = service.primary()
    with load(service, fleet) as producer:
        producer.wait_for(300)
        replicated = set(producer.accepted)
        until(lambda: service.replicated(primary), "replicas that have these")
        producer.wait_for(20)
        primary.kill()
        killed_at = time.monotonic()
        service.wait_for_another(primary)
        measured("seconds from the kill to the failover", time.monotonic() - killed_at)
        measured("seconds from the failover to the next task", seconds_until_work_goes_on(fleet))
        producer.wait_for(300)
    lost = lost_of(fleet, producer)
    measured("acknowledged and lost", len(lost))
    assert not lost & replicated
    assert all(producer.accepted[task_id] < killed_at + 0.1 for task_id in lost), "nothing of the new primary's is lost"
    assert not producer.doubtful
    assert max(extra_runs(fleet).values(), default=0) <= 1
    assert fleet.log("redis.lost")
    assert fleet.log("redis.back")


def test_durability_wait_loses_no_acknowledged_task(service: Sentinels, fleet: RunningFleet, measured: Measure) -> None:
    with load(service, fleet, "wait", threads=6) as producer:
        producer.wait_for(500)
        killed = service.kill_primary()
        service.wait_for_another(killed)
        measured("seconds from the failover to the next task", seconds_until_work_goes_on(fleet))
        producer.wait_for(500)
    assert lost_of(fleet, producer) == set()
    assert not producer.doubtful
    assert max(extra_runs(fleet).values(), default=0) <= 1


def test_a_group_ends_once_although_the_primary_is_killed(
    service: Sentinels, fleet: RunningFleet, measured: Measure
) -> None:
    with rota.Client(service.url, fleet.namespace, durability="wait", timeout_seconds=2) as client:
        handles = {f"group {number}": _grouped(client, f"group {number}") for number in range(GROUPS)}
        killed = service.kill_primary()
        for number in range(GROUPS, 2 * GROUPS):
            handles[f"group {number}"] = _grouped(client, f"group {number}")
        service.wait_for_another(killed)
        ended = [until(partial(_ended, handle), "a group's end") for handle in handles.values()]
    assert {(each.total, each.done) for each in ended if each} == {(MEMBERS, MEMBERS)}
    fleet.wait_until_nothing_waits(30)
    of_groups = lines_by_group(fleet.journal())
    for label in handles:
        check_followed(of_groups[label], label)
    extra = extra_runs(fleet)
    measured("tasks of groups that a failover had run twice", len(extra))
    assert max(extra.values(), default=0) <= 1
    assert fleet.books_balance()


def _grouped(client: rota.Client, label: str) -> rota.GroupHandle:
    """Enqueue a group. If a call fails, it is repeated with the same group id until the server has accepted the whole
    group.
    """
    spin: rota.Call[None] = rota.Call("spin", [label], queue="default")
    members: list[rota.Call[None] | rota.Chain] = [rota.chain(spin, spin), *[spin] * (MEMBERS - 1)]
    group = rota.group(members, then=after(label), id=label.replace(" ", "-"))
    handle = until(lambda: _unless_unavailable(lambda: client.enqueue(group)), "a server that takes a group")
    assert handle
    return handle


def _ended(handle: rota.GroupHandle) -> rota.GroupStatus | None:
    found = _unless_unavailable(handle.status)
    return found if found and found.state == "ended" else None


def _unless_unavailable(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except (rota.Uncertain, rota.Unavailable):
        return None


def test_with_durability_wait_no_unreplicated_task_is_acknowledged(
    service: Sentinels, namespace: str, measured: Measure
) -> None:
    primary = service.primary()
    plain = rota.Client(service.url, namespace)
    waiting = rota.Client(service.url, namespace, durability="wait", timeout_seconds=3)
    with plain, waiting:
        waiting.enqueue("note", queue="default", id="replicated")
        stopped = service.stop_replicas()
        calls = [rota.Call("note", [LARGE], queue="default") for _ in range(150)]
        acknowledged = [handle.id for handle in plain.enqueue_many(calls)]
        with pytest.raises(rota.Uncertain, match="no replica has the tasks") as caught:
            waiting.enqueue("note", queue="default", id="unconfirmed")
        primary.kill()
        for server in stopped:
            os.kill(server.pid, signal.SIGCONT)
        new = service.wait_for_another(primary)
        with redis.Redis(port=new.port) as asking:
            kept = {task_id.decode() for task_id in asking.hkeys(f"{{{namespace}}}:tasks")}
        measured("acknowledged at once and lost, of 150", len(set(acknowledged) - kept))
        assert set(acknowledged) - kept, "nothing was lost, so this test shows nothing"
        assert "replicated" in kept
        assert "unconfirmed" not in kept
        [handle] = until(lambda: _repeated(caught.value), "a new primary with a replica")
        assert (handle.id, handle.duplicate) == ("unconfirmed", False)
        with redis.Redis(port=new.port) as asking:
            assert asking.hexists(f"{{{namespace}}}:tasks", "unconfirmed")


def _repeated(doubt: rota.Uncertain) -> "list[rota.Handle[object]]":
    try:
        return doubt.repeat()
    except (rota.Uncertain, rota.Unavailable):
        return []


def test_orderly_failover_keeps_workers_and_acknowledged_tasks(
    service: Sentinels, fleet: RunningFleet, measured: Measure
) -> None:
    workers = fleet.workers()
    primary = service.primary()
    with load(service, fleet, "wait") as producer:
        producer.wait_for(200)
        service.fail_over()
        service.wait_for_another(primary)
        measured("seconds from the failover to the next task", seconds_until_work_goes_on(fleet))
        producer.wait_for(200)
    assert lost_of(fleet, producer) == set()
    assert fleet.workers() == workers
    assert not fleet.log("worker.exited")
    assert max(extra_runs(fleet).values(), default=0) <= 1


def test_demoted_primary_wakes_sleeping_workers(service: Sentinels, fleet: RunningFleet) -> None:
    workers = fleet.workers()
    primary = service.primary()
    with redis.Redis(port=primary.port) as asking:
        until(lambda: asking.info("clients")["blocked_clients"] >= len(workers), "workers that sleep")
    service.fail_over()
    service.wait_for_another(primary)
    until(lambda: service.role(primary) == "slave", "the demotion")
    fleet.client.enqueue("note", args=["woken"], queue="default")
    until(lambda: fleet.journal("end", label="woken"), "the work continues", AFTER_FAILOVER_SECONDS)
    assert fleet.workers() == workers
    assert not fleet.log("worker.exited")


def test_a_wait_for_a_task_ends_although_the_primary_changed(service: Sentinels, namespace: str) -> None:
    primary = service.primary()
    with ThreadPoolExecutor(1) as threads, rota.Client(service.url, namespace) as client:
        handle = client.enqueue("note", queue="default")
        ended = threads.submit(handle.wait, 60)
        with redis.Redis(port=primary.port) as asking:
            until(lambda: asking.hlen(Keys(namespace).waiters), "a waiter that is known")
        until(lambda: service.replicated(primary), "replicas that have the task")
        primary.kill()
        service.wait_for_another(primary)
        assert until(lambda: _cancelled(handle), "the new primary cancels it")
        assert ended.result().state == "cancelled"


def test_an_async_wait_for_a_task_ends_although_the_primary_changed(service: Sentinels, namespace: str) -> None:
    primary = service.primary()

    async def program() -> str:
        async with rota.AsyncClient(service.url, namespace) as client:
            handle = await client.enqueue("note", queue="default")
            ended = asyncio.create_task(handle.wait(60))
            await asyncio.to_thread(until, lambda: service.replicated(primary), "replicas that have the task")
            primary.kill()
            await asyncio.to_thread(service.wait_for_another, primary)
            while not ended.done():
                with suppress(rota.Uncertain, rota.Unavailable):
                    await handle.cancel()
                await asyncio.sleep(0.05)
            return (await ended).state

    assert asyncio.run(program()) == "cancelled"


def _cancelled(handle: "rota.Handle[object]") -> bool:
    try:
        return handle.cancel() == "cancelled"
    except (rota.Uncertain, rota.Unavailable):
        return False


def test_old_primary_returns_as_replica_and_later_as_primary(service: Sentinels, fleet: RunningFleet) -> None:
    first = service.kill_primary()
    second = service.wait_for_another(first)
    fleet.client.enqueue("note", args=["at the second"], queue="default")
    fleet.wait_for("end", label="at the second")
    # According to its own files, this server is still the primary. Its data is from the time before it died.
    first.start()
    until(lambda: service.role(first) == "slave", "the old primary as a replica")
    until(lambda: service.replicated(service.primary()), "replicas that have all")
    second = service.kill_primary()
    third = service.wait_for_another(second)
    until(lambda: _taken(fleet, "at the third"), "an enqueue to the third")
    until(lambda: fleet.journal("end", label="at the third"), "the work continues", AFTER_FAILOVER_SECONDS)
    assert third is not second
    assert len(fleet.journal("end", label="at the second")) == 1
    assert fleet.books_balance()


def _taken(fleet: RunningFleet, label: str) -> bool:
    try:
        fleet.client.enqueue("note", args=[label], queue="default", id="third")
    except (rota.Uncertain, rota.Unavailable):
        return False
    return True


def test_missing_sentinels_affect_only_new_connections(service: Sentinels, fleet: RunningFleet) -> None:
    for sentinel in service.sentinels[:2]:
        sentinel.kill()
    fleet.client.close()
    fleet.client.enqueue("note", args=["one is left"], queue="default")
    fleet.wait_for("end", label="one is left")
    service.sentinels[2].kill()
    fleet.client.enqueue("note", args=["none is left"], queue="default")
    fleet.wait_for("end", label="none is left")
    fleet.client.close()
    with pytest.raises(rota.Unavailable, match=r"no sentinel named a usable primary of 'mymaster': .* gave no address"):
        fleet.client.enqueue("note", queue="default")
    checked = fleet.rota("check", "--no-imports")
    assert checked.returncode == 69
    assert "gave no address" in checked.stderr
    for sentinel in service.sentinels:
        sentinel.start_again()
    until(lambda: _taken(fleet, "they are back"), "the sentinels report the new primary")
    fleet.wait_for("end", label="they are back")
