"""Counters and histograms never decrease, even if the process that writes them is killed and replaced."""

import os
import signal
import subprocess
import sys
import threading

from rota.child.slot_memory import SlotMemory
from rota.telemetry import metrics as m
from rota.telemetry.recorder import Recorder
from rota_supervisor.exporter.series import Samples
from support.region_reading import regions_of
from support.waiting import until

KILLS = 20
DEADLINE_SECONDS = 60.0
WRITER = """
import itertools, sys
from rota.telemetry import metrics as m
from rota.telemetry.recorder import Recorder
from rota.child.slot_memory import enter_slot

recorder = Recorder(enter_slot(int(sys.argv[1]), 1, 0, 1).slot.metrics)
for number in itertools.count():
    recorder.counter(m.CLAIMS, "q").add()
    recorder.histogram(m.TASK_LAG, "q", m.KINDS[number % 4]).observe(number % 100 / 10)
    recorder.counter(m.TASK_RETRIES, "q", f"{sys.argv[2]}-{number % 500}").add()
"""

Seen = dict[tuple[str, ...], tuple[float, ...]]


def seen_in(samples: Samples) -> Seen:
    """Return the values of each counter and histogram in these samples, by the name of the metric and its labels."""
    definitions = (m.CLAIMS, m.TASK_LAG, m.TASK_RETRIES)
    return {(d.name, *labels): numbers for d in definitions for labels, numbers in samples.series(d)}


class Watcher(threading.Thread):
    """A thread that repeatedly reads the metrics and records every decrease of a value."""

    def __init__(self, memory: SlotMemory) -> None:
        super().__init__()
        self.latest: Seen = {}
        self.steps_back: list[str] = []
        self.reads = 0
        self._regions = regions_of(memory, 1 << 30)
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            now = seen_in(self._regions.read(()))
            self._compare(now)
            self.latest = now
            self.reads += 1

    def _compare(self, now: Seen) -> None:
        for key, before in self.latest.items():
            if any(new < old for new, old in zip(now.get(key, ()), before, strict=True)):
                self.steps_back.append(f"{key}: {before} became {now.get(key)}")

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def starts(self) -> float:
        return self.latest.get((m.CLAIMS.name, "q"), (0.0,))[0]


def test_counters_never_decrease_while_their_writer_is_killed() -> None:
    memory = SlotMemory.create(2)
    watcher = Watcher(memory)
    watcher.start()
    try:
        for life in range(KILLS):
            kill_once_it_counts(memory, watcher, life)
    finally:
        watcher.stop()
    assert watcher.steps_back == []
    assert watcher.reads > KILLS
    recorder = Recorder(memory.slot(1).metrics)
    recorder.counter(m.CLAIMS, "q").add()
    after = seen_in(regions_of(memory, 1 << 30).read(()))
    assert after[(m.CLAIMS.name, "q")][0] >= watcher.starts() + 1, "counting continues from the last process"


def kill_once_it_counts(memory: SlotMemory, watcher: Watcher, life: int) -> None:
    before = watcher.starts()
    arguments = [sys.executable, "-c", WRITER, str(memory.fd), str(life)]
    with subprocess.Popen(arguments, pass_fds=[memory.fd], env=os.environ) as writer:
        # Each process is killed after a different number of starts, so that it is killed at a different point in its
        # code.
        counted = before + 200 + 37 * life
        until(lambda: watcher.starts() >= counted or writer.poll() is not None)
        assert writer.poll() is None
        writer.send_signal(signal.SIGKILL)
