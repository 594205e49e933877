"""The steps of tasks that run as coroutines: the task to which a step belongs, the consequences if a step blocks the
event loop, and the exceptions that a step raises.
"""

import asyncio
import time

from rota.child.slot_layout import PROCESS_ROW, PROCESS_ROW_BYTES, REGION_BYTES
from rota.child.slots import Slot
from rota.protocol.entry import parse_entry
from rota.worker.application import NoCopies
from rota.worker.attempt import Attempt
from rota.worker.concurrent.concurrent_tasks import LONG_SECONDS, RunningTask, StepWatcher, belong_to

ENTRY = parse_entry(b"id-1 default i 1000 1000 0 0 0 0 -")


class Watched:
    """Two running tasks that the slot shows. `blocked` lists the indexes of the tasks that have blocked the event
    loop.
    """

    def __init__(self) -> None:
        process_row = memoryview(bytearray(PROCESS_ROW_BYTES))
        process_row.cast("q")[PROCESS_ROW.concurrency] = 3
        self.slot = Slot(memoryview(bytearray(REGION_BYTES)), process_row)
        self.blocked: list[int] = []
        self.steps = StepWatcher(NoCopies(), lambda running, _: self.blocked.append(running.record.task_index))
        self.running = [self.running_task(task_index) for task_index in (1, 2)]

    def running_task(self, task_index: int) -> RunningTask:
        record = self.slot.record(task_index)
        running = RunningTask(ENTRY, record)
        running.opened(Attempt(ENTRY, "t", 1, record, record.start(ENTRY.text, "t", 1, 2), None))
        running.leave_step()
        return running


def test_the_slot_shows_which_concurrent_task_is_executing() -> None:
    watched, seen = Watched(), []

    async def started() -> None:
        seen.append(watched.slot.stepping)
        await asyncio.sleep(0)
        seen.append(watched.slot.stepping)

    async def task(running: RunningTask) -> None:
        belong_to(running)
        await asyncio.create_task(started())
        seen.append(watched.slot.stepping)

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(watched.steps.make_task)
        for running in watched.running:
            await watched.steps.drive(task(running), running)
            assert watched.slot.stepping is None
            running.record.end()

    asyncio.run(main())
    assert seen == [1, 1, 1, 2, 2, 2]


def test_the_concurrent_task_that_blocks_the_event_loop_is_identified() -> None:
    watched, seen = Watched(), []
    first, second = watched.running

    async def left_behind() -> None:
        await asyncio.sleep(0.01)
        seen.append(watched.slot.stepping)
        time.sleep(LONG_SECONDS * 1.5)

    async def leaves() -> "asyncio.Task[None]":
        belong_to(first)
        return asyncio.create_task(left_behind())

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(watched.steps.make_task)
        left = await watched.steps.drive(leaves(), first)
        first.record.end()
        await watched.steps.drive(asyncio.sleep(0), second)
        await left

    asyncio.run(main())
    assert (seen, watched.blocked) == ([None], [1])


def test_a_coroutine_that_raises_system_exit_fails_only_its_awaiter() -> None:
    watched = Watched()

    async def leaves() -> None:
        raise SystemExit(3)

    async def task(running: RunningTask) -> str:
        belong_to(running)
        try:
            await asyncio.create_task(leaves())
        except RuntimeError as error:
            return str(error)
        return ""

    async def main() -> str:
        asyncio.get_running_loop().set_task_factory(watched.steps.make_task)
        returned: str = await watched.steps.drive(task(watched.running[0]), watched.running[0])
        return returned

    assert "SystemExit(3)" in asyncio.run(main())
