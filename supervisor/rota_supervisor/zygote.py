"""The zygote: imports the user's code once, then forks workers from it, as the master asks.

1. PDEATHSIG, signals blocked since its spawn but those that have it leave its stack, garbage collection off.
2. Import the task modules; warn of threads and connections they left; collect, freeze, say ready.
3. A plain blocking loop: one request, one fork.
4. When the master's end of the channel closes without a Bye, or another parent is ours, the master is dead: kill the
   process groups of all live slots, in case a worker left something behind that PDEATHSIG does not reach, and its own.
   Should it be stopped, the kernel continues it for that.

The descriptor with which workers find their slots comes after the import: modules never have it.
"""

import contextlib
import errno
import gc
import os
import select
import signal
import sys
from typing import Final

from rota.child.life import ring
from rota.child.roster import pids_on
from rota.child.settings import LogSettings, WorkerSettings, worker_settings_from_json
from rota.child.slots import Phase
from rota.server.address import parse_address
from rota.telemetry import events, log
from rota_supervisor import importing, messages
from rota_supervisor.child import Entrance, enter
from rota_supervisor.forking import Nursery, fork_worker
from rota_supervisor.layout import BELL_FD, CHANNEL_FD, DEATH_FD, RANGES, STACK_FD, Role
from rota_supervisor.process import UNREACHABLE, outlive_parent
from rota_supervisor.stack_file import ANSWERED
from rota_supervisor.titles import show_title

BEAT_SECONDS: Final = 1.0
EXIT_IMPORT_FAILED: Final = 1


def main() -> int:
    """Run the zygote; answers its exit code."""
    entrance = enter(os.getpid())
    gc.disable()
    raw = entrance.first.settings
    show_title(f"zygote generation {raw['generation']}", raw["namespace"])
    log.configure(LogSettings(**raw["log"]), role=Role.ZYGOTE.value, slot=entrance.first.slot)
    if not _load(entrance, raw["imports"], raw["path"]):
        return EXIT_IMPORT_FAILED
    entrance.slot.phase = Phase.IDLE
    ring(BELL_FD)
    outlive_parent(DEATH_FD)
    if not _serve(entrance):
        _kill_live_groups(entrance.roster)
    return 0


def _load(entrance: Entrance, imports: list[str], path: list[str]) -> bool:
    """Import everything and report; False when a module failed, which is reported too."""
    channel = entrance.channel
    importing.make_importable(path)
    failure = importing.import_all(imports, lambda module: messages.send(channel, messages.Importing(module)))
    if failure is not None:
        messages.send(channel, messages.ImportFailed(failure.module, failure.error, failure.where))
        return False
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - ANSWERED)  # whatever the modules unblocked
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would hide how an intermediate ended
    for text in importing.warnings(frozenset({CHANNEL_FD, 0, 1, 2})):
        messages.send(channel, messages.Warned(text))
    tasks = importing.tasks_and_queues()
    for at in range(0, len(tasks), messages.TASKS_A_PACKET):
        messages.send(channel, messages.Imported(tuple(tasks[at : at + messages.TASKS_A_PACKET])))
    importing.warm_up()
    messages.send(channel, messages.Ready(len(imports), importing.freeze()))
    return True


def _serve(entrance: Entrance) -> bool:
    """Fork on request until the master says Bye (True) or is gone (False)."""
    pools: dict[str, WorkerSettings] = {}
    first = entrance.first
    stack_fd = STACK_FD if first.has_stack_file else None
    nursery = Nursery(entrance.channel, first.master_pid, pools, stack_fd)
    waiting = select.poll()
    waiting.register(entrance.channel, select.POLLIN)
    while True:
        entrance.slot.beat()
        if os.getppid() != first.master_pid:
            return False  # and the channel is kept open by a child that was stopped as a copy of the master
        if not waiting.poll(BEAT_SECONDS * 1000):
            continue
        message, fd = messages.receive(entrance.channel)
        match message:
            case messages.Slots():
                if fd is None:
                    raise OSError(errno.EMFILE, "no descriptor is left for the slots of workers")
                nursery.slots_fd = fd
            case messages.Fork() as request:
                with contextlib.suppress(BrokenPipeError):  # the master is gone, as the next look finds
                    fork_worker(nursery, request, fd)
            case messages.PoolSettings(name, settings):
                pools[name] = worker_settings_from_json(settings)
                parse_address(pools[name].server.redis_url)  # kept, for its workers
            case messages.Bye():
                return True
            case None:
                return False
            case other:
                raise ValueError(f"a zygote takes no {type(other).__name__}")


def _kill_live_groups(roster: memoryview) -> None:
    """The undertaker's work. Each worker leads a group named by its pid, which it cannot change on the roster; and so
    does this process: intermediates are in it, and what the modules have started."""
    killed = 0
    workers = RANGES[Role.WORKER]
    for pid in pids_on(roster)[workers.start : workers.stop]:
        if pid > 1:  # killpg(1) would be everybody
            with contextlib.suppress(*UNREACHABLE):
                os.killpg(pid, signal.SIGKILL)
                killed += 1
    log.logger().warning(events.ZYGOTE_EXITED, reason="the master is gone", groups_killed=killed)
    os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
