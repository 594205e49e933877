"""The memory that a fleet with the example application uses. Each additional worker must add only a little."""

import shutil

from support.fleets import Fleets, Measure, RunningFleet
from support.prose import ROOT
from support.waiting import until

WORKERS = 8
MEGABYTE = 1e6
# The measured values are 15 MB and 5.6 MB. The limits are higher, to allow for other versions of Python and of the
# libraries.
FLEET_MEGABYTES_A_WORKER = 18
MEGABYTES_OF_ITS_OWN = 10


def test_eight_workers_of_the_example_share_most_of_their_memory(fleets: Fleets, measured: Measure) -> None:
    fleet = fleets.make(workers=WORKERS, tiers=[["password-reset"], ["sold-email", "expired-email"], ["default"]])
    shutil.copyfile(ROOT / "examples/mail/tasks.py", fleet.folder / "tasks.py")
    fleet.start()
    _work(fleet)
    used = {process.pid: process.memory_full_info() for process in fleet.processes()}
    workers = fleet.workers()
    of_all = sum(memory.pss for memory in used.values()) / WORKERS / MEGABYTE
    of_its_own = sum(used[pid].uss for pid in workers) / WORKERS / MEGABYTE
    measured("MB of the whole fleet (PSS) by its 8 workers", of_all)
    measured("MB of a worker's own (USS)", of_its_own)
    for role in ("zygote", "poller", "exporter"):
        measured(f"MB of the {role} (PSS)", sum(used[pid].pss for pid in fleet.pids(role, "ready")) / MEGABYTE)
    assert len(workers) == WORKERS
    assert of_all < FLEET_MEGABYTES_A_WORKER
    assert of_its_own < MEGABYTES_OF_ITS_OWN


def _work(fleet: RunningFleet) -> None:
    """Run some tasks and read the metrics. The tasks and the metrics may load code, and the measured memory should
    include that code.
    """
    count = 10 * WORKERS
    for number in range(count):
        fleet.client.enqueue("send_expired_email", args=[number, number], queue="expired-email")
    until(lambda: fleet.metrics().total("rota_tasks_processed_total", outcome="done") == count, "all mails")


LOADED = """
import os, sys
from pathlib import Path
import rota

before = set()
os.register_at_fork(after_in_child=lambda: before.update(sys.modules))

@rota.task
def list_modules() -> None:
    Path("loaded").write_text(" ".join(sorted(sys.modules.keys() - before)) + "\\n")
"""


def test_a_worker_imports_no_modules_after_its_fork(fleets: Fleets) -> None:
    """Each import in a worker would cost up to 2 MB, and would delay the start of the worker by some milliseconds."""
    fleet = fleets.make(workers=1)
    (fleet.folder / "tasks.py").write_text(LOADED)
    fleet.start()
    fleet.client.enqueue("list_modules", queue="default")
    file = fleet.folder / "loaded"
    until(lambda: file.exists() and file.read_text().endswith("\n"), "the list of loaded modules")
    assert file.read_text().split() == []


# This module represents an application with a lot of data. The garbage collector tracks each of the dictionaries, so a
# collection would write to all of them if they were not frozen.
COLLECTED = """
import gc
from pathlib import Path
import rota

ROWS = [{"id": number, "name": f"name of {number}", "at": [number, number + 0.5]} for number in range(100_000)]

@rota.task
def collect() -> None:
    gc.collect()
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    kilobytes = sum(int(line.split()[1]) for line in rollup if line.startswith("Private_"))
    Path("private").write_text(f"{kilobytes}\\n")
"""


def test_a_full_garbage_collection_keeps_the_application_in_shared_memory(fleets: Fleets, measured: Measure) -> None:
    """The zygote freezes the objects of the application. Otherwise, a garbage collection would write to each object,
    and 50 MB would become private memory of the worker.
    """
    fleet = fleets.make(workers=1)
    (fleet.folder / "tasks.py").write_text(COLLECTED)
    fleet.start()
    fleet.client.enqueue("collect", queue="default")
    file = fleet.folder / "private"
    until(lambda: file.exists() and file.read_text().endswith("\n"), "the worker's private memory")
    private = int(file.read_text()) * 1024 / MEGABYTE
    measured("MB of a worker's own after a full collection", private)
    assert private < MEGABYTES_OF_ITS_OWN
