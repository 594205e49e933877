"""Crash loops in real fleets. The fleet reports and slows down each crash loop, and recovers when the cause is removed.
Pools without a fault continue to work.
"""

import contextlib
import os
import signal

from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

QUICK = {"backoff_seconds": 0.02, "backoff_max_seconds": 0.2, "crash_limit": 1000}
MOODY = """
import os, rota

def fail_if(what):
    if os.path.exists(what): os._exit(3)

@rota.on_worker_start
def start(): fail_if("no-start")

@rota.task(queue="mail")
def send(number: int) -> None: fail_if("no-send")
"""

PICKY = """
import os, rota

@rota.on_worker_start
def start():
    try:
        os.open("only-one", os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        if not os.path.exists("mended"): os._exit(3)
"""


def fleet_of_two_pools(fleets: Fleets, **restarts: float) -> RunningFleet:
    """Return a fleet with the pools `mail` and `rest`. Tests can make the task and the hook of `mail` fail."""
    fleet = fleets.make(
        restarts=QUICK | restarts,
        tiers=[["mail"], ["default"]],
        pools={"mail": {"workers": 2, "queues": ["mail"]}, "rest": {"queues": ["default"]}},
    )
    (fleet.folder / "moody.py").write_text(MOODY)
    fleet.edit(imports=["tasks", "moody"])
    return fleet.start()


def events(fleet: RunningFleet, pool: str) -> list[str]:
    """Return the names of the crash loop events that were logged for this pool, in order of time."""
    told = ("pool.backoff", "pool.fatal", "pool.back")
    lines = [line for event in told for line in fleet.log(event) if line.get("pool") == pool]
    return [line["event"] for line in sorted(lines, key=lambda line: str(line["timestamp"]))]


def runs(fleet: RunningFleet, label: str) -> None:
    fleet.client.enqueue("note", args=[label], queue="default")
    fleet.wait_for("end", label=label)


def test_crash_loop_ends_when_a_task_succeeds(fleets: Fleets) -> None:
    fleet = fleet_of_two_pools(fleets)
    (fleet.folder / "no-send").touch()
    for number in range(20):
        fleet.client.enqueue("send", args=[number], queue="mail")
    until(lambda: "pool.fatal" in events(fleet, "mail"), "the crash loop is reported")
    assert events(fleet, "mail") == ["pool.backoff", "pool.fatal"]
    ready, words = fleet.get("/readyz")
    assert (ready, fleet.get("/livez")[0]) == (503, 200)
    assert "pool mail is in fatal" in words
    assert "exited with code 3" in words
    assert fleet.rota("health", "--ready").returncode == 1
    status = fleet.status()
    [row] = status["held"]
    assert (row["pool"], row["state"]) == ("mail", "fatal")
    assert {pool["name"]: pool["state"] for pool in status["pools"]} == {"mail": "fatal", "rest": "running"}
    until(lambda: fleet.metrics().total("rota_workers", pool="mail", state="fatal") > 0, "workers shown as held back")
    runs(fleet, "healthy slots go on")
    (fleet.folder / "no-send").unlink()
    fleet.wait_until_nothing_waits(30)
    until(fleet.is_whole, "a whole fleet, though no healthy minute has passed")
    assert events(fleet, "mail")[-1] == "pool.back"
    assert fleet.log("task.dead") == []


def test_a_pool_whose_starts_fail_is_reported_as_fatal_and_still_retried(fleets: Fleets) -> None:
    fleet = fleet_of_two_pools(fleets)
    (fleet.folder / "no-start").touch()
    [survivor] = [row["pid"] for row in fleet.children("worker") if row["pool"] == "rest"]
    for pid in fleet.workers() - {survivor}:
        os.kill(pid, signal.SIGKILL)
    until(lambda: "pool.fatal" in events(fleet, "mail"), "a person is called")
    tries = len(fleet.log("worker.exited"))
    until(lambda: len(fleet.log("worker.exited")) >= tries + 3, "starts are tried again and again")
    assert fleet.get("/readyz")[0] == 503
    runs(fleet, "the other pool goes on")
    assert survivor in fleet.workers()
    (fleet.folder / "no-start").unlink()
    until(fleet.is_whole, "a whole fleet by itself")
    assert events(fleet, "mail") == ["pool.backoff", "pool.fatal", "pool.back"]
    assert events(fleet, "rest") == []


def test_crashing_poller_backs_off_and_recovers(fleets: Fleets) -> None:
    fleet = fleets.start(workers=1, restarts=QUICK | {"healthy_seconds": 2.0})

    def kill_poller() -> bool:
        for pid in fleet.pids("poller", "ready"):
            with contextlib.suppress(ProcessLookupError):  # the process may be listed although it has just been killed
                os.kill(pid, signal.SIGSEGV)
        return bool(fleet.log("pool.backoff"))

    until(kill_poller, "the poller is in back-off")
    assert [line["child"] for line in fleet.log("pool.backoff")] == ["poller"]
    answer = fleet.get("/readyz")
    assert answer[0] == 503
    assert "the poller is in backoff" in answer[1]
    until(fleet.is_whole, "a healthy time later all is well")
    assert [line["child"] for line in fleet.log("pool.back")] == ["poller"]


def test_reload_ends_the_back_off_at_once(fleets: Fleets) -> None:
    fleet = fleet_of_two_pools(fleets, backoff_seconds=300.0, backoff_max_seconds=300.0)
    (fleet.folder / "no-start").touch()
    os.kill(min(fleet.workers()), signal.SIGKILL)
    until(lambda: fleet.metrics().total("rota_workers", state="backoff") > 0, "one waits for five minutes")
    (fleet.folder / "no-start").unlink()
    fleet.hup()
    until(fleet.is_whole, "a whole fleet, long before that")


def test_a_fleet_starts_even_if_only_one_of_its_pools_works(fleets: Fleets) -> None:
    fleet = fleets.make(restarts=QUICK, pools={"mail": {}, "rest": {}})
    (fleet.folder / "picky.py").write_text(PICKY)
    fleet.edit(imports=["tasks", "picky"])
    fleet.launch()
    until(lambda: "pool.fatal" in [*events(fleet, "mail"), *events(fleet, "rest")], "one of them needs a person")
    runs(fleet, "the other works")
    (fleet.folder / "mended").touch()
    until(fleet.is_whole, "a whole fleet")
    assert len(fleet.log("fleet.ready")) == 1
