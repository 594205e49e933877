"""The zygote, which imports the user's code once, and then forks workers when the master requests them.

1. At the start, the zygote makes the kernel kill it if its parent dies (PDEATHSIG). All signals are blocked from its
   first instruction on, except the signals that write its stack. Garbage collection is off.
2. The zygote imports the task modules, warns about threads and connections that the modules left open, collects
   garbage, freezes the heap and reports that it is ready.
3. Then the zygote runs a simple blocking loop: one request, one fork.
4. If the master's end of the channel closes without a Bye, or if the zygote gets another parent, the master has died.
   The zygote then kills the process groups of all live workers, because a worker may leave processes behind that
   PDEATHSIG does not reach. Finally, the zygote kills its own group. If the zygote is stopped when the master dies, the
   kernel continues it first.

The descriptor with which workers map their slots arrives after the imports, so the modules never have access to it.

A worker is forked twice, so that the master becomes its parent. The zygote forks an intermediate, which forks the
worker, reports its pid and exits. The master, as the nearest subreaper, then adopts the worker. Only this module forks.
"""

import contextlib
import errno
import gc
import os
import select
import signal
import socket
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rota.child.child_process import EXIT_ORPHANED, ChildProcess, StartFailed, ring
from rota.child.child_settings import LogSettings, WorkerSettings, worker_settings_from_json
from rota.child.slot_memory import enter_slot
from rota.child.slots import Phase, pids_in
from rota.server.address import address_of
from rota.telemetry import log, log_events
from rota.worker.worker_process import run_worker
from rota_supervisor import child_start, messages, process, task_modules
from rota_supervisor.layout import CHANNEL_FD, DEATH_FD, OWNER_MARK, RANGES, Role

HEARTBEAT_SECONDS: Final = 1.0
EXIT_IMPORT_FAILED: Final = 1
EXIT_CRASHED: Final = 1
_OOM_EXTRA: Final = 300  # added to a worker's OOM score, so that the kernel kills a worker before the master
_OOM_MOST: Final = 1000
_OOM_BYTES: Final = 16


def main() -> int:
    """Run the zygote, and return its exit code."""
    entered = child_start.enter(os.getpid())
    gc.disable()
    raw = entered.first.settings
    process.show_title(f"zygote generation {raw['generation']}", raw["namespace"])
    _configure_log(entered.first, raw)
    if not _load(entered, raw):
        return EXIT_IMPORT_FAILED
    # If a title contains spaces, CPython 3.12 and later misreads the number of threads and warns at each fork. The
    # warning is filtered only after the imports, because modules may set their own filters.
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="__main__")
    entered.slot.phase = Phase.IDLE
    ring(entered.descriptors.bell)
    process.outlive_parent(DEATH_FD)
    if not _serve(entered):
        _kill_live_groups(entered.process_table)
    return 0


def _configure_log(first: messages.First, raw: Mapping[str, Any]) -> None:
    own = log.of_process(first.role, raw["namespace"], first.node, slot=first.slot)
    log.configure(LogSettings(**raw["log"]), **own)


def _load(entered: child_start.EnteredChild, raw: Mapping[str, Any]) -> bool:
    """Import all modules and report the result. Returns False if a module could not be imported. `raw` has the fields
    of ZygoteSettings."""
    channel = entered.channel
    imports = raw["imports"]
    task_modules.make_importable(raw["path"])
    failure = task_modules.import_all(imports, lambda module: messages.send(channel, messages.Importing(module)))
    if failure is not None:
        messages.send(channel, failure)
        return False
    # Block all signals again, because the modules may have unblocked some of them.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - child_start.HANDLED_SIGNALS)
    # If SIGCHLD were ignored, the exit statuses of intermediates would be lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for text in (*task_modules.warnings(frozenset({CHANNEL_FD, 0, 1, 2})), *task_modules.misfits(raw["calls"])):
        messages.send(channel, messages.Warned(text))
    tasks = task_modules.tasks_and_queues()
    for at in range(0, len(tasks), messages.TASKS_PER_PACKET):
        messages.send(channel, messages.Imported(tuple(tasks[at : at + messages.TASKS_PER_PACKET])))
    for name, definition in task_modules.declared_schedules():
        messages.send(channel, messages.Scheduled(name, definition))
    task_modules.warm_up()
    messages.send(channel, messages.Ready(len(imports), task_modules.freeze()))
    return True


