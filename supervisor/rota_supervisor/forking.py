"""Fork a worker twice over, so that the master is its parent. Only this module forks, and only a zygote calls it.

The zygote forks an intermediate, the intermediate forks the worker, reports its pid and leaves; the worker
then falls to the master, the nearest subreaper.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rota.child.life import EXIT_ORPHANED, Life, StartFailed
from rota.child.settings import WorkerSettings
from rota.child.slot_memory import SlotPlace, move_in
from rota.worker import run_worker
from rota_supervisor import messages
from rota_supervisor.child import leave_last_words, leave_no_stacks, leave_stacks_in
from rota_supervisor.layout import BELL_FD, DEATH_FD, OWNER_MARK
from rota_supervisor.process import die_with_parent, keep_mapped, show_title, wake_with_parent

_OOM_EXTRA: Final = 300  # a worker is a better victim than the master
_OOM_MOST: Final = 1000
_OOM_BYTES: Final = 16
EXIT_CRASHED: Final = 1
_CATCHABLE: Final = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})  # made once for all workers


@dataclass(slots=True)
class Nursery:
    """What the zygote forks with. `stack_fd`: its own stack file. `slots_fd`: the memory of all slots, closed in a
    worker before anything of the application runs; it comes after the import."""

    channel: socket.socket
    master_pid: int
    pools: Mapping[str, WorkerSettings]
    stack_fd: int | None
    slots_fd: int = -1


def fork_worker(nursery: Nursery, request: messages.Fork, stack_fd: int | None) -> None:
    """Start the worker that was asked for, or say why not. `stack_fd`, its stack file, is closed here."""
    try:
        pid = os.fork()
        if pid == 0:
            _be_intermediate(nursery, request, stack_fd)
    except OSError as error:
        _refuse(nursery, request, error)
        return
    finally:  # not in the children: neither comes here
        if stack_fd is not None:
            os.close(stack_fd)
    _, status = os.waitpid(pid, 0)
    if status != 0:  # it died before its report; a worker it may have left finds its slot taken
        reason = f"the intermediate ended with wait status {status}"
        messages.send(nursery.channel, messages.ForkFailed(request.slot, request.nonce, reason))


def _refuse(nursery: Nursery, request: messages.Fork, error: OSError) -> None:
    messages.send(nursery.channel, messages.ForkFailed(request.slot, request.nonce, str(error)))


def _be_intermediate(nursery: Nursery, request: messages.Fork, stack_fd: int | None) -> None:
    status = EXIT_CRASHED
    try:
        itself = os.pidfd_open(os.getpid())
        pid = os.fork()
        if pid == 0:
            _be_worker(nursery, request, itself, stack_fd)
        messages.send(nursery.channel, messages.Spawned(request.slot, request.nonce, pid))
        status = 0
    except OSError as error:
        _refuse(nursery, request, error)
        status = 0
    finally:
        os._exit(status)


def _be_worker(nursery: Nursery, request: messages.Fork, intermediate: int, stack_fd: int | None) -> None:
    """Never returns; nothing of the zygote's stack above may run in the worker."""
    status = EXIT_CRASHED
    try:
        wake_with_parent()  # before it leaves the zygote's group, which would be continued
        os.setsid()
        _wait_until_gone(intermediate)
        # Only now: PDEATHSIG is sent at the death of every parent, the intermediate's included.
        if not die_with_parent(nursery.master_pid):
            os._exit(EXIT_ORPHANED)
        nursery.channel.close()
        status = _work(nursery, request, stack_fd)
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else EXIT_CRASHED
    except BaseException:  # noqa: BLE001 - the last frame of this process: say why, then leave
        sys.excepthook(*sys.exc_info())
    finally:
        _flush()
        os._exit(status)


def _wait_until_gone(pidfd: int) -> None:
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    waiting.poll()
    os.close(pidfd)


def _work(nursery: Nursery, request: messages.Fork, stack_fd: int | None) -> int:
    leave_no_stacks()
    if nursery.stack_fd is not None:
        os.close(nursery.stack_fd)
    _reset_signals()
    leave_stacks_in(stack_fd)
    if stack_fd is not None:
        keep_mapped(stack_fd)  # so that a copy of this process is known for what it is: see `master.strangers`
    _empty_stdin()
    _offer_to_oom_killer()
    _reseed()
    os.environ[OWNER_MARK] = request.owner
    place = _move_in(nursery, request)
    if place is None:
        return EXIT_ORPHANED
    gc.enable()
    life = Life(request.slot, place.slot, request.nonce, request.owner, DEATH_FD, BELL_FD)
    settings = nursery.pools[request.pool]
    show_title(f"worker {request.pool} {request.slot}", settings.server.namespace)
    try:
        return run_worker(settings, life)
    except StartFailed as failure:
        leave_last_words(stack_fd, str(failure))
        return EXIT_CRASHED


def _move_in(nursery: Nursery, request: messages.Fork) -> SlotPlace | None:
    place = move_in(nursery.slots_fd, request.slot, request.nonce, os.getpid())
    os.close(nursery.slots_fd)
    return place


def _reset_signals() -> None:
    """Python's default handlers, whatever the modules set at import. The mask stays: the worker loop lifts it."""
    signal.set_wakeup_fd(-1)
    for number in _CATCHABLE:
        with contextlib.suppress(OSError, ValueError):  # numbers that the C library keeps to itself
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def _empty_stdin() -> None:
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.close(null)


def _offer_to_oom_killer() -> None:
    with contextlib.suppress(OSError, ValueError):  # no such file in some containers; it is only a preference
        fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        try:
            score = min(_OOM_MOST, int(os.read(fd, _OOM_BYTES)) + _OOM_EXTRA)
            os.pwrite(fd, str(score).encode(), 0)
        finally:
            os.close(fd)


def _reseed() -> None:
    """Python reseeds its own `random` after a fork; numpy does not."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or its reader is gone
            stream.flush()
