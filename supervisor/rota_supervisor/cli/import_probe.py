"""Import the task modules in a child process, to learn what they define and whether they can be imported.

The child is this module run by `python -P -m`; it has the modules in its arguments, the calls of schedules in a file
that is its standard input, and answers one JSON object on a pipe of its own, since modules print at import what they
like. It has a session of its own, so that what a module started is ended with it.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.messages import ImportFailed, ScheduledCalls

ANSWER_FD = 3
READ_BYTES = 65_536


class Imports(NamedTuple):
    """What modules define: the queue of each task, and the names of schedules. `misfits`: what is wrong with those of
    the calls that do not fit their task."""

    tasks: dict[str, str]
    schedules: list[str]
    misfits: list[str]


def probe_imports(imports: Sequence[str], seconds: float, calls: ScheduledCalls) -> Imports:
    """Import modules in a child, at most for so long; answers what they define. Raises Failure 78 with the error."""
    if not imports:
        return Imports({}, [], [])
    reading, writing = os.pipe()
    asking = os.memfd_create("calls")  # no argument: these end at 128 KiB
    try:
        os.write(asking, json.dumps(calls).encode())
        os.lseek(asking, 0, os.SEEK_SET)
        pid = _spawn(imports, asking, writing)
    finally:
        os.close(asking)
        os.close(writing)
    try:
        answer = _read_line(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return _found(answer, status, imports, seconds)


def _spawn(imports: Sequence[str], asking: int, writing: int) -> int:
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", __name__, str(Path.cwd()), *imports],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, asking, 0),
            (os.POSIX_SPAWN_DUP2, writing, ANSWER_FD),
            (os.POSIX_SPAWN_DUP2, 2, 1),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )


def _read_line(fd: int, deadline: float) -> bytes | None:
    """All that comes until a line ends or the other end closes; None when that is not in time."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    data = b""
    while poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
        part = os.read(fd, READ_BYTES)
        data += part
        if not part or data.endswith(b"\n"):
            return data
    return None


def _found(answer: bytes | None, status: int, imports: Sequence[str], seconds: float) -> Imports:
    modules = ", ".join(imports)
    if answer is None:
        raise Failure(
            ExitCode.CONFIG,
            f"importing {modules} took longer than {seconds:g} s (limits.boot_seconds): "
            "does a module wait for something at import?",
        )
    if not answer:
        code = os.waitstatus_to_exitcode(status)
        ending = f"it exited with {code}" if code >= 0 else f"it died of {signal.Signals(-code).name}"
        raise Failure(ExitCode.CONFIG, f"importing {modules} ended the process: {ending}")
    found = json.loads(answer)
    if "error" in found:
        raise Failure(ExitCode.CONFIG, ImportFailed(**found).told())
    return Imports(dict(found["tasks"]), found["schedules"], found["misfits"])


def main() -> None:
    """The child's side."""
    from rota_supervisor import importing  # noqa: PLC0415 - the child's side only

    os.set_inheritable(ANSWER_FD, False)
    folder, *modules = sys.argv[1:]
    calls = json.load(sys.stdin)
    importing.make_importable([folder])
    failure = importing.import_all(modules)
    if failure is None:
        schedules = [name for name, _ in importing.declared_schedules()]
        answer: dict[str, object] = {
            "tasks": importing.tasks_and_queues(),
            "schedules": schedules,
            "misfits": list(importing.misfits(calls)),
        }
    else:
        answer = failure._asdict()
    os.write(ANSWER_FD, json.dumps(answer).encode() + b"\n")
    os._exit(0)  # whatever threads the modules left


if __name__ == "__main__":
    main()