def _serve(entered: child_start.EnteredChild) -> bool:
    """Fork workers on request. Return True after the master has sent Bye, or False after it has died."""
    pools: dict[str, WorkerSettings] = {}
    first = entered.first
    bell_fd = entered.descriptors.bell
    stack_fd = entered.descriptors.stack
    forks = Forks(entered.channel, first.node, first.master_pid, pools, bell_fd, stack_fd)
    waiting = select.poll()
    waiting.register(entered.channel, select.POLLIN)
    while True:
        entered.slot.heartbeat()
        if os.getppid() != first.master_pid:
            return False  # The channel may still be open in a stopped copy of the master.
        if not waiting.poll(HEARTBEAT_SECONDS * 1000):
            continue
        message, fd = messages.receive(entered.channel)
        match message:
            case messages.Slots():
                if fd is None:
                    raise OSError(errno.EMFILE, "no descriptor is left for the slots of workers")
                forks.slots_fd = fd
            case messages.Fork() as request:
                with contextlib.suppress(BrokenPipeError):  # The master has died, which the next iteration detects.
                    fork_worker(forks, request, fd)
            case messages.PoolSettings(name, settings):
                pools[name] = worker_settings_from_json(settings)
                address_of(pools[name].server)  # The result is cached for the pool's workers.
                task_modules.warm_up_for(pools[name].concurrency)
            case messages.Bye():
                return True
            case None:
                return False
            case other:
                raise ValueError(f"a zygote accepts no {type(other).__name__}")


def _kill_live_groups(process_table: memoryview) -> None:
    """Kill the process groups of all live workers, and then this process's own group.

    Each worker leads a group whose number is the worker's pid, as stored in the process table, which the worker cannot
    change. This process leads a group too, which includes intermediates and processes that the modules have started.
    """
    killed = 0
    workers = RANGES[Role.WORKER]
    for pid in pids_in(process_table)[workers.start : workers.stop]:
        if pid > 1:  # killpg(1) would signal every process.
            with contextlib.suppress(*process.UNREACHABLE):
                os.killpg(pid, signal.SIGKILL)
                killed += 1
    log.logger().warning(log_events.ZYGOTE_EXITED, reason="the master has died", groups_killed=killed)
    os.killpg(os.getpid(), signal.SIGKILL)


# Forking


@dataclass(slots=True)
class Forks:
    """The resources that the zygote needs to fork workers."""

    channel: socket.socket
    node: str  # the name of this node
    master_pid: int
    pools: Mapping[str, WorkerSettings]  # the worker settings of each pool
    bell_fd: int  # the master's bell
    stack_fd: int | None  # the zygote's own stack file
    slots_fd: int = -1  # the memory of all slots; set after the imports


def fork_worker(forks: Forks, request: messages.Fork, stack_fd: int | None) -> None:
    """Start the requested worker, or report why it could not be started. Closes `stack_fd`, the worker's stack file."""
    try:
        pid = os.fork()
        if pid == 0:
            _be_intermediate(forks, request, stack_fd)
    except OSError as error:
        _refuse(forks, request, str(error))
        return
    finally:  # The forked child does not reach this line, because it exits.
        if stack_fd is not None:
            os.close(stack_fd)
    _, status = os.waitpid(pid, 0)
    # The intermediate died before its report. If it has forked a worker, that worker will find another nonce in its
    # slot.
    if status != 0:
        _refuse(forks, request, f"the intermediate process ended with wait status {status}")


