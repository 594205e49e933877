"""Tasks that overwrite all shared memory, close every file descriptor, or flood the output. They do no harm to any
other process.
"""

import itertools
import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

from rota.child.slot_layout import REGION_BYTES
from rota.child.slot_memory import PROCESS_TABLE_BYTES, region_at
from support.fleet_readings import Scrape
from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

HOSTILE = '''

import random
import sys
import threading


def shared():
    """Each part of memory that this process can write and others see: what is mapped, and files of memory."""
    found = []
    for line in open("/proc/self/maps"):
        span, access, *_ = line.split()
        if access[1] == "w" and access[3] == "s":
            start, end = (int(at, 16) for at in span.split("-"))
            found.append(memoryview((ctypes.c_char * (end - start)).from_address(start)).cast("B"))
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError, ValueError):
            if "memfd:" in os.readlink(f"/proc/self/fd/{fd}"):
                found.append(memoryview(mmap.mmap(fd, 0)))
    return found


def overwrite(how, seed=1):
    chance = random.Random(seed)
    bytes_of = {"random": chance.randbytes, "ones": lambda n: b"\\xff" * n, "zeros": bytes}[how]
    for part in shared():
        for at in range(0, len(part), 1 << 16):
            piece = part[at : at + (1 << 16)]
            piece[:] = bytes_of(len(piece))


@rota.task(queue="hostile")
def scribble(how):
    write("start", how)
    overwrite(how)


@rota.task(queue="hostile")
def scribble_and_crash(how):
    write("start", how)
    overwrite(how)
    ctypes.string_at(0)


@rota.task(queue="hostile")
def scribble_on(how):
    """Go on with it in a thread, until it is released."""

    def forever():
        for seed in range(1 << 30):
            overwrite(how, seed)

    threading.Thread(target=forever, daemon=True).start()
    hold(how)


@rota.task(queue="hostile")
def count_on(how):
    """Change its own number, over and over, so that whoever looks finds another one each time."""
    [words] = [part.cast("q") for part in shared() if len(part) >= 1 << 20]
    write("start", how)
    while not (FOLDER / f"release-{how}").exists():
        for number in range(10_000):
            words[4] = number | 1


@rota.task(queue="hostile")
def fork_and_scribble(how):
    """A copy in a session of its own goes on with it, when the worker has gone on to other tasks."""
    write("start", how)
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        (FOLDER / "copy").write_text(str(os.getpid()))
        while True:
            overwrite(how)
            time.sleep(0.001)
    os.wait()


@rota.task(queue="hostile")
def close_all(how):
    write("start", how)
    os.closerange(0 if how == "all" else 3, 1024)


@rota.task(queue="hostile")
def flood(how):
    write("start", how)
    for _ in range(2000):
        os.write(2 if how == "stderr" else 1, b"x" * 8191 + b"\\n")


@rota.task(queue="hostile")
def write_to_all(how):
    """Write to every descriptor, and leave it blocking or not as it was not before."""
    write("start", how)
    for fd in range(3, 64):
        with contextlib.suppress(OSError):
            os.set_blocking(fd, not os.get_blocking(fd))
        with contextlib.suppress(OSError):
            os.write(fd, b"\\xfe" + b"\\xff" * 7)


@rota.task(queue="hostile")
def name_another(pid):
    """Say everywhere that this process is another."""
    for part in shared():
        part.cast("q")[:] = memoryview(pid.to_bytes(8, "little") * (len(part) // 8)).cast("q")
    write("start", "")
    time.sleep(600)


def see(name):
    """Write down which parts of the slots are mapped here, by access, and what is open."""
    mapped, files = {}, []
    for line in open("/proc/self/maps"):
        span, access, offset, *_ = line.split()
        if "rota-slots" in line:
            start, end = (int(at, 16) for at in span.split("-"))
            mapped.setdefault(access, []).append((int(offset, 16), end - start))
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            files.append(os.readlink(f"/proc/self/fd/{fd}"))
    (FOLDER / name).write_text(json.dumps([mapped, files]))


@rota.task(queue="hostile")
def look():
    see("seen-by-task")
    write("start", "")


see("seen-by-modules")
'''


@pytest.fixture
def fleet(fleets: Fleets) -> RunningFleet:
    """Return a fleet with four workers for the queues `default` and `hostile`."""
    made = fleets.make(workers=4, tiers=[["default", "hostile"]])
    with (made.folder / "tasks.py").open("a") as file:
        file.write(HOSTILE)
    return made.start()


class Neighbours:
    """Two tasks that run during the whole hostile task, and short tasks that run beside it. Each of them must run
    exactly once, unaffected by the hostile task.
    """

    def __init__(self, fleet: RunningFleet) -> None:
        self._fleet = fleet
        self._held = [fleet.hold(label) for label in ("left", "right")]
        self._others = {role: fleet.pids(role, "ready") for role in ("zygote", "poller", "exporter")}
        self._before = Scrape("")
        self._notes = itertools.count()
        self._look()

    def note(self, count: int = 20) -> None:
        """Run this number of short tasks, and check that no counter has decreased."""
        labels = [f"note-{next(self._notes)}" for _ in range(count)]
        for label in labels:
            self._fleet.client.enqueue("note", args=[label], queue="default")
        for label in labels:
            self._fleet.wait_for("end", label=label)
        self._look()

    def _look(self) -> None:
        now = self._fleet.metrics()
        assert now.fallen_since(self._before) == []
        self._before = now

    def are_well(self) -> None:
        """Check that the hostile task harmed no other task, and that the fleet is complete and stops cleanly."""
        fleet = self._fleet
        self.note()
        until(fleet.is_whole, "a whole fleet")
        self.note()
        assert {role: fleet.pids(role, "ready") for role in self._others} == self._others
        assert {line.pid for line in self._held} <= fleet.workers()
        for label in ("left", "right"):
            fleet.release(label)
            assert len(fleet.wait_for("end", label=label)) == 1
        runs = [line for line in fleet.journal("start") if line.queue == "default"]
        assert len({line.id for line in runs}) == len(runs)
        assert all(line.crashes == 0 for line in runs)
        assert fleet.get("/livez")[0] == 200
        assert fleet.books_balance()
        fleet.term()
        assert fleet.exit_code() == 0
        assert fleet.processes() == []


