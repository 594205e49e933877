"""A running contender: its fleet and its producer together, from start to end."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psutil

from benchmarks.contender import ROOT, Contender
from benchmarks.processes import kill_tree, send, tree
from benchmarks.producer import Producer
from benchmarks.testbed import Failed, Testbed, wait_until

START_SECONDS = 40.0
_AGAIN_SECONDS = 0.7
_MOST_MEETING = 80  # tasks per worker, because some workers prefetch this many before they run the first one
_SHOWN_CHARACTERS = 2000


class Running:
    """A running contender, which is a fleet with `workers` workers and a producer. `popens`: the processes that were
    started for the fleet.
    """

    def __init__(self, contender: Contender, testbed: Testbed, workers: int) -> None:
        self.contender = contender
        self.testbed = testbed
        self.workers = workers
        self.popens: list[subprocess.Popen[bytes]] = []
        self.log_path = testbed.folder / f"{contender.name}.log"
        self._log = self.log_path.open("wb")
        self._frozen: list[psutil.Process] = []
        self.producer = Producer(contender.producer(), self._environment(), self._log)
        self._spared = {testbed.server_pid, self.producer.process.pid}

    def _environment(self) -> Mapping[str, str]:
        special = self.contender.environment(self.testbed)
        path = os.pathsep.join(filter(None, (str(ROOT), special.get("PYTHONPATH"))))
        return self.testbed.environment() | special | {"PYTHONPATH": path}

    def start(self) -> None:
        """Wait for the producer, start the fleet, and wait until each of its workers has been seen in a task."""
        self.producer.wait_until_ready()
        self.spawn_fleet()
        if self.popens:
            self._meet()

    def spawn_fleet(self) -> None:
        """Start the processes of the fleet."""
        for argv in self.contender.commands(self.testbed, self.workers) if self.workers else ():
            popen = subprocess.Popen(
                argv,
                env=self._environment(),
                cwd=self.testbed.folder,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )
            self.popens.append(popen)

    def end_fleet(self) -> None:
        """Kill the processes of the fleet, whatever their state."""
        kill_tree(self.roots(), self._spared)
        for popen in self.popens:
            popen.wait()
        self.popens.clear()

    def _meet(self) -> None:
        """Wait until every worker has been seen in a task. For this purpose, enqueue tasks that end only when every
        worker runs one. While a worker has no task, more tasks are enqueued, because another worker may have prefetched
        several.
        """
        sent = 0
        again_at = 0.0

        def all_here() -> bool:
            nonlocal sent, again_at
            if any(popen.poll() is not None for popen in self.popens):
                raise Failed("a process of the fleet ended while the fleet was starting")
            here = len({line.pid for line in self.testbed.journal("meet")})
            if here < self.workers and time.monotonic() > again_at:
                more = min(max(self.workers, sent), _MOST_MEETING * self.workers - sent)
                self.producer.each("meet", more)
                sent += more
                again_at = time.monotonic() + _AGAIN_SECONDS
            return here >= self.workers

        wait_until(all_here, f"a fleet of {self.workers}", START_SECONDS, poll_seconds=0.05)
        self.testbed.tell("met")
        self.testbed.wait_for_lines("met", sent, START_SECONDS)

    def roots(self) -> list[psutil.Process]:
        """Return the started processes that are still running, as psutil objects."""
        return [psutil.Process(popen.pid) for popen in self.popens if popen.poll() is None]

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the fleet."""
        return tree(self.roots())

    def freeze(self) -> None:
        """Stop every process of the fleet, so that tasks accumulate."""
        self._frozen = self.processes()
        send(self._frozen, signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the stopped processes."""
        send(reversed(self._frozen), signal.SIGCONT)

    def log_tail(self) -> str:
        """Return the last lines of the fleet's output, with paths of this repository made relative."""
        text = self.log_path.read_text(errors="replace").replace(f"{ROOT}{os.sep}", "")
        return text[-_SHOWN_CHARACTERS:].strip()

    def close(self) -> None:
        """Kill the fleet and the producer, whatever their state."""
        self.end_fleet()
        self.producer.stop()
        self._log.close()


@contextmanager
def running(contender: Contender, testbed: Testbed, workers: int) -> Iterator[Running]:
    """Run a contender on an emptied server, without a fleet if `workers` is 0."""
    testbed.clear()
    made = Running(contender, testbed, workers)
    try:
        made.start()
        yield made
    except Failed as failure:
        raise Failed(f"{failure}\n{made.log_tail()}") from failure
    finally:
        made.close()
