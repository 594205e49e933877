"""The tasks of a soak. The start and the end of each attempt are recorded independently of Redis."""

import asyncio
import functools
import os
import signal
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import rota
from soak.evidence import RUNS_FILE, Journal, RunEvent, ran_now


class Refusal(Exception):
    """The exception with which a task fails so that it is retried."""


@functools.cache
def journal() -> Journal:
    """Return the journal in which this worker records attempts. The journal is in the folder of the run, which is the
    parent of the working directory.
    """
    return Journal(Path.cwd().parent / RUNS_FILE)


@rota.around_task
def journaled(task: rota.CurrentTask) -> Generator[None, None, None]:
    """Record the start and the end of an attempt."""
    journal().write(ran_now(RunEvent.START, task))
    try:
        yield
    except BaseException:
        journal().write(ran_now(RunEvent.RAISED, task))
        raise
    journal().write(ran_now(RunEvent.END, task))


@rota.task
def short() -> None:
    """Do nothing."""


@rota.task
def step(number: int) -> None:
    """Do nothing. `number` is the position of the task in its sequence."""


@rota.task
def work(seconds: float) -> None:
    """Block for this number of seconds."""
    time.sleep(seconds)


@rota.task
async def wait(seconds: float) -> None:
    """Sleep for this number of seconds in an event loop, so that other tasks can run."""
    await asyncio.sleep(seconds)


@rota.task
def alone(key: int) -> int:
    """Run for a moment. Tasks with the same key are sent with the same unique key."""
    time.sleep(0.1)
    return key


@rota.task(base=0.1, max_delay=1.0)
def fail(times: int) -> None:
    """Raise an exception in each of the first `times` attempts, so that the task is retried."""
    if rota.current_task().attempt <= times:
        raise Refusal("not yet")


@rota.task(base=0.1)
def fail_always() -> None:
    """Raise an exception in each attempt, so that the task finally becomes dead."""
    raise Refusal("never")


@rota.task
def raise_dead() -> None:
    """Raise an error that allows no further attempt."""
    raise rota.Dead("as asked")


@rota.task
def kill_worker() -> None:
    """Kill this process, as a crash in native code does, unless an earlier attempt has crashed."""
    if _is_to_die():
        os.kill(os.getpid(), signal.SIGKILL)


@rota.task
def leave() -> None:
    """Exit this process with `os._exit`, unless an earlier attempt has crashed."""
    if _is_to_die():
        os._exit(3)


def _is_to_die() -> bool:
    task = rota.current_task()
    if task.crashes:
        return False
    journal().write(ran_now(RunEvent.DIES, task))
    return True


@rota.task
def have_a_child(seconds: float) -> None:
    """Start a process that would run for an hour, and end it after this number of seconds. If the worker is killed
    earlier, the started process must end too.
    """
    with subprocess.Popen(["sleep", "3600"]) as child:
        try:
            time.sleep(seconds)
        finally:
            child.kill()
