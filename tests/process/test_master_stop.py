"""Stops of a fleet: after a drain, at once, while the fleet starts, and before the fleet has started."""

import os
import signal
from pathlib import Path

import pytest

from support.masters import ON_ONE_SERVER, Mastered
from support.processes import descendants, is_alive
from support.waiting import until

pytestmark = ON_ONE_SERVER


def test_task_unfinished_after_the_drain_is_released_without_blame(fleet: Mastered) -> None:
    fleet.configure("workers = 2\n[limits]\ndrain_seconds = 0.5")
    fleet.start()
    fleet.push("hold", "a")
    until(fleet.ran)
    fleet.signal(signal.SIGTERM)
    assert fleet.exit_code() == 0
    assert fleet.inflight() == []
    (entry,) = fleet.lane()
    fields = entry.split()
    # The fields 5 to 8 of an entry count failures, crashes, losses and releases.
    assert (fields[0], fields[5:9]) == (b"a", [b"0", b"0", b"0", b"1"])


def test_sigquit_kills_at_once_and_returns_every_task(fleet: Mastered) -> None:
    fleet.start()
    fleet.push("hold", "a")
    until(fleet.ran)
    everybody = descendants(fleet.pid)
    fleet.signal(signal.SIGQUIT)
    assert fleet.exit_code() == 0
    assert fleet.inflight() == []
    assert len(fleet.lane()) == 1
    assert not any(map(is_alive, everybody))


def test_second_stop_signal_stops_at_once(fleet: Mastered) -> None:
    fleet.start()
    fleet.push("hold", "a")
    until(fleet.ran)
    fleet.signal(signal.SIGINT)
    until(lambda: fleet.log("fleet.draining"))

    def second() -> bool:
        fleet.signal(signal.SIGINT)
        return any(line["at_once"] for line in fleet.log("fleet.draining"))

    until(second)
    assert fleet.exit_code() == 0
    assert len(fleet.lane()) == 1


@pytest.mark.parametrize("module", ["import time; time.sleep(600)", ""], ids=["during imports", "at any moment"])
def test_a_stop_during_the_start_is_not_lost(fleet: Mastered, module: str) -> None:
    (fleet.folder / "slow.py").write_text(module)
    fleet.configure('imports = ["tasks", "slow"]')
    fleet.launch()
    if module:
        until(lambda: fleet.log("fleet.starting"))
    else:
        # The master blocks the signals before it imports large modules. A signal that arrives even earlier ends the
        # process.
        until(lambda: "SigBlk:\t0000000000000000" not in Path(f"/proc/{fleet.pid}/status").read_text())
    fleet.signal(signal.SIGTERM)
    assert fleet.exit_code() == 0
    until(lambda: not descendants(fleet.pid))


def test_burst_exits_when_no_task_is_ready_or_running(fleet: Mastered) -> None:
    for text in "abcdef":
        fleet.push("note", text)
    fleet.launch("--burst")
    assert fleet.exit_code() == 0
    assert sorted(fleet.ran()) == list("abcdef")
    assert fleet.inflight() == []


def test_a_stop_command_leaves_nothing_but_events_in_the_log(fleet: Mastered) -> None:
    fleet.start()
    assert fleet.rota("stop").returncode == 0
    assert fleet.exit_code() == 0
    assert len(fleet.log()) == len(fleet.log_text().splitlines())
    assert not fleet.log("fleet.call_failed")


@pytest.mark.parametrize(
    ("module", "code", "said"),
    [
        ("import nowhere_at_all", 78, "nowhere_at_all"),
        ("import os; os._exit(1)", 70, "died 5 times before being ready"),
        ("import rota, os\n@rota.on_worker_start\ndef start(): os._exit(3)", 70, "workers of pool"),
        ("import rota\n@rota.task(queue='nowhere')\ndef stray(): ...", 78, "no tier serves queue 'nowhere'"),
    ],
    ids=["does not import", "dies at import", "dies in a hook", "unserved queue"],
)
def test_a_first_start_that_always_fails_ends_with_an_error(fleet: Mastered, module: str, code: int, said: str) -> None:
    (fleet.folder / "broken.py").write_text(module)
    fleet.configure('imports = ["tasks", "broken"]\n[restarts]\nbackoff_seconds = 0.01\nbackoff_max_seconds = 0.02')
    fleet.launch()
    assert fleet.exit_code() == code
    assert "rota: error:" in fleet.log_text()
    assert said in fleet.log_text()
    assert not descendants(fleet.pid)
    assert not (fleet.folder / "control").exists()


def test_a_fleet_works_although_its_parent_process_ignores_sigchld(fleet: Mastered) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        fleet.start()
    finally:
        signal.signal(signal.SIGCHLD, before)
    (worker, *_) = fleet.until_workers(2)
    os.kill(worker, signal.SIGKILL)
    until(lambda: worker not in fleet.pids("worker"))
    fleet.until_workers(2)
