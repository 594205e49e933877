"""What tasks do that run in an event loop. Apart from `probe`, so that the others need not import asyncio."""

import asyncio
import time

from benchmarks.probe import FOLDER, LOOK_SECONDS, WORK_SECONDS, count_of_calls, write


async def work(_number: int) -> None:
    """As `probe.work`."""
    started = time.perf_counter_ns()
    await asyncio.sleep(WORK_SECONDS)
    count_of_calls.add((time.perf_counter_ns() - started) // 1000)


async def meet(label: int) -> None:
    """As `probe.meet`."""
    write("meet", label, time.time_ns())
    while not (FOLDER / "met").exists():
        await asyncio.sleep(LOOK_SECONDS)
    write("met", label, time.time_ns())


async def hold(label: int) -> None:
    """As `probe.hold`."""
    write("hold", label, time.time_ns())
    while not (FOLDER / "let-go").exists():
        await asyncio.sleep(LOOK_SECONDS)
