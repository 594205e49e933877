"""A worker or poller process for tests, which is started as a master starts it. Its few tasks record their runs.

The records are in lists on the server. The list `ran` gets a line for each start and each end. The task `hold` waits
for a token in a list, so a test decides when it ends.
"""

import asyncio
import contextlib
import ctypes
import functools
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import rota.tasks.hooks
from rota.child.child_process import ChildProcess
from rota.child.child_settings import poller_settings_from_json, worker_settings_from_json
from rota.child.slot_layout import REGION_BYTES
from rota.child.slot_memory import enter_slot, region_at
from rota.client.task import task
from rota.errors import Dead, Retry, TimeLimit
from rota.poller.poller_loop import run_poller
from rota.server.address import parse_address
from rota.server.connection import Connection, ConnectionOptions
from rota.tasks.hooks import CurrentTask, current_task
from rota.worker.claims import ClaimTimes
from rota.worker.worker_process import run_worker

_PATIENCE = ConnectionOptions("tests:task", read_seconds=100)


_KEPT: list[bytes] = []


class _Server:
    """The server on which the tasks record their runs, the `prefix` of the keys of these records, and the pid of this
    process.
    """

    url: str
    connection: Connection
    prefix: str
    pid: int


class _SlotRegion:
    """The position of this worker's slot in the shared memory."""

    fd: int
    at: int


def record(text: str) -> None:
    _Server.connection.execute("RPUSH", f"{_Server.prefix}:ran", text)


def record_separately(text: str) -> None:
    """Record a text on a separate connection, so that a signal that interrupts this call does not affect later
    calls.
    """
    with contextlib.closing(Connection(parse_address(_Server.url), _PATIENCE)) as connection:
        connection.execute("RPUSH", f"{_Server.prefix}:ran", text)


@rota.tasks.hooks.on_worker_start
def start() -> None:
    record("worker start")
    if os.environ.get("FAIL_AT_START"):
        sys.exit("the start hook fails")


@rota.tasks.hooks.on_worker_stop
def stop() -> None:
    record("worker stop")


@rota.tasks.hooks.on_dead
def bury(dead: CurrentTask, reason: str) -> None:
    record(f"buried {dead.name} {reason.split(':', maxsplit=1)[0]}")
    if dead.name == "die_with_hook":
        os._exit(9)
    if dead.name == "fork_in_hook":
        _fork_and("return")


@rota.tasks.hooks.around_task
def hesitate(current: CurrentTask) -> Generator[None, None, None]:
    if current.name == "hesitant":
        time.sleep(0.2)
    yield
    if current.name == "fork":
        record(f"after fork in {'its worker' if os.getpid() == _Server.pid else 'a copy'}")


@task
def note(text: str) -> None:
    record(text)


@task
def start_time() -> None:
    current = current_task()
    seconds, microseconds = _Server.connection.execute("TIME")
    start_us = int(seconds) * 1_000_000 + int(microseconds)
    record(f"{start_us} {round(current.due_at.timestamp() * 1_000_000)}")


@task
def hold(name: str) -> None:
    record(f"start {name} {current_task().attempt}")
    _Server.connection.execute("BLPOP", f"{_Server.prefix}:release", 60)
    record(f"end {name}")


@task
def note_in_file(path: str, text: str) -> None:
    """Append a text to a file, which takes much less time than `note`. While the file PATH.hold exists, wait before
    writing.
    """
    while Path(f"{path}.hold").exists():
        Path(f"{path}.held").touch()
        time.sleep(0.005)
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


@task
def note_in_file_slowly(path: str, text: str) -> None:
    """Append a text to a file. The task takes so long that the worker claims no other tasks with it."""
    time.sleep(0.007)
    note_in_file(path, text)


@task
def wait_for_file(path: str) -> None:
    record("waiting")
    while not Path(path).exists():
        time.sleep(0.005)


@task(retries=1, base=0)
def fail() -> None:
    record("failing")
    raise ValueError("no good")


@task(retries=0)
def leave() -> None:
    sys.exit("a task that leaves")


@task
def again_later(seconds: float) -> None:
    if current_task().attempt == 1:
        raise Retry(seconds)
    record("later")


