"""Queries that need the application's code, for example which tasks its modules define. Each query runs in a separate
process (`rota_supervisor.task_modules`), which imports the code.

A query therefore ends within a time limit, whatever the code does. The process that makes the query is not affected by
the application's code, threads or child processes.
"""

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from rota.server.connection import wait_for
from rota.server.logins import Login, LoginUnknown, ProviderFault
from rota_supervisor.process import spawn_python

REPLY_FD: Final = 3
PROVIDER_SECONDS: Final = 30.0  # the time limit for a query of a password provider
# The module is named as a string, because importing it here would import it into the master, which runs no application
# code.
_MODULE: Final = "rota_supervisor.task_modules"
_READ_BYTES: Final = 65_536


class ProbeFailed(Exception):
    """Raised if the process of a query gave no reply. The error message completes a sentence of the caller, for example
    "ended the process" after "importing shop.tasks"."""


class TookTooLong(ProbeFailed):
    """Raised if the process of a query gave no reply within the time limit."""


class FaultReply(TypedDict):
    """The reply to a query for the login, if the credentials provider gave none."""

    error: str
    is_fault: bool  # whether a person must change the provider or its setting


class ModulesReply(TypedDict):
    """The reply to a query about modules, with the tasks and schedules that they define."""

    tasks: list[tuple[str, str]]  # each task with its queue
    schedules: list[str]  # the names of the schedules
    misfits: list[str]  # a text for each schedule whose arguments do not fit its task


def query_code(folder: str, modules: Sequence[str], query: Mapping[str, Any], seconds: float) -> Any:
    """Return the reply of a separate process that imports the modules from the folder and then handles the query.
    Raises ProbeFailed."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    # Not passed as an argument, because arguments are limited to 128 KiB.
    query_fd = os.memfd_create("query", os.MFD_CLOEXEC)
    try:
        os.write(query_fd, json.dumps({**query, "parent": os.getpid()}).encode())
        os.lseek(query_fd, 0, os.SEEK_SET)
        pid = _spawn([folder, *modules], query_fd, writing)
    finally:
        os.close(query_fd)
        os.close(writing)
    status = None
    try:
        reply = _read_line(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # The master may already have reaped the process.
            _, status = os.waitpid(pid, 0)
    if reply is None:
        raise TookTooLong(f"took longer than {seconds:g} s")
    if not reply:
        raise ProbeFailed(f"ended the process{_ending(status)}")
    return json.loads(reply)


def _spawn(arguments: Sequence[str], query_fd: int, writing: int) -> int:
    descriptors = {0: query_fd, REPLY_FD: writing, 1: 2}  # The output of the modules is not data, so it goes to stderr.
    actions = [(os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in descriptors.items()]
    return spawn_python(["-m", _MODULE, *arguments], actions)


def _read_line(fd: int, deadline: float) -> bytes | None:
    """Return the data up to the end of a line or of the stream, or None if reading it takes too long."""
    data = b""
    while wait_for(fd, select.POLLIN, deadline - time.monotonic()):
        part = os.read(fd, _READ_BYTES)
        data += part
        if not part or data.endswith(b"\n"):
            return data
    return None


def _ending(status: int | None) -> str:
    if status is None:
        return ""
    code = os.waitstatus_to_exitcode(status)
    return f": the process exited with {code}" if code >= 0 else f": the process died of {signal.Signals(-code).name}"


def fetch_login(provider: str, folder: str, seconds: float = PROVIDER_SECONDS) -> Login:
    """Run a credentials provider of the application in a separate process, and return the login that it gives. Raises
    ProviderFault if the provider or its setting has to be corrected, and LoginUnknown for other failures."""
    try:
        reply = query_code(folder, (), {"provider": provider}, seconds)
    except (ProbeFailed, OSError) as error:
        raise LoginUnknown(f"the provider {provider!r} cannot be queried: it {error}") from None
    if "error" in reply:
        raise (ProviderFault if reply["is_fault"] else LoginUnknown)(reply["error"])
    return Login(**reply)


def login_reply(login: Login) -> dict[str, Any]:
    """Return the login as a JSON object, which the separate process sends as its reply to `fetch_login`."""
    return login._asdict()


def fault_reply(error: LoginUnknown) -> FaultReply:
    """Return the error as a JSON object, which the separate process sends as its reply to `fetch_login`. From the
    object, `fetch_login` recreates the error."""
    return FaultReply(error=str(error), is_fault=isinstance(error, ProviderFault))
