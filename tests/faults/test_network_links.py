"""The network link to the server is silent or slow, or breaks for two hundred clients at the same time."""

import threading
import time
from collections import Counter
from datetime import datetime

from rota import Call
from rota.child.slot_memory import SlotMemory
from rota.server.address import parse_address
from rota.server.connection import DEFAULT_OPTIONS
from rota.server.link import Link
from rota.server.server_errors import ServerError
from rota.telemetry.recorder import Recorder
from support.fleets import Measure
from support.server_fixtures import (
    Producer,
    Shaken,
    everything_ended_once,
    extra_runs,
    nothing_was_requeued,
    wait_until_all_ran,
)
from support.waiting import until

WORKERS = 3
BLOCK_SECONDS = 5.0
LEASE_SECONDS = 5.0
SLOW_SECONDS = 6.0  # longer than the lease, so that there is enough time for renewals that take 0.3 s, 0.9 s or 1.5 s
# The delay applies in each direction. The calls of a heartbeat are made one after another, so a heartbeat takes at
# least 2.3 s.
SLOW_LINK_SECONDS = 0.38
# Workers rely on their lease for nine tenths of its length. The rest leaves time for a renewal whose reply is lost.
# Such a renewal is abandoned after 2.5 s.
LONG_LEASE = {
    "seconds": 10.0,
    "renew_seconds": 2.5,
}
# These processes are the master and the poller. The poller replaces its doorbell connection once its other connection
# works.
OTHERS = 2
CLIENTS = 200
AWAY_SECONDS = 3.0


def seconds_after(moment: float, line: dict[str, str]) -> float:
    """Return the number of seconds from `moment`, which is a Unix time, to the time of the log line."""
    return datetime.fromisoformat(line["timestamp"]).timestamp() - moment


def test_a_silent_link_to_redis_neither_loses_nor_repeats_tasks(shaken: Shaken, measured: Measure) -> None:
    fleet = shaken.start_behind_link(workers=WORKERS)
    fleet.hold("ends meanwhile")
    workers = fleet.workers()
    silent_at = time.time()
    shaken.link.silence(requests=True, replies=True)
    fleet.release("ends meanwhile")  # the worker sends the outcome of this task while the link is silent
    # The server still processes the BLPOPs of the other workers and the turns that were sent behind them. These turns
    # claim tasks, but no worker ever receives the replies.
    fleet.client.enqueue_many(Call("note", ["unheard"], queue="default") for _ in range(20))
    until(lambda: len(fleet.log("redis.lost")) >= WORKERS + OTHERS, "everybody noticed")
    noticed = {line["pid"]: seconds_after(silent_at, line) for line in fleet.log("redis.lost")}
    measured("seconds until the last worker had given the silent link up", max(noticed[pid] for pid in workers))
    assert max(noticed[pid] for pid in workers) < BLOCK_SECONDS + 3 + 1  # the last second allows for a busy machine
    assert not fleet.journal("start", label="unheard")
    shaken.link.heal()
    fleet.wait_for("end", 20, label="unheard")
    everything_ended_once(fleet)
    assert fleet.workers() == workers


def test_requests_that_arrive_late_take_effect_only_once(shaken: Shaken) -> None:
    fleet = shaken.start_behind_link(workers=WORKERS)
    fleet.hold("ends meanwhile")
    shaken.link.hold(requests=True, replies=True)
    fleet.release("ends meanwhile")
    fleet.client.enqueue_many(Call("note", ["unheard"], queue="default") for _ in range(20))
    until(
        lambda: {"worker", "poller"} <= {line["role"] for line in fleet.log("redis.lost")},
        "the waiting workers have given up",
    )
    # All data that was sent in the meantime arrives at once. By now, no process reads from these connections.
    shaken.link.heal()
    fleet.wait_for("end", 20, label="unheard")
    everything_ended_once(fleet)