def _fork_and(how: str) -> bool:
    """Fork this process. The parent waits for the copy, records its exit code and returns True. The copy exits, raises
    an error or returns False, depending on `how`.
    """
    pid = ctypes.PyDLL(None).fork() if how == "natively" else os.fork()
    if pid == 0:
        if how == "exit":
            sys.exit(3)
        if how == "raise":
            raise ValueError("in a copy")
        return False
    record(f"copy {how} {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
    return True


@task
def fork(how: str) -> None:
    _fork_and(how)


@task
async def fork_in_loop(how: str) -> None:
    await asyncio.sleep(0)
    _fork_and(how)


@task(retries=0)
def fork_in_hook() -> None:
    raise ValueError("its hook forks")


@task
def stop_a_process() -> None:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join()
    record(f"process {process.exitcode}")


@task(retries=0)
def die_with_hook() -> None:
    raise ValueError("its hook kills the worker")


@task
def hesitant() -> None:
    record(f"{current_task().lag_seconds}")


@task
def give_up() -> None:
    raise Dead("no such image")


@task
async def sleep_a_little(text: str) -> None:
    await asyncio.sleep(0)
    record(f"{text} {current_task().name}")


@task(retries=0)
async def wait_in_loop(path: str) -> None:
    record("waiting")
    while not Path(path).exists():
        await asyncio.sleep(0.005)
    record("found")


@task(retries=0)
async def overwrite_slot_in_loop(path: str) -> None:
    """Wait for a file. Then overwrite this worker's slot and return, without an `await` in between, so that the event
    loop notices the overwritten slot and the end of the task at the same time.
    """
    record("waiting")
    while not Path(path).exists():
        await asyncio.sleep(0.005)
    os.pwrite(_SlotRegion.fd, bytes(REGION_BYTES), _SlotRegion.at)


@task(crash_limit=0)
async def once_in_loop() -> None:
    record("once")


@task(retries=0)
async def doze(seconds: float) -> None:
    await asyncio.sleep(seconds)


def _plainly_wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@task
@_plainly_wrapped
async def wrapped_sleep(text: str) -> None:
    await asyncio.sleep(0)
    record(f"{text} {current_task().name}")


@task(backoff=lambda _: sys.exit("no more"))
def never_again() -> None:
    raise ValueError("no good")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@task(retries=0)
def fail_mutely() -> None:
    raise Mute


@task
def pass_on(text: str) -> None:
    note.enqueue(text)


@task
async def pass_on_in_loop(text: str) -> None:
    note.enqueue(text)


@task(retries=0, soft_time_limit=0.05)
def overstay(how: str) -> None:
    try:
        record_separately("staying")  # The signal may arrive as soon as the test reads this record.
        while True:
            time.sleep(0.001)
    except TimeLimit:
        record("told")
        if how == "raises":
            raise
    record("ended early")


@task(retries=0, soft_time_limit=0.05)
async def overstay_in_loop(how: str) -> None:
    record("staying")
    try:
        await asyncio.gather(asyncio.sleep(600), asyncio.sleep(600))
    except asyncio.CancelledError:
        record("told")
        if how == "raises":
            raise
    await asyncio.sleep(0)
    record("ended early")


@task(retries=3)
def linger(label: str) -> None:
    record(f"lingering {label}")
    while True:
        time.sleep(0.001)


@task(retries=3)
async def linger_in_loop(label: str) -> None:
    record(f"lingering {label}")
    await asyncio.gather(asyncio.sleep(600), asyncio.sleep(600))


@task(retries=0, soft_time_limit=1)
def beat_on() -> None:
    record("staying")
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        current_task().heartbeat()
    record("beaten")


@task(queue="hurried", retries=1000, base=0, soft_time_limit=0.001)
def hurry(label: str) -> None:
    """Enqueue tasks and check the status of each. The task ends after a random number of tasks, or at its soft time
    limit. If a status is wrong, it becomes dead.
    """
    while random.random() < 0.75:
        handle = note.using(queue="later").enqueue(label)
        found = handle.status()
        if (found.state, found.queue) != ("ready", "later"):
            raise Dead(f"another answer: {found}")


@task
def grow(megabytes: int) -> None:
    _KEPT.append(b"x" * (megabytes << 20))
    record(f"grown by {megabytes}")


@task(expires=0.001)
def fresh_only() -> None:
    record("fresh")


@task
def answer(expression: str) -> Any:
    return eval(expression)  # `expression` may have a value that JSON cannot represent


@task(remember=False)
def unremembered() -> None:
    record("unremembered")


def _keep_pace(task_ns: int) -> None:
    """Make the worker count `task_ns` as the run time of each task, however long the task really took on a busy
    machine.
    """
    measured = ClaimTimes.ended

    def ended(times: ClaimTimes, at_ns: int) -> None:
        measured(times, times.at_ns + task_ns)
        times.at_ns = at_ns

    setattr(ClaimTimes, "ended", ended)  # noqa: B010 - type checkers reject the assignment of a method


def main() -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    order = json.loads(sys.argv[1])
    _SlotRegion.fd, _SlotRegion.at = order["slots_fd"], region_at(order["slot"])
    place = enter_slot(order["slots_fd"], order["slot"], order["nonce"], os.getpid())
    if place is None:
        return 99
    process = ChildProcess(
        "node", order["slot"], place.slot, order["nonce"], order["owner"], order["death_fd"], order["bell_fd"]
    )
    return _poll(order["settings"], process) if order["role"] == "poller" else _work(order["settings"], process)


def _work(raw: dict[str, Any], process: ChildProcess) -> int:
    settings = worker_settings_from_json(json.dumps(raw))
    _Server.pid = os.getpid()
    _Server.prefix = settings.server.namespace
    _Server.url = settings.server.redis_url
    _Server.connection = Connection(parse_address(_Server.url), _PATIENCE)
    if task_ns := os.environ.get("TASKS_TAKE_NS"):
        _keep_pace(int(task_ns))
    return run_worker(settings, process)


def _poll(raw: dict[str, Any], process: ChildProcess) -> int:
    return run_poller(poller_settings_from_json(json.dumps(raw)), process)


if __name__ == "__main__":
    sys.exit(main())
