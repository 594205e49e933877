"""`python benchmarks/scrape.py`: measures how long a scrape takes, how many series it has, and what recording a value
costs.

Times are processor times, because other work on the machine hardly changes these. They are measured for an idle fleet
and for a fleet under load. The workers are simulated. Like the workers of a fleet, they write into shared memory, as if
they had run every task of every queue. The defaults are `--queues 200 --tasks 20 --workers 32`. No server is needed.
"""

import argparse
import os
import random
import time
import timeit
import zlib

from rota.child.child_settings import LogSettings, ServerSettings
from rota.child.slot_memory import SlotMemory
from rota.child.slots import MASTER_SLOT, Phase, boottime_ns
from rota.telemetry import metrics as m
from rota.telemetry.recorder import Recorder
from rota_supervisor.exporter.exporter_settings import ExporterSettings, QueueSettings
from rota_supervisor.exporter.exposition import ScrapeOptions
from rota_supervisor.exporter.observer import Observer, OwnSlot
from rota_supervisor.layout import EXPORTER_SLOT, RANGES, Role

ACCEPT = "application/openmetrics-text;version=1.0.0"  # the format that Prometheus requests
SCRAPES = 5
STARTS_A_SECOND = 2500
OBSERVATIONS = 1_000_000
MILLISECONDS = 1000


def settings_for(queues: int) -> ExporterSettings:
    """Return the settings of an exporter with this number of queues and the default configuration."""
    return ExporterSettings(
        server=ServerSettings("redis://127.0.0.1:1", "bench"),
        queues=tuple(QueueSettings(f"queue-{number}", 1, 1.0, 1.0, 0.99) for number in range(queues)),
        beat_seconds=10.0,
        tick_seconds=1.0,
        max_series=20_000,
        top_queues=20,
        forgotten_seconds=3600.0,
        reads_redis=False,
        allowed_hosts=(),
        token_file="",
        read_token_file="",
        tls_cert="",
        tls_key="",
        actions=False,
        log=LogSettings(),
    )


def work(recorder: Recorder, queues: int, tasks: int) -> None:
    """Record one more run of each task of each queue, as a worker does."""
    for queue in (f"queue-{number}" for number in range(queues)):
        for kind in m.KINDS[:2]:
            recorder.histogram(m.TASK_LAG, queue, kind).observe(0.01)
            recorder.histogram(m.QUEUE_WAIT, queue, kind).observe(0.01)
        for task in (f"task-{number}" for number in range(tasks)):
            recorder.histogram(m.TASK_RUNTIME, queue, task).observe(0.01)
            recorder.counter(m.TASKS_PROCESSED, queue, task, "done").add()


def scrape(observer: Observer, what: str) -> None:
    """Scrape as Prometheus does, and print the processor time of the first scrape and of the fastest one."""
    seconds: list[float] = []
    for _ in range(SCRAPES):
        began = time.process_time()
        text = observer.scrape(ScrapeOptions(ACCEPT)).body
        zlib.compress(text, 1, wbits=31)
        seconds.append(time.process_time() - began)
    lines = sum(not line.startswith(b"#") for line in text.splitlines())
    first, best = (each * MILLISECONDS for each in (seconds[0], min(seconds)))
    print(f"{what}: {lines} series, {len(text) / 1e6:.1f} MB, first {first:.0f} ms, best {best:.0f} ms")


def under_load(observer: Observer, recorders: list[Recorder], queues: int, tasks: int) -> None:
    """Print how much processor time the exporter's periodic work takes while tasks start, and how much a scrape takes
    after that.
    """
    chance = random.Random(1)
    seconds = 0.0
    for _ in range(10):
        for _ in range(STARTS_A_SECOND):
            queue = f"queue-{chance.randrange(queues)}"
            task = f"task-{chance.randrange(tasks)}"
            recorder = chance.choice(recorders)
            recorder.histogram(m.TASK_LAG, queue, "delayed").observe(0.01)
            recorder.histogram(m.QUEUE_WAIT, queue, "delayed").observe(0.01)
            recorder.histogram(m.TASK_RUNTIME, queue, task).observe(0.01)
            recorder.counter(m.TASKS_PROCESSED, queue, task, "done").add()
        began = time.process_time()
        observer.note_history()
        seconds += time.process_time() - began
    print(f"{STARTS_A_SECOND} starts per second: {seconds / 10 * MILLISECONDS:.0f} ms per second")
    scrape(observer, "scraped then")


def observing() -> None:
    """Print the cost of recording one value in a histogram and in a peak. The lookup of the histogram and the peak is
    not included.
    """
    recorder = Recorder(SlotMemory.create(1).slot(0).metrics)
    histogram = recorder.histogram(m.TASK_LAG, "q", "delayed")
    peak = recorder.peak(m.TASK_LAG_WORST, "q")
    now_ns = boottime_ns()
    for what, call in (("histogram", lambda: histogram.observe(0.3)), ("peak", lambda: peak.observe(0.3, now_ns))):
        took = timeit.timeit(call, number=OBSERVATIONS, timer=time.process_time) / OBSERVATIONS
        print(f"observe, {what}: {took * 1e6:.2f} us")


def main() -> None:
    """Run the measurements, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("queues", 200), ("tasks", 20), ("workers", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    request = parser.parse_args()
    memory = SlotMemory.create(1024)
    master = memory.slot(MASTER_SLOT)
    master.assign(1)
    master.enter(1, os.getpid())
    master.phase = Phase.IDLE
    own = OwnSlot.of(memory.slot(EXPORTER_SLOT))
    observer = Observer(settings_for(request.queues), memory, os.getpid(), lambda: None, own)
    observing()
    scrape(observer, "at rest")
    slots = [memory.slot(RANGES[Role.WORKER][0] + number).metrics for number in range(request.workers)]
    recorders = [Recorder(slot) for slot in slots]
    for recorder in recorders:
        work(recorder, request.queues, request.tasks)
    scrape(observer, "after all tasks have run once")
    for recorder in recorders:
        work(recorder, request.queues, request.tasks)
    scrape(observer, "after all tasks have run again")
    under_load(observer, recorders, request.queues, request.tasks)


if __name__ == "__main__":
    main()
