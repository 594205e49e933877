"""What the master carries of the progress of tasks: the last word of each, once, and again when nobody heard it."""

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
    """Workers with tasks that report, and what their master tells. `is_away`: nobody hears it."""

    def __init__(self, workers: int = 1) -> None:
        self._memory = SlotMemory.create(FIRST + workers)
        core = Core(Config())
        for number in range(FIRST, FIRST + workers):
            child = core.child(Role.WORKER, number)
            child.owner = f"node:{number}:1"
            self._memory.slot(number).assign(child.nonce)
        self.told: list[list[TaskProgress]] = []
        self.is_away = False
        self._carrier = ProgressCopier(core.state, self._memory, self._tell)

    async def _tell(self, told: list[TaskProgress]) -> None:
        self.told.append(told)
        if self.is_away:
            raise ConnectionLost("away")

    def begin(self, task_id: str, worker: int = 0) -> None:
        self._memory.slot(FIRST + worker).record(0).start(self._entry(task_id), "work", 1, 2)

    def end(self, worker: int = 0) -> None:
        self._memory.slot(FIRST + worker).record(0).end()

    def say(self, task_id: str, text: bytes, worker: int = 0) -> None:
        self._memory.slot(FIRST + worker).record(0).report_progress(self._entry(task_id), text)

    def step(self) -> list[list[tuple[str, bytes]]]:
        """What one round tells: calls, each of ids and texts."""
        self.told.clear()
        asyncio.run(self._carrier.step())
        return [[(told.entry.split(b" ")[0].decode(), told.text) for told in batch] for batch in self.told]

    def _entry(self, task_id: str) -> bytes:
        return f"{task_id} q i 1 2 0 0 0 0 -".encode()


def test_only_what_is_new_is_told() -> None:
    carried = Carried()
    assert carried.step() == []
    carried.begin("a")
    assert carried.step() == [], "it reports nothing"
    carried.say("a", b"1")
    carried.say("a", b"2")
    assert (carried.step(), carried.step()) == ([[("a", b"2")]], [])
    carried.end()
    carried.begin("b")
    assert carried.step() == [], "what the task before said is not of this one"
    carried.say("b", b"2")
    assert carried.step() == [[("b", b"2")]]


def test_what_nobody_heard_is_told_again_as_it_is_by_then() -> None:
    carried = Carried()
    carried.begin("a")
    carried.say("a", b"1")
    carried.is_away = True
    assert carried.step() == carried.step() == [[("a", b"1")]]
    carried.say("a", b"2")
    carried.is_away = False
    assert (carried.step(), carried.step()) == ([[("a", b"2")]], [])


def test_many_workers_are_told_of_in_calls_of_bounded_size() -> None:
    workers = PROGRESS_BATCH + 3
    carried = Carried(workers)
    for number in range(workers):
        carried.begin(f"t{number}", number)
        carried.say(f"t{number}", b"1", number)
    assert [len(call) for call in carried.step()] == [PROGRESS_BATCH, 3]


def test_a_worker_without_an_owner_or_of_another_life_says_nothing() -> None:
    carried = Carried()
    carried.begin("a")
    carried.say("a", b"1")
    slot = carried._memory.slot(FIRST)  # given to another life
    slot.nonce += 1
    assert carried.step() == []