def test_on_a_slow_lossy_link_no_lease_is_lost_and_no_task_repeated(shaken: Shaken) -> None:
    fleet = shaken.start_behind_link(
        workers=WORKERS, lease={"seconds": LEASE_SECONDS, "renew_seconds": LEASE_SECONDS / 4}
    )
    workers = fleet.workers()
    shaken.link.delay(0.13, jitter=0.04)
    shaken.link.stall_some(0.05, 0.6)
    fleet.client.enqueue_many(Call("note", ["due"], queue="default", delay=n * SLOW_SECONDS / 60) for n in range(60))
    with Producer(shaken.server.url, shaken.namespace) as producer:
        fleet.wait_for("end", 60, label="due")
    shaken.link.heal()
    wait_until_all_ran(fleet, producer)
    assert not extra_runs(fleet)
    assert fleet.workers() == workers
    nothing_was_requeued(fleet)
    assert not fleet.log("worker.fenced")


def test_a_lost_lease_renewal_over_a_slow_link_stops_no_worker(shaken: Shaken) -> None:
    fleet = shaken.start_behind_link(workers=WORKERS, lease=LONG_LEASE)
    calls = shaken.link.calls

    def wait_for(name: str, more: int) -> None:
        wanted = calls[name] + more
        until(lambda: calls[name] >= wanted, f"{more} x {name}")

    shaken.link.delay(SLOW_LINK_SECONDS)
    # Only workers that have tasks to claim check the fence.
    with Producer(shaken.server.url, shaken.namespace) as producer:
        wait_for("announce", 2)  # each call of `announce` follows a renewal
        shaken.link.lose_replies(1, of="renew", cut=False)
        wait_for("renew", 3)
    assert shaken.link.lost["renew"] == 1
    shaken.link.heal()
    wait_until_all_ran(fleet, producer)
    nothing_was_requeued(fleet)
    assert not fleet.log("worker.fenced")


# Many clients at the same time


def stay_connected(link: Link, over: threading.Event) -> None:
    """Connect as a worker does, until `over` is set. After each failed attempt, wait for the time that the product's
    `Link` returns.
    """
    while not over.is_set():
        try:
            link.connection().execute("PING")
        except ServerError as error:
            over.wait(link.failed(error))
        else:
            link.succeeded()
            over.wait(0.2)
    link.close()


def test_reconnects_of_200_clients_are_spread_out(shaken: Shaken, measured: Measure) -> None:
    over = threading.Event()
    slots = SlotMemory.create(CLIENTS)
    links = [
        Link(parse_address(shaken.link.url), DEFAULT_OPTIONS, Recorder(slots.slot(n).metrics)) for n in range(CLIENTS)
    ]
    threads = [threading.Thread(target=stay_connected, args=(link, over)) for link in links]
    for thread in threads:
        thread.start()
    try:
        until(lambda: shaken.link.connections == CLIENTS, "all connected")
        shaken.link.refuse()
        shaken.link.cut()
        before = len(shaken.link.attempts)
        cut_at = time.monotonic()
        time.sleep(AWAY_SECONDS)
        shaken.link.refuse(False)
        back_at = time.monotonic()
        until(lambda: shaken.link.connections == CLIENTS, "all connected again")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    attempts = [at - cut_at for at in shaken.link.attempts[before:]]
    tenths = Counter(int(at * 10) for at in attempts if at > AWAY_SECONDS / 2)
    last = max(attempts) - (back_at - cut_at)
    measured("attempts of each client in the seconds without a server", len(attempts) / CLIENTS)
    measured("most attempts within 100 ms in the second half of that time", max(tenths.values()))
    measured("seconds until the last was back", last)
    assert len(attempts) <= CLIENTS * 10
    # Without jitter, all clients would connect at the same time. Some of them do so in any case, because a loaded
    # machine wakes several threads together.
    assert max(tenths.values()) <= CLIENTS / 2
    assert last <= 3
