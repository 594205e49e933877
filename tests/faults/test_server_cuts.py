"""The server closes connections, forgets its scripts, or suddenly becomes a replica. The workers reconnect, and none of
them exits.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis

from rota import Call
from support.fleets import Measure, RunningFleet
from support.server_fixtures import SHORT_LEASE, Producer, Shaken, extra_runs, nothing_was_requeued, wait_until_all_ran
from support.waiting import repeating, until

CUT_SECONDS = 0.1
CUTS = 25
FLUSHES = 20
LOAD = 200
WORKERS = 4
DEMOTED_SECONDS = 2.0
MOST_TRIES_A_SECOND = 4  # the pause is 0.2 s after the first failed attempt, and doubles after each further failure
# The number of connections of a fleet with this number of workers. Each worker has one, the poller and the master have
# two each, and the exporter has one.
CONNECTIONS = WORKERS + 5


@contextmanager
def again_and_again(action: Callable[[], object], seconds: float, times: int) -> Iterator[threading.Event]:
    """Call this function repeatedly in a thread, every `seconds` seconds. Yields an event that is set after `times`
    calls.
    """
    done = itertools.count(1)
    enough = threading.Event()

    def act() -> None:
        action()
        if next(done) >= times:
            enough.set()

    with repeating(act, seconds):
        yield enough


def cut_all(shaken: Shaken) -> None:
    shaken.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def test_frequent_connection_cuts_lose_and_repeat_no_task(shaken: Shaken) -> None:
    fleet = shaken.start(workers=WORKERS)
    fleet.hold("ends meanwhile")
    with (
        Producer(shaken.server.url, shaken.namespace) as producer,
        again_and_again(lambda: cut_all(shaken), CUT_SECONDS, CUTS) as cut_often,
    ):
        assert cut_often.wait(60)
        fleet.release("ends meanwhile")
        fleet.wait_for("end", label="ends meanwhile")
    wait_until_all_ran(fleet, producer)
    assert len(producer.accepted) > CUTS
    assert not extra_runs(fleet)
    nothing_was_requeued(fleet)


def test_an_idle_fleet_with_frequent_cuts_does_not_reconnect_in_a_busy_loop(shaken: Shaken, measured: Measure) -> None:
    fleet = shaken.start(workers=WORKERS)
    until(lambda: len(shaken.redis.client_list(_type="normal")) >= CONNECTIONS - 1, "an idle fleet")
    before = shaken.info("total_connections_received"), shaken.info("total_commands_processed")
    with again_and_again(lambda: cut_all(shaken), CUT_SECONDS, CUTS) as cut_often:
        assert cut_often.wait(60)
    made = shaken.info("total_connections_received") - before[0]
    commands = shaken.info("total_commands_processed") - before[1]
    measured("connections made for each that was cut", made / CUTS / CONNECTIONS)
    measured("commands for each connection that was cut", commands / CUTS / CONNECTIONS)
    # For each connection that was closed, there is at most one new connection. On the new connection, the process sends
    # a greeting, two turns and a BLPOP. The scripts of the turns run further commands.
    assert made <= (CUTS + 5) * CONNECTIONS
    assert commands <= (CUTS + 5) * CONNECTIONS * 30
    fleet.client.enqueue("note", queue="default")
    fleet.wait_for("end")


def test_frequent_script_flushes_under_load_lose_and_repeat_no_task(shaken: Shaken) -> None:
    fleet = shaken.start(workers=WORKERS)
    late = [Call("note", ["due"], queue="default", delay=n / 20) for n in range(60)]
    fleet.client.enqueue_many(late)
    with (
        Producer(shaken.server.url, shaken.namespace) as producer,
        again_and_again(shaken.redis.script_flush, CUT_SECONDS, FLUSHES) as flushed_often,
    ):
        assert flushed_often.wait(60)
    fleet.wait_for("end", 60, label="due")
    wait_until_all_ran(fleet, producer)
    assert len(producer.accepted) > FLUSHES
    assert not producer.doubtful
    assert not extra_runs(fleet)
    nothing_was_requeued(fleet)
    assert not fleet.log("redis.lost")
    assert not fleet.log("redis.refused")


# Demotion


def demote(shaken: Shaken, port: int) -> None:
    shaken.do("REPLICAOF", "127.0.0.1", str(port))


def wait_until_all_lost_it(fleet: RunningFleet) -> None:
    """Wait until the log shows that each worker, the master, and both connections of the poller have noticed that the
    server is lost.
    """
    until(lambda: len(fleet.log("redis.lost")) >= WORKERS + 3, "everybody noticed")


def test_workers_whose_server_became_a_replica_wait_for_a_primary(shaken: Shaken, measured: Measure) -> None:
    fleet = shaken.start(workers=WORKERS, lease=SHORT_LEASE)
    fleet.hold("ends meanwhile")
    workers = fleet.workers()
    demote(shaken, 1)  # no server replies at port 1, the port of the supposed new primary
    fleet.release("ends meanwhile")
    wait_until_all_lost_it(fleet)
    fleet.wait_for("end", label="ends meanwhile")
    assert {line["reason"] for line in fleet.log("redis.lost") if "reason" in line} <= {"readonly", "unblocked"}
    before = shaken.info("total_connections_received")
    time.sleep(DEMOTED_SECONDS)
    tries = shaken.info("total_connections_received") - before
    measured("tries a second of each connection while there is no primary", tries / DEMOTED_SECONDS / CONNECTIONS)
    assert tries <= DEMOTED_SECONDS * CONNECTIONS * MOST_TRIES_A_SECOND
    shaken.do("REPLICAOF", "NO", "ONE")
    fleet.client.enqueue_many(Call("note", ["after"], queue="default") for _ in range(LOAD))
    fleet.wait_for("end", LOAD, label="after")
    fleet.wait_until_nothing_waits(30)
    assert not extra_runs(fleet)
    assert fleet.workers() == workers
    nothing_was_requeued(fleet)


def test_fleet_continues_when_the_link_leads_to_a_new_primary(shaken: Shaken) -> None:
    fleet = shaken.start_behind_link(workers=WORKERS, lease=SHORT_LEASE)
    fleet.hold("ends meanwhile")
    fleet.client.enqueue_many(Call("note", ["due"], queue="default", delay=1) for _ in range(20))
    workers = fleet.workers()
    replica = shaken.start_replica()
    with redis.Redis.from_url(replica.url) as new:
        new.replicaof("NO", "ONE")
    shaken.link.point_at(replica.port)
    demote(shaken, replica.port)
    fleet.release("ends meanwhile")
    fleet.wait_for("end", label="ends meanwhile")
    fleet.wait_for("end", 20, label="due")
    fleet.wait_until_nothing_waits(30)  # this call also reaches the server through the link
    assert fleet.books_balance()
    assert not extra_runs(fleet)
    assert fleet.workers() == workers
    nothing_was_requeued(fleet)
