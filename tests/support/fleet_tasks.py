"""The task module of fleets under test. The tasks write each start and each end as a line of JSON to a journal. The
journal is in the folder of this file, or in the folder that the nodes of a fleet share.
"""

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
    """Append a line in a single write, so that lines of several workers do not mix.

    If a process is killed, the kernel ends its write at a page boundary. The page size is a multiple of the line
    length, so a line is written completely or not at all.
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
    """Return this worker's own connection to the server under test."""
    host, _, port = os.environ["FLEET_SERVER"].rpartition(":")
    return socket.create_connection((host, int(port)))


def redis_time() -> str:
    """Return the server's time in whole microseconds."""
    server().sendall(b"TIME\r\n")
    seconds, microseconds = server().recv(64).split(b"\r\n")[2:5:2]
    return str(int(seconds) * 1_000_000 + int(microseconds))


@rota.task
def note(label: str = "") -> None:
    """Record that the task ran."""
    write("start", label)
    write("end", label)


@rota.task
def hold(label: str) -> None:
    """Run until the file `release-LABEL` exists."""
    write("start", label)
    while not (FOLDER / f"release-{label}").exists():
        time.sleep(0.005)
    write("end", label)


@rota.task(retries=3)
def linger(label: str, how: str = "ends") -> None:
    """Run until the task is cancelled, and record the time. Then raise the cancellation again, raise another error,
    return, or continue, depending on `how`.
    """
    is_marked_started = False
    while True:
        try:
            # This write is inside the `try`, because the test cancels the task as soon as the line is in the journal.
            if not is_marked_started:
                is_marked_started = True
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
    """Do the same as `linger`, but in an event loop, which delivers the cancellation."""
    write("start", label)
    try:
        await asyncio.gather(asyncio.sleep(600), asyncio.sleep(600))
    except asyncio.CancelledError:
        write("cancelled", label)
        raise


async def attend_to_the_end(label: str) -> None:
    """Run concurrently with other tasks until the file `release-all` exists or the task is interrupted."""
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
    """Run concurrently with other tasks until the file `release-all` exists. Depending on `how`, the task instead fails
    in its first attempt, blocks the other tasks, or kills the worker once other tasks run too.
    """
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
    """Report progress, step by step, until the file `release-LABEL` exists."""
    write("start", label)
    steps = 0
    while not (FOLDER / f"release-{label}").exists():
        steps += 1
        rota.current_task().progress(steps, 1_000_000, note)
        time.sleep(0.005)
    write("end", label)


@rota.task(retries=3, backoff="linear", base=0.01, jitter=False)
def live(ends: list[str]) -> None:
    """End each attempt as listed in `ends`: "kill" kills the worker, "well" is success, and any other text is raised as
    an error.
    """
    end = ends[rota.current_task().attempt - 1]
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if end != "well":
        raise ValueError(end)


@rota.task(rate="20/s", rate_key="{account}")
def bill(account: str, label: str) -> None:
    """Record the server's time for an account. A rate limits how often the task starts for each account."""
    write("start", label)
    write(account, redis_time())
    write("end", label)


@rota.task
def tell_time(label: str) -> None:
    """Record the server's time in whole microseconds."""
    write("time", redis_time())
    write("end", label)


@rota.task
def relay(label: str, seconds: float) -> None:
    """Record the server's time, and enqueue a task that records it again after this number of seconds."""
    tell_time(label)
    tell_time.enqueue_in(seconds, label)


@rota.task
def kill_worker() -> None:
    """End the process, as a crash in native code does."""
    write("start", "")
    os.kill(os.getpid(), signal.SIGKILL)


@rota.task
def segfault() -> None:
    """Read from an invalid address."""
    write("start", "")
    ctypes.string_at(0)


@rota.task(time_limit=1, base=0)
def shrug() -> None:
    """Catch every exception and continue, so that only the hard time limit ends the task."""
    write("start", "")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)


@rota.task
def grow(megabytes: int) -> None:
    """Allocate this amount of memory, and keep it for a while."""
    write("start", "")
    taken = bytearray(megabytes << 20)
    taken[:: mmap.PAGESIZE] = b"x" * len(taken[:: mmap.PAGESIZE])
    time.sleep(0.1)
    write("end", "")


@rota.task
def leave_daemon(label: str) -> None:
    """Start a daemon in the classic way, that is, as an orphan in a new session. Then continue to run."""
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.execlp("sh", "sh", "-c", f"echo $$ > {FOLDER}/daemon-{label}; sleep 600 & wait")
    os.wait()
    hold(label)


@rota.task(result_ttl=600)
def tell_end(seconds: float = 0.0) -> float:
    """Sleep for this number of seconds, and return the Unix time at the end, by the node's clock."""
    time.sleep(seconds)
    return time.time()


@rota.task(retries=0, result_ttl=600)
def judge(number: int) -> int:
    """Raise an error if the number is odd, otherwise return three times the number. The outcome is recorded in the
    journal immediately before.
    """
    write("start", str(number))
    time.sleep(0.001)
    if number % 2:
        write("fail", str(number))
        raise ArithmeticError(f"{number} is odd")
    write("end", str(number))
    return number * 3


@rota.task(retries=0, soft_time_limit=2)
def wait_inside(label: str) -> None:
    """Wait for a task that another worker holds, until the soft time limit interrupts the wait. Then wait again,
    because a wait must still work after that.
    """
    held = rota.Call("hold", args=[label], queue="default")
    [handle] = rota.enqueue_many([held])
    try:
        handle.wait()
    except rota.TimeLimit:
        write("limit", label)
        rota.current_task().heartbeat()
        handle.wait_started(10)
        write("end", f"inside-{label}")


@rota.task(time_limit=2, retries=0)
def oversleep() -> None:
    """Sleep beyond the time limit."""
    write("start", "")
    time.sleep(600)


@rota.task(crash_limit=0)
def once(label: str, seconds: float = 0.005) -> None:
    """Start at most once, and run for this long."""
    write("start", label)
    time.sleep(seconds)
    write("end", label)


@rota.task(crash_limit=0)
def hold_once(label: str) -> None:
    """Start at most once, and run until the file `release-LABEL` exists."""
    hold(label)


@rota.task(retries=0, result_ttl=600)
def answer(label: str, fails: bool) -> dict[str, str]:
    """Keep the worker busy for 2 ms, then raise an error if `fails`, otherwise return the label."""
    spin(label, 0.002)
    if fails:
        raise ValueError(label)
    return {"label": label}


@rota.task(retries=0)
def add(first: int, second: int) -> None:
    """Record the sum. Tests call this task with a wrong number of arguments."""
    write("end", str(first + second))


@rota.task
def spin(label: str, seconds: float = 0.001) -> None:
    """Keep the worker busy for this long."""
    write("start", label)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    write("end", label)


@rota.task
def toil(label: str) -> None:
    """Run long enough to make the worker claim this task alone."""
    spin(label, 0.006)


@rota.task
def rest(number: int) -> None:
    """Do nothing, and record nothing."""


@rota.task(retries=0)
def give_up(label: str) -> None:
    """Raise `Dead` in the only attempt."""
    write("start", label)
    raise rota.Dead(label)
