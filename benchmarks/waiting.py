"""`python -m benchmarks.waiting [THREADS] [WORKERS]`: measures with what delay waiting threads receive a result.

The program starts its own server. Many threads of one process each wait for the result of their own task. The result is
the time at which the task's function ended, so the thread can compute the delay. The delay includes the call with which
the worker settles the task, the wake-up of the client, the query for the result, and the time until the thread runs.
"""

import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import redis

from rota.client.blocking.handles import Handle
from rota.protocol.keys import Keys
from support.fleets import RunningFleet, running_fleet
from support.servers import Server, server_binaries
from support.waiting import until

TASK_SECONDS: Final = (0.0, 0.005, 0.02)
SECONDS: Final = 60.0


def measure(fleet: RunningFleet, threads: int, seconds: float) -> list[float]:
    """Return the delays in seconds, in ascending order. A delay is the time from the end of a task's function until the
    waiting thread has the result."""
    client = fleet.client
    waits = list[float]()
    client.pause("default")  # so that no task runs before all threads wait
    handles = [client.enqueue("tell_end", args=[seconds], queue="default") for _ in range(threads)]

    def wait(handle: Handle[float]) -> None:
        ended_at = handle.result(SECONDS)
        waits.append(time.time() - ended_at)

    waiting = [threading.Thread(target=wait, args=(handle,)) for handle in handles]
    for thread in waiting:
        thread.start()
    _until_noted(fleet, threads)
    client.resume("default")
    for thread in waiting:
        thread.join()
    return sorted(waits)


def _until_noted(fleet: RunningFleet, count: int) -> None:
    with redis.Redis.from_url(fleet.url) as looking:
        until(lambda: looking.hlen(Keys(fleet.namespace).waiters) == count, f"{count} tasks that are waited for")


def _shown(waits: list[float]) -> str:
    shares = (0.5, 0.9, 0.99, 1.0)
    return ", ".join(f"{share:.0%} within {waits[int(share * (len(waits) - 1))] * 1000:.1f} ms" for share in shares)


def main() -> None:
    """Run the measurements, and print the results."""
    threads, workers = (int(word) for word in [*sys.argv[1:], "500", "2"][:2])
    kind, binary = min(server_binaries().items())
    with tempfile.TemporaryDirectory() as of_server, tempfile.TemporaryDirectory() as of_fleet:
        server = Server(binary, Path(of_server)).start()
        try:
            settings = {"workers": workers, "log": {"tasks": "failures"}}
            with running_fleet(server.url, "bench", Path(of_fleet), **settings) as fleet:
                for seconds in TASK_SECONDS:
                    shown = _shown(measure(fleet, threads, seconds))
                    print(f"{kind}, {threads} threads, {workers} workers, tasks of {seconds * 1000:g} ms: {shown}")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
