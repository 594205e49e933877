"""The progress of tasks that the master copies to Redis. The latest report of each task is sent once, and is sent again
if the call fails.
"""

import asyncio

from rota.child.slot_memory import SlotMemory
from rota.protocol.store import PROGRESS_BATCH
from rota.server.server_errors import ConnectionLost
from rota_supervisor.config.model import Config
from rota_supervisor.layout import Role
from rota_supervisor.master.effects.task_watch import ProgressCopier, TaskProgress
from support.cores import Core

FIRST = 8


class Carried:
    """Workers with tasks that report progress, and the calls of their master. While `is_away` is set, all calls
    fail.
    """

    def __init__(self, workers: int = 1) -> None:
        self._memory = SlotMemory.create(FIRST + workers)
        core = Core(Config())
        for number in range(FIRST, FIRST + workers):
            child = core.child(Role.WORKER, number)
            child.owner = f"node:{number}:1"
            self._memory.slot(number).assign(child.nonce)
        self.told: list[list[TaskProgress]] = []
        self.is_away = False
        self._copier = ProgressCopier(core.state, self._memory, self._send)

    async def _send(self, told: list[TaskProgress]) -> None:
        self.told.append(told)
        if self.is_away:
            raise ConnectionLost("away")

    def start_task(self, task_id: str, worker: int = 0) -> None:
        self._memory.slot(FIRST + worker).record(0).start(self._entry(task_id), "work", 1, 2)

    def end(self, worker: int = 0) -> None:
        self._memory.slot(FIRST + worker).record(0).end()

    def report(self, task_id: str, text: bytes, worker: int = 0) -> None:
        self._memory.slot(FIRST + worker).record(0).report_progress(self._entry(task_id), text)

    def step(self) -> list[list[tuple[str, bytes]]]:
        """Let the master copy all new progress reports once. Return its calls to Redis, each as a list of task ids and
        texts.
        """
        self.told.clear()
        asyncio.run(self._copier.step())
        return [[(told.entry.split(b" ")[0].decode(), told.text) for told in batch] for batch in self.told]

    def _entry(self, task_id: str) -> bytes:
        return f"{task_id} q i 1 2 0 0 0 0 -".encode()


def test_only_new_progress_of_a_task_is_sent_to_redis() -> None:
    copier = Carried()
    assert copier.step() == []
    copier.start_task("a")
    assert copier.step() == [], "the task reports nothing"
    copier.report("a", b"1")
    copier.report("a", b"2")
    assert (copier.step(), copier.step()) == ([[("a", b"2")]], [])
    copier.end()
    copier.start_task("b")
    assert copier.step() == [], "the report of the previous task is not that of this one"
    copier.report("b", b"2")
    assert copier.step() == [[("b", b"2")]]


def test_if_sending_progress_failed_the_latest_progress_is_sent_again() -> None:
    copier = Carried()
    copier.start_task("a")
    copier.report("a", b"1")
    copier.is_away = True
    assert copier.step() == copier.step() == [[("a", b"1")]]
    copier.report("a", b"2")
    copier.is_away = False
    assert (copier.step(), copier.step()) == ([[("a", b"2")]], [])


def test_progress_of_many_workers_is_sent_in_bounded_batches() -> None:
    workers = PROGRESS_BATCH + 3
    copier = Carried(workers)
    for number in range(workers):
        copier.start_task(f"t{number}", number)
        copier.report(f"t{number}", b"1", number)
    assert [len(call) for call in copier.step()] == [PROGRESS_BATCH, 3]


def test_progress_from_a_slot_of_another_process_is_not_sent() -> None:
    copier = Carried()
    copier.start_task("a")
    copier.report("a", b"1")
    slot = copier._memory.slot(FIRST)  # from now on the slot belongs to another process
    slot.nonce += 1
    assert copier.step() == []