def _refuse(forks: Forks, request: messages.Fork, reason: str) -> None:
    messages.send(forks.channel, messages.ForkFailed(request.slot, request.nonce, reason))


def _be_intermediate(forks: Forks, request: messages.Fork, stack_fd: int | None) -> None:
    status = EXIT_CRASHED
    try:
        itself = os.pidfd_open(os.getpid())
        pid = os.fork()
        if pid == 0:
            _be_worker(forks, request, itself, stack_fd)
        messages.send(forks.channel, messages.Spawned(request.slot, request.nonce, pid))
        status = 0
    except OSError as error:
        _refuse(forks, request, str(error))
        status = 0
    finally:
        os._exit(status)


def _be_worker(forks: Forks, request: messages.Fork, intermediate: int, stack_fd: int | None) -> None:
    """Run a worker. This function never returns, because the zygote's calling functions must not continue in the
    worker."""
    status = EXIT_CRASHED
    try:
        # Call this before setsid. As long as this process is in the zygote's group, the kernel also continues it when
        # it continues that group.
        process.wake_with_parent()
        os.setsid()
        _wait_until_gone(intermediate)
        # Now that the intermediate is gone, the master is the parent. If this call came earlier, the kernel would kill
        # the worker when the intermediate exits.
        if not process.die_with_parent(forks.master_pid):
            os._exit(EXIT_ORPHANED)
        forks.channel.close()
        status = _work(forks, request, stack_fd)
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else EXIT_CRASHED
    except BaseException:  # noqa: BLE001 - the last frame of this process: report the error, then exit
        sys.excepthook(*sys.exc_info())
    finally:
        _flush()
        os._exit(status)


def _wait_until_gone(pidfd: int) -> None:
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    waiting.poll()
    os.close(pidfd)


def _work(forks: Forks, request: messages.Fork, stack_fd: int | None) -> int:
    child_start.leave_no_stacks()
    if forks.stack_fd is not None:
        os.close(forks.stack_fd)
    _reset_signals()
    child_start.leave_stacks_in(stack_fd)
    if stack_fd is not None:
        process.keep_mapped(stack_fd)  # The mapping identifies copies of this process: see `master.shell.reaper`.
    _empty_stdin()
    _offer_to_oom_killer()
    _reseed()
    os.environ[OWNER_MARK] = request.owner
    mapped = enter_slot(forks.slots_fd, request.slot, request.nonce, os.getpid())
    os.close(forks.slots_fd)
    if mapped is None:
        return EXIT_ORPHANED
    gc.enable()
    child = ChildProcess(forks.node, request.slot, mapped.slot, request.nonce, request.owner, DEATH_FD, forks.bell_fd)
    settings = forks.pools[request.pool]
    process.show_title(f"worker {request.pool} {request.slot}", settings.server.namespace)
    try:
        return run_worker(settings, child)
    except StartFailed as failure:
        child_start.write_exit_reason(stack_fd, str(failure))
        return EXIT_CRASHED


def _reset_signals() -> None:
    """Restore Python's default handlers, regardless of the handlers that modules set at import. The signals remain
    blocked until the worker's loop unblocks them."""
    signal.set_wakeup_fd(-1)
    for number in process.CATCHABLE:
        with contextlib.suppress(OSError, ValueError):  # The C library reserves some signal numbers for itself.
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def _empty_stdin() -> None:
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.close(null)


def _offer_to_oom_killer() -> None:
    # Some containers lack the file. The worker also runs without the score.
    with contextlib.suppress(OSError, ValueError):
        fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        try:
            score = min(_OOM_MOST, int(os.read(fd, _OOM_BYTES)) + _OOM_EXTRA)
            os.pwrite(fd, str(score).encode(), 0)
        finally:
            os.close(fd)


def _reseed() -> None:
    """Reseed numpy, because Python reseeds only its own `random` after a fork."""
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # The stream is closed, or its reader has exited.
            stream.flush()


if __name__ == "__main__":
    sys.exit(main())
