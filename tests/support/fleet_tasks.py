"""The task module of fleets under test. Each start and each end is a line of JSON in a journal,
beside this file or in the folder that the nodes of a fleet share."""

import asyncio
import contextlib
import ctypes
import functools
import json
import mmap
import os
import signal
import socket
import time
from pathlib import Path

import rota

FOLDER = Path(os.environ.get("FLEET_FOLDER") or Path(__file__).parent)
LINE_BYTES = 512


def write(event: str, label: str) -> None:
    """Append a line in one write, so that lines of several workers never mix.

    The kernel ends the write of a process that is killed at the edge of a page, so a line is as long as a whole part of
    one: it is there or it is not.
    """
    task = rota.current_task()
    line = {
        "event": event,
        "label": label,
        "name": task.name,
        "id": task.id,
        "queue": task.queue,
        "crashes": task.crashes,
        "pid": os.getpid(),
        "at": time.time(),
        "due_at": task.due_at.timestamp(),
    }
    fd = os.open(FOLDER / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, json.dumps(line).encode().ljust(LINE_BYTES - 1) + b"\n")
    finally:
        os.close(fd)


@functools.cache
def server() -> socket.socket:
    """A connection of this worker's own to the server under test."""
    host, _, port = os.environ["FLEET_SERVER"].rpartition(":")
    return socket.create_connection((host, int(port)))


def told_time() -> str:
    """The server's own time, in whole microseconds."""
    server().sendall(b"TIME\r\n")
    seconds, microseconds = server().recv(64).split(b"\r\n")[2:5:2]
    return str(int(seconds) * 1_000_000 + int(microseconds))


@rota.task
def note(label: str = "") -> None:
    """Tell that it ran."""
    write("start", label)
    write("end", label)


@rota.task
def hold(label: str) -> None:
    """Run until there is a file `release-LABEL`."""
    write("start", label)
    while not (FOLDER / f"release-{label}").exists():
        time.sleep(0.005)
    write("end", label)


@rota.task(retries=3)
def linger(label: str, how: str = "ends") -> None:
    """Run until it is cancelled, and tell when. Then let that out, fail, return, or go on."""
    has_begun = False
    while True:
        try:
            if not has_begun:  # in here, as who reads it cancels at once
                has_begun = True
                write("start", label)
            time.sleep(600)
        except rota.Cancelled:
            write("cancelled", label)
            if how == "ends":
                raise
            if how == "fails":
                raise ValueError("while it cleaned up") from None
            if how == "returns":
                return


@rota.task
async def linger_in_loop(label: str) -> None:
    """The same, where it is cancelled through the loop."""
    write("start", label)
    try:
        await asyncio.gather(asyncio.sleep(600), asyncio.sleep(600))
    except asyncio.CancelledError:
        write("cancelled", label)
        raise


async def attend_to_the_end(label: str) -> None:
    """Run beside others until there is a file `release-all`, or it is told to end."""
    write("start", label)
    try:
        while not (FOLDER / "release-all").exists():
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        write("told", label)
        raise
    write("end", label)


attend_briefly = rota.task(name="attend_briefly", retries=0, soft_time_limit=1)(attend_to_the_end)
attend_too_long = rota.task(name="attend_too_long", retries=0, time_limit=1)(attend_to_the_end)


@rota.task(retries=1, base=0)
async def attend(label: str, how: str = "waits") -> None:
    """The same; or fail the first time, hold up the others, or kill the worker once others run as well."""
    if how == "kills":
        write("start", label)
        await asyncio.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fails" and rota.current_task().attempt == 1:
        write("fail", label)
        raise ValueError("the first time")
    if how == "blocks":
        time.sleep(2.5)
    await attend_to_the_end(label)


@rota.task
def advance(label: str, note: str) -> None:
    """Tell of its progress, step by step, until there is a file `release-LABEL`."""
    write("start", label)
    steps = 0
    while not (FOLDER / f"release-{label}").exists():
        steps += 1
        rota.current_task().progress(steps, 1_000_000, note)
        time.sleep(0.005)
    write("end", label)


@rota.task(retries=3, backoff="linear", base=0.01, jitter=False)
def live(ends: list[str]) -> None:
    """End each attempt as it is told: killed, well, or with that error."""
    end = ends[rota.current_task().attempt - 1]
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if end != "well":
        raise ValueError(end)


