"""The tasks that run in an event loop. They are separate from `probe`, so that other contenders do not import
asyncio.
"""

import asyncio
import time
from typing import Final

from benchmarks import probe
from benchmarks.probe import FOLDER, POLL_SECONDS, WORK_SECONDS, count_of_calls, write

NAMES: Final = ("nothing", "work", "mark", "linger", "meet", "hold")


async def nothing(number: int) -> None:
    """Run `probe.nothing`."""
    probe.nothing(number)


async def work(_number: int) -> None:
    """Do the same as `probe.work`."""
    started = time.perf_counter_ns()
    await asyncio.sleep(WORK_SECONDS)
    count_of_calls.add((time.perf_counter_ns() - started) // 1000)


async def mark(label: int) -> None:
    """Do the same as `probe.mark`."""
    probe.mark(label)


async def linger(label: int) -> None:
    """Record the start, and wait for 10 ms."""
    write("linger", label, time.time_ns())
    await asyncio.sleep(WORK_SECONDS)


async def meet(label: int) -> None:
    """Do the same as `probe.meet`."""
    write("meet", label, time.time_ns())
    while not (FOLDER / "met").exists():
        await asyncio.sleep(POLL_SECONDS)
    write("met", label, time.time_ns())


async def hold(label: int) -> None:
    """Do the same as `probe.hold`."""
    write("hold", label, time.time_ns())
    while not (FOLDER / "let-go").exists():
        await asyncio.sleep(POLL_SECONDS)
