"""`python -m benchmarks.supervision`: measures the cost of supervision. Only Rota is measured, with an application that
takes 100 MB of memory.

1. The memory of each of 8 workers, before and after a full garbage collection in all of them.
2. The time from the SIGKILL of a worker until its replacement has started, and until the replacement runs the killed
   worker's task, while all 8 workers are busy.
3. The processor time of the master and of the whole fleet while they are idle.
4. The time from the request for a reload until new workers have taken over. The reload changes the settings of all
   workers, but not the code.
5. The response time of the control socket, with and without a Redis server. This time shows for how long the master's
   loop is blocked.
"""

import argparse
import contextlib
import os
import signal
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Self

import psutil

from benchmarks.processes import cpu_seconds
from support.fleets import RunningFleet
from support.servers import Server, server_binaries
from support.waiting import until

WORKERS: Final = 8
RELOADS: Final = 10
POLL_SECONDS: Final = 0.001
_MB: Final = 1_000_000
# Like a real application, this one holds many objects that have reference counts and are tracked by the garbage
# collector.
_APPLICATION: Final = """
import gc
import rota
from tasks import hold

ROWS = [{"id": number, "name": f"name of {number}", "at": [number, number + 0.5]} for number in range(%d)]


@rota.task
def collect_and_hold(label: str) -> None:
    gc.collect()
    hold(label)
"""
_ROWS_OF_100_MB: Final = 200_000