@pytest.fixture
def neighbours(fleet: RunningFleet) -> Neighbours:
    return Neighbours(fleet)


def run(fleet: RunningFleet, name: str, *args: object) -> str:
    return fleet.client.enqueue(name, args=list(args), queue="hostile").id


def has_left(fleet: RunningFleet, task_id: str) -> bool:
    return fleet.client.status(task_id).state not in ("ready", "running")


@pytest.mark.parametrize("how", ["random", "ones", "zeros"])
def test_task_that_overwrites_shared_memory_harms_only_its_worker(
    fleet: RunningFleet, neighbours: Neighbours, how: str
) -> None:
    task_id = run(fleet, "scribble", how)
    [start] = fleet.wait_for("start", name="scribble")
    until(lambda: has_left(fleet, task_id), "its end")
    until(lambda: fleet.is_whole_without(start.pid), "another worker")
    assert len(fleet.journal("start", name="scribble")) == 1
    [told] = [line for line in fleet.log("worker.exited") if line["child_pid"] == start.pid]
    assert "overwrote the memory" in told["words"]
    neighbours.are_well()
    assert len([line for line in fleet.log("worker.exited") if line["reason"] == "crash"]) == 1
    assert "Traceback" not in fleet.log_text()


@pytest.mark.parametrize("how", ["random", "zeros"])
def test_task_that_overwrites_memory_and_crashes_is_dead(fleet: RunningFleet, neighbours: Neighbours, how: str) -> None:
    task_id = run(fleet, "scribble_and_crash", how)
    until(lambda: fleet.client.status(task_id).state == "dead", "its death")
    assert [line.crashes for line in fleet.journal("start", name="scribble_and_crash")] == [0, 1, 2]
    neighbours.are_well()


@pytest.mark.parametrize("task", ["scribble_on", "count_on"])
def test_a_task_that_keeps_overwriting_memory_does_not_delay_others(
    fleet: RunningFleet, neighbours: Neighbours, task: str
) -> None:
    run(fleet, task, "random")
    [start] = fleet.wait_for("start", name=task)
    for _ in range(5):
        neighbours.note()
    fleet.release("random")
    if task == "scribble_on":
        until(lambda: fleet.is_whole_without(start.pid), "another worker")
    neighbours.are_well()


def test_fork_that_keeps_overwriting_memory_dies_with_its_worker(fleet: RunningFleet, neighbours: Neighbours) -> None:
    run(fleet, "fork_and_scribble", "random")
    [start] = fleet.wait_for("start", name="fork_and_scribble")
    written = fleet.folder / "copy"
    copy = int(until(lambda: written.exists() and written.read_text(), "the copy"))
    until(lambda: fleet.is_whole_without(start.pid), "another worker")
    until(lambda: copy not in {process.pid for process in fleet.processes()}, "the end of the copy")
    neighbours.are_well()


@pytest.mark.parametrize(
    ("task", "how"),
    [
        ("close_all", "but output"),
        ("close_all", "all"),
        ("flood", "stdout"),
        ("flood", "stderr"),
        ("write_to_all", ""),
    ],
)
def test_a_task_that_misuses_file_descriptors_harms_no_other_process(
    fleet: RunningFleet, neighbours: Neighbours, task: str, how: str
) -> None:
    task_id = run(fleet, task, how)
    until(lambda: has_left(fleet, task_id), "its end")
    neighbours.are_well()


def test_modules_and_tasks_can_write_only_to_their_own_slot(fleet: RunningFleet) -> None:
    run(fleet, "look")
    [start] = fleet.wait_for("start", name="look")
    [slot] = [row["slot"] for row in fleet.children("worker") if row["pid"] == start.pid]
    [zygote] = [row["slot"] for row in fleet.children("zygote")]
    for name, own in (("seen-by-modules", zygote), ("seen-by-task", slot)):
        mapped, files = json.loads((fleet.folder / name).read_text())
        assert mapped["rw-s"] == [[region_at(own), REGION_BYTES]]
        assert {tuple(span) for span in mapped.pop("r--s")} == {(0, PROCESS_TABLE_BYTES)}
        assert mapped.keys() == {"rw-s"}
        assert not [path for path in files if "rota-slots" in path]


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    """Yield a process that does not belong to the fleet. It runs as the same user, in its own process group."""
    with subprocess.Popen(["sleep", "600"], cwd="/", start_new_session=True) as process:
        yield process
        process.kill()


def test_forged_pid_in_a_slot_kills_no_other_process(fleet: RunningFleet, bystander: "subprocess.Popen[bytes]") -> None:
    run(fleet, "name_another", bystander.pid)
    fleet.wait_for("start", name="name_another")
    fleet.signal(signal.SIGKILL)
    fleet.exit_code()
    until(lambda: not fleet.processes(), "nothing that is left")
    assert bystander.poll() is None
