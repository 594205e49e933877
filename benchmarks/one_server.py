"""`PYTHONPATH=tests python -m benchmarks.one_server`: measures the capacity of one server. Only Rota is measured. The
server has a processor to itself, and all other processes share the other processors. The report shows how much time a
task costs the server's processor, both for the enqueue (with one and with 500 tasks per call) and from the claim to the
end of the task. Tasks of different lengths are measured, because a worker claims many empty tasks at once, several
tasks of 1 ms, but only one task of 10 ms. Longer tasks cost the same as tasks of 10 ms. The report also contains the
rate of tasks at which the server's processor is 70 % busy, and the number of workers that this rate keeps busy.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.contenders.rota import ROTA
from benchmarks.measures.drain import drain
from benchmarks.processes import adopt_orphans, cpu_seconds, give_a_processor_to
from benchmarks.running import running
from benchmarks.testbed import Testbed
from support.servers import Server, server_binaries

ENQUEUED: Final = 10_000
SHARE: Final = 0.7


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of task, and with how many tasks and workers it is measured."""

    title: str
    name: str
    seconds: float
    workers: int
    tasks: int


KINDS: Final = (
    Kind("that do nothing", "nothing", 0.0, 2, 60_000),
    Kind("of 1 ms", "brief", 0.001, 8, 15_000),
    Kind("of 10 ms", "work", 0.01, 32, 10_000),
)
LONGER: Final = 0.1


def main() -> None:
    """Run the measurements, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_server")
    parser.add_argument("--server", choices=sorted(server_binaries()), default=min(server_binaries()))
    wanted = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as name:
        server = Server(server_binaries()[wanted.server], Path(name)).start()
        try:
            give_a_processor_to(server.pid)
            _measure(Testbed(server, Path(name)))
        finally:
            server.stop()


def _measure(testbed: Testbed) -> None:
    singly_us = _enqueue_us(testbed)
    for kind in KINDS:
        run_us = _run_us(testbed, kind)
        _say_what_follows(kind.title, kind.seconds, singly_us + run_us)
    _say_what_follows(f"of {LONGER:g} s", LONGER, singly_us + run_us)


def _enqueue_us(testbed: Testbed) -> float:
    """Measure the enqueue with 500 tasks and with one task per call. Return the server's processor time per task with
    one task per call, in microseconds.
    """
    with running(ROTA, testbed, KINDS[0].workers) as run:
        run.contender.hold(run)
        for title, enqueue in (("500 per call", run.producer.many), ("one per call", run.producer.each)):
            server = [psutil.Process(testbed.server_pid)]
            before = cpu_seconds(server)
            enqueue("nothing", ENQUEUED)
            each_us = (cpu_seconds(server) - before) / ENQUEUED * 1_000_000
            print(f"enqueue, {title}: {each_us:.1f} us per task", flush=True)
        return each_us


def _run_us(testbed: Testbed, kind: Kind) -> float:
    """Return the server's processor time for one task of this kind, from its claim to its end, in microseconds."""
    with running(ROTA, testbed, kind.workers) as run:
        drain(run, kind.name, kind.tasks // 5)  # warms up all processes
        took = drain(run, kind.name, kind.tasks)
    each_us = took.server_seconds / kind.tasks * 1_000_000
    busy = took.server_seconds / took.seconds
    rate = kind.tasks / took.seconds
    print(f"tasks {kind.title}, {kind.workers} workers: {each_us:.1f} us per task; {busy:.0%} busy at {rate:,.0f}/s")
    return each_us


def _say_what_follows(title: str, seconds: float, each_us: float) -> None:
    rate = SHARE * 1_000_000 / each_us
    workers = f", {rate * seconds:,.0f} workers that are always busy" if seconds else ""
    print(
        f"  {SHARE:.0%} of a processor is enough for {rate:,.0f}/s {title}, enqueued one per call{workers}", flush=True
    )


if __name__ == "__main__":
    main()