def main() -> None:
    """Run the measurements, and print the results."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="rota-bench") as name, _server(Path(name), arguments.server) as server:
        folder = Path(name) / "fleet"
        folder.mkdir()
        fleet = RunningFleet(server.url, "bench", folder, workers=WORKERS, imports=["application", "tasks"])
        (folder / "application.py").write_text(_APPLICATION % _ROWS_OF_100_MB)
        try:
            fleet.start()
            _memory(fleet)
            _replacement(fleet, arguments.kills)
            _idle(fleet, arguments.idle_seconds)
            _reloads(fleet)
            _lag(fleet, server)
        finally:
            fleet.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.supervision")
    parser.add_argument("--server", choices=sorted(server_binaries()), default=min(server_binaries()))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    return parser.parse_args()


@contextlib.contextmanager
def _server(folder: Path, name: str) -> Iterator[Server]:
    running = Server(server_binaries()[name], folder).start()
    try:
        yield running
    finally:
        running.stop()


# Memory


def _memory(fleet: RunningFleet) -> None:
    [zygote] = fleet.pids("zygote", "ready")
    print(f"the application in the zygote: {psutil.Process(zygote).memory_info().rss / _MB:.0f} MB resident")
    _print_memory(fleet, "after the start")
    labels = [f"collected {number}" for number in range(WORKERS)]
    for label in labels:
        fleet.client.enqueue("collect_and_hold", args=[label], queue="default")
    for label in labels:
        fleet.wait_for("start", label=label)
    _print_memory(fleet, "after a full collection in each")
    for label in labels:
        fleet.release(label)
    fleet.wait_for("end", len(labels))


def _print_memory(fleet: RunningFleet, when: str) -> None:
    used = [psutil.Process(pid).memory_full_info() for pid in sorted(fleet.workers())]
    uss, pss = ([getattr(each, kind) / _MB for each in used] for kind in ("uss", "pss"))
    print(f"{WORKERS} workers {when}, MB: USS {_each(uss)}; PSS {_each(pss)}")


def _each(numbers: Sequence[float]) -> str:
    return f"{' '.join(f'{number:.1f}' for number in numbers)} (median {statistics.median(numbers):.1f})"


# Replacement


def _replacement(fleet: RunningFleet, kills: int) -> None:
    held = [f"held {number}" for number in range(WORKERS)]
    for label in held:
        fleet.hold(label)
    ready = []
    again = []
    for number in range(kills):
        label = held.pop(0)
        ready_ms, again_ms = _kill_the_worker_of(label, fleet)
        ready.append(ready_ms)
        again.append(again_ms)
        fleet.release(label)
        fleet.wait_for("end", label=label)
        held.append(f"held {WORKERS + number}")
        fleet.hold(held[-1])
        time.sleep(0.02 + 0.003 * (number % 10))  # so that each kill hits another phase of the periodic work
    for label in held:
        fleet.release(label)
    fleet.wait_for("end", len(held))
    _print_spread(f"{kills} kills: until the replacement has started", ready)
    _print_spread(f"{kills} kills: until the task runs again, in the replacement", again)


def _kill_the_worker_of(label: str, fleet: RunningFleet) -> tuple[float, float]:
    """Return how many milliseconds pass until the replacement is ready, and until the task runs again. The replacement
    records both times, so the master is not disturbed by queries in the meantime.
    """
    [first] = fleet.journal("start", label=label)
    at = time.time()
    os.kill(first.pid, signal.SIGKILL)
    second = fleet.wait_for("start", 2, label=label)[1]
    [ready] = [line for line in fleet.log("worker.started") if line["pid"] == second.pid]
    return (datetime.fromisoformat(ready["timestamp"]).timestamp() - at) * 1000, (second.at - at) * 1000


def _print_spread(what: str, numbers: Sequence[float]) -> None:
    ordered = sorted(numbers)
    p50, p90, p99 = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.9, 0.99))
    print(f"{what}, ms: p50 {p50:.1f}  p90 {p90:.1f}  p99 {p99:.1f}  most {ordered[-1]:.1f}")


# The cost of an idle fleet


def _idle(fleet: RunningFleet, seconds: float) -> None:
    master = [psutil.Process(fleet.pid)]
    everybody = fleet.processes()
    before = cpu_seconds(master), cpu_seconds(everybody)
    time.sleep(seconds)
    of_master = cpu_seconds(master) - before[0]
    of_all = cpu_seconds(everybody) - before[1]
    print(f"idle for {seconds:g} s: master {of_master / seconds:.3%} of a core, whole fleet {of_all / seconds:.3%}")


# A reload


def _reloads(fleet: RunningFleet) -> None:
    took_ms = []
    for number in range(RELOADS):
        fleet.edit(limits={"time_limit_seconds": 1000 + number})
        at = time.perf_counter()
        outcome = fleet.request("reload")["reload"]
        took_ms.append((time.perf_counter() - at) * 1000)
        assert outcome["result"] == "success", outcome
    _print_spread(f"{RELOADS} reloads with other settings for {WORKERS} workers", took_ms)


# The loop


class _Asking(threading.Thread):
    """A thread that requests the master's status every millisecond and records the response times."""

    def __init__(self, fleet: RunningFleet) -> None:
        super().__init__()
        self.answers_ms: list[float] = []
        self._testbed = str(fleet.folder / "control")
        self._over = threading.Event()

    def run(self) -> None:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(self._testbed)
            replies = asking.makefile("rb")
            while not self._over.wait(POLL_SECONDS):
                at = time.perf_counter()
                asking.sendall(b'{"verb": "status"}\n')
                replies.readline()
                self.answers_ms.append((time.perf_counter() - at) * 1000)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def _lag(fleet: RunningFleet, server: Server) -> None:
    with _Asking(fleet) as asking:
        time.sleep(3)
    _print_spread("status while nothing happens", asking.answers_ms)
    with _Asking(fleet) as asking:
        for pid in fleet.workers():
            os.kill(pid, signal.SIGKILL)
        until(fleet.is_whole, "a whole fleet")
    _print_spread(f"status while all {WORKERS} workers are replaced", asking.answers_ms)
    os.kill(server.pid, signal.SIGSTOP)
    with _Asking(fleet) as asking:
        time.sleep(8)
    _print_spread("status while the server is silent", asking.answers_ms)
    server.kill()
    with _Asking(fleet) as asking:
        time.sleep(8)
    _print_spread("status while the server refuses connections", asking.answers_ms)


if __name__ == "__main__":
    main()