@rota.task(rate="20/s", rate_key="{account}")
def bill(account: str, label: str) -> None:
    """Tell the server's own time, of an account of which only so many may start."""
    write("start", label)
    write(account, told_time())
    write("end", label)


@rota.task
def tell_time(label: str) -> None:
    """Tell the server's own time, in whole microseconds."""
    write("time", told_time())
    write("end", label)


@rota.task
def relay(label: str, seconds: float) -> None:
    """Tell the server's own time, and have that told once more after so many seconds."""
    tell_time(label)
    tell_time.enqueue_in(seconds, label)


@rota.task
def kill_worker() -> None:
    """End the process it runs in, as a crash of native code does."""
    write("start", "")
    os.kill(os.getpid(), signal.SIGKILL)


@rota.task
def segfault() -> None:
    """Read where nothing is."""
    write("start", "")
    ctypes.string_at(0)


@rota.task(time_limit=1, base=0)
def shrug() -> None:
    """Let nothing stop it that can be caught."""
    write("start", "")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)


@rota.task
def grow(megabytes: int) -> None:
    """Take so much memory, and keep it for a while."""
    write("start", "")
    taken = bytearray(megabytes << 20)
    taken[:: mmap.PAGESIZE] = b"x" * len(taken[:: mmap.PAGESIZE])
    time.sleep(0.1)
    write("end", "")


@rota.task
def leave_daemon(label: str) -> None:
    """Start a daemon in the classic way, with a parent that is gone and a session of its own, and run on."""
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.execlp("sh", "sh", "-c", f"echo $$ > {FOLDER}/daemon-{label}; sleep 600 & wait")
    os.wait()
    hold(label)


@rota.task(result_ttl=600)
def tell_end(seconds: float = 0.0) -> float:
    """Return when it ended, after so many seconds, by the node's clock."""
    time.sleep(seconds)
    return time.time()


@rota.task(retries=0, result_ttl=600)
def judge(number: int) -> int:
    """Fail with an odd number, return another one; and tell in the journal which it is to be, at the very end."""
    write("start", str(number))
    time.sleep(0.001)
    if number % 2:
        write("fail", str(number))
        raise ArithmeticError(f"{number} is odd")
    write("end", str(number))
    return number * 3


@rota.task(retries=0, soft_time_limit=2)
def wait_inside(label: str) -> None:
    """Wait for a task that another worker holds, until the limit; and once more, which goes as if nothing had been."""
    held = rota.Call("hold", args=[label], queue="default")
    [handle] = rota.enqueue_many([held])
    try:
        handle.wait()
    except rota.TimeLimit:
        write("limit", label)
        rota.current_task().beat()
        handle.wait_started(10)
        write("end", f"inside-{label}")


@rota.task(time_limit=2, retries=0)
def oversleep() -> None:
    """Sleep beyond the time limit."""
    write("start", "")
    time.sleep(600)


@rota.task(crash_limit=0)
def once(label: str, seconds: float = 0.005) -> None:
    """Start once at most, and take so long."""
    write("start", label)
    time.sleep(seconds)
    write("end", label)


@rota.task(crash_limit=0)
def hold_once(label: str) -> None:
    """Start once at most, and run until there is a file `release-LABEL`."""
    hold(label)


@rota.task(retries=0, result_ttl=600)
def answer(label: str, fails: bool) -> dict[str, str]:
    """Take 2 ms, and return or raise."""
    spin(label, 0.002)
    if fails:
        raise ValueError(label)
    return {"label": label}


@rota.task(retries=0)
def add(first: int, second: int) -> None:
    """Take exactly two arguments."""
    write("end", str(first + second))


@rota.task
def spin(label: str, seconds: float = 0.001) -> None:
    """Take so much of this worker's time."""
    write("start", label)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    write("end", label)


@rota.task
def toil(label: str) -> None:
    """Take so long that it is claimed alone."""
    spin(label, 0.006)


@rota.task
def rest(number: int) -> None:
    """Do nothing, and tell nobody."""


@rota.task(retries=0)
def give_up(label: str) -> None:
    """Be dead after the only attempt."""
    write("start", label)
    raise rota.Dead(label)
