"""Run a master in this process: choose its name, create its slots, check the limits, serve requests, and shut it
down."""

import asyncio
import faulthandler
import os
import re
import resource
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rota.child.child_process import boottime_seconds
from rota.child.slot_layout import REGION_BYTES
from rota.child.slot_memory import SlotMemory
from rota.protocol.scaling import ScalingStore
from rota.protocol.schedule_store import ScheduleStore
from rota.server.logins import fleet_login
from rota.telemetry import log, log_events
from rota_supervisor.child_start import Spawner
from rota_supervisor.config.errors import ConfigError
from rota_supervisor.config.loader import Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.control.port import RequestKind
from rota_supervisor.control.socket_server import ControlSocket, serve_control
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.layout import SLOTS
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import ChildState
from rota_supervisor.master.core.generations import oversized_pools
from rota_supervisor.master.core.master_events import ConfigurationRead
from rota_supervisor.master.core.process_settings import Surroundings
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects import master_output
from rota_supervisor.master.effects.background import Background
from rota_supervisor.master.effects.listen_socket import ListenSocket
from rota_supervisor.master.effects.login_keeper import LoginKeeper, share_first_login
from rota_supervisor.master.effects.master_redis import RedisCalls, RedisWatch, ScheduleDeclarer
from rota_supervisor.master.effects.notify_socket import NotifySocket
from rota_supervisor.master.effects.processes import Processes, bell_fd
from rota_supervisor.master.effects.scaling_exchange import ScalingExchange
from rota_supervisor.master.effects.task_watch import ClaimWatch, Orders, ProgressCopier
from rota_supervisor.master.shell import file_watch, master_signals, reaper
from rota_supervisor.master.shell.loop import Inbox, MasterLoop, MasterPort, recording_to
from rota_supervisor.master.shell.reaper import Reaper
from rota_supervisor.process import become_subreaper, give_memory_back

_SHARED_MB: Final = SLOTS * REGION_BYTES >> 20
_HOST_CHARACTERS: Final = 64
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]")
_STARTED_SECONDS: Final = 2.0  # after this time, most fleets have started


class LimitNeed(NamedTuple):
    """The least amount of a limited resource, for example of open files, that a fleet needs."""

    what: str
    least: int
    where: str  # what sets the limit, for the error message
    unit: str = "MB"
    size: int = 1 << 20  # the unit of the amount, in bytes


NEEDED: Final = {
    # A master of 500 workers needs 26 descriptors. If the limit permits, it uses one more for the stack file of each
    # child.
    resource.RLIMIT_NOFILE: LimitNeed("open files", 64, "ulimit -n, or LimitNOFILE= of systemd", "descriptors", 1),
    # The whole shared memory is mapped, but it uses real memory only where it is written. The rest of the address space
    # is for Python.
    resource.RLIMIT_AS: LimitNeed("address space", _SHARED_MB + 256, "ulimit -v, or LimitAS= of systemd"),
    resource.RLIMIT_FSIZE: LimitNeed("the size of files", _SHARED_MB, "ulimit -f, or LimitFSIZE= of systemd"),
}


def node_name() -> str:
    """Return the host name with a random suffix. The suffix is needed because a node name must never be reused."""
    host = _NOT_IN_NAMES.sub("-", socket.gethostname())[:_HOST_CHARACTERS] or "host"
    return f"{host}.{os.urandom(4).hex()}"


def make_slots() -> SlotMemory:
    """Create the shared memory of the fleet, and enter this process into slot 0."""
    memory = SlotMemory.create(SLOTS)
    own = memory.slot(0)
    own.assign(1)
    own.enter(1, os.getpid())
    return memory


def check_sizes(config: Config) -> None:
    """Raise Failure with code 78 if a pool's settings do not fit into a message to a zygote, or if a resource limit is
    too low for a master."""
    faults = [*map(str, oversized_pools(config)), *limit_faults()]
    if faults:
        raise Failure(ExitCode.CONFIG, *faults)


def limit_faults() -> list[str]:
    """Return an error message for each resource limit of this process that is too low for a master."""
    return faults_of_limits({limit: resource.getrlimit(limit)[0] for limit in NEEDED})


def faults_of_limits(limits: Mapping[int, int]) -> list[str]:
    """Return an error message for each resource limit that is too low. `limits`: the soft limits of a process, by
    resource number."""
    return [
        f"the limit on {need.what} is {limits[limit] // need.size} {need.unit}, but a fleet needs {need.least}: "
        f"raise or remove it ({need.where})"
        for limit, need in NEEDED.items()
        if limits[limit] != resource.RLIM_INFINITY and limits[limit] < need.least * need.size
    ]


class RunOptions(NamedTuple):
    """The arguments of `run_master`."""

    loaded: Loaded  # the configuration
    reload: Callable[[], Loaded]  # reads the configuration again for a reload; raises ConfigError
    check_server: Callable[[], Sequence[str]]  # returns warnings; raises Failure if the server is not safe for a fleet
    control_socket: ControlSocket  # the socket that receives requests from commands such as `rota reload`
    manager: NotifySocket  # the socket of the service manager, if there is one
    spawner: Spawner  # starts the children; it has already started the first zygote
    file: Path  # the configuration file, which is watched if `watch_config` or `code` is set
    code: tuple[str, ...]  # for development: folders in which a change restarts the workers
    burst: bool  # whether to exit when no task is ready or running
    import_paths: tuple[str, ...]  # the folders with the task modules
    record: str  # the file in which to record events, or "" for none


def run_master(options: RunOptions) -> None:
    """Run a fleet until it is stopped. Raises Failure, after logging it, if the fleet cannot run.

    After this function has returned, the signals that the master handles are still blocked.
    """
    config = options.loaded.config
    node = node_name()
    master_output.configure_log(config, node)
    master_output.log_everything()
    try:
        check_sizes(config)
        share_first_login(config, options.import_paths[0])
        for warning in [*options.loaded.warnings, *options.check_server(), *reaper.warnings_of_oom()]:
            log.logger().warning(log_events.CONFIG_WARNING, warning=warning)
        manager = options.manager
        surroundings = Surroundings(
            node,
            os.getpid(),
            options.import_paths,
            str(options.control_socket.path),
            manager.is_there,
            manager.watchdog_seconds,
            os.uname().nodename,
            str(options.file.absolute()),
        )
        state = MasterState.first(surroundings, options.loaded, boottime_seconds())
        with recording_to(options.record, state, options.loaded) as record:
            asyncio.run(_run(Inbox(state, record), options))
    except Failure as failure:
        log.logger().error(log_events.FLEET_FAILED, error=str(failure), exit_code=int(failure.code))
        raise


async def _run(inbox: Inbox, options: RunOptions) -> None:
    master_output.log_loop_errors(asyncio.get_running_loop())
    faulthandler.enable(2)  # If a watchdog ends the master with ABRT, the stack in the log shows why.
    become_subreaper()
    master = _Master(inbox, options)
    try:
        master.start()
        await master.loop.run()
    finally:
        await master.close()
    log.logger().info(log_events.FLEET_STOPPED)


class _Master:
    """A master with its connections, descriptors, signals and control socket."""

    def __init__(self, inbox: Inbox, options: RunOptions) -> None:
        self._inbox = inbox
        self._options = options
        self._state = state = inbox.state
        happened = inbox.happened
        memory = make_slots()
        node = state.surroundings.node
        self._background = background = Background()
        self._redis = RedisWatch(state, happened)
        self._keeper = self._login_keeper()
        self._listening = ListenSocket(happened)
        self._processes = Processes(
            memory,
            options.spawner,
            happened,
            inbox.wake.set,
            lambda: self._listening.fd,
            bell_fd=bell_fd(self._rung),
            node=node,
        )
        self._claims = ClaimWatch(state, memory, background, happened)
        connection, store = self._redis.connection, self._redis.store
        namespace = state.config.namespace
        self._progress = ProgressCopier(state, memory, lambda reports: connection.run(store.store_progress(reports)))
        declaring = ScheduleDeclarer(connection, ScheduleStore(namespace))
        self._calls = RedisCalls(connection, store, node, memory, background, declaring, happened)
        self._scaling = ScalingExchange(connection, ScalingStore(namespace), node, memory, background, happened)
        orders = store.keys.orders(node)
        self._orders = Orders(
            self._redis.parked, orders, self._redis.works, state.children, memory, background, happened
        )
        self._display = master_output.Display(state, memory)
        self._report = master_output.StackReport(state, memory, self._processes.stacks, background)
        self._port = MasterPort(inbox, memory)
        self._register_handlers()
        reaper = Reaper(state, memory, self._processes.stacks, happened)
        self.loop = MasterLoop(inbox, memory, self._processes.receive, reaper.reap, lambda: self._redis.silent_since)

    def _login_keeper(self) -> LoginKeeper | None:
        shared = fleet_login.shared
        return None if shared is None else LoginKeeper(self._state, shared, self._options.import_paths[0])

    def _register_handlers(self) -> None:
        """Register the function that performs each kind of effect."""
        processes = self._processes
        listening = self._listening
        display = self._display
        self._inbox.handlers |= {
            do.Spawn: processes.spawn,
            do.ForkWorker: processes.fork,
            do.SignalChild: processes.signal_child,
            do.SetQuiet: processes.set_quiet,
            do.NotifyCancelled: processes.notify_cancelled,
            do.CloseChannels: processes.close_channels,
            do.FreeSlot: processes.free_slot,
            do.PrepareAddress: listening.prepare_address,
            do.ListenAt: listening.listen_at,
            do.DropPreparedAddress: listening.drop_prepared,
            do.WriteLog: master_output.write_log,
            do.ConfigureLog: lambda effect: master_output.change_log(effect.config, self._state.surroundings.node),
            do.AddToCounter: display.add,
            do.SetGauge: display.set,
            do.SetGaugeToNow: display.set_to_now,
            do.PublishSnapshot: display.publish,
            do.WriteReport: self._report.start,
            do.ReportBlocked: self._report.blocked,
            do.NotifyManager: self._options.manager.notify,
            do.ExchangeScaling: self._scaling.start,
            do.ReadConfiguration: self._read,
            do.Respond: self._port.respond,
            **self._calls.handlers,
        }

    def start(self) -> None:
        """Listen, begin to read signals, and start the background work. Raises Failure before any process is
        spawned."""
        state = self._state
        options = self._options
        request = self._port.signalled
        keep = self._background.keep
        self._display.set_all_gauges()
        master_signals.watch_signals(request, self._inbox.wake.set)
        self._listen()
        keep(self._redis.watch_eviction)
        keep(self._redis.probe_when_in_doubt)
        keep(self._orders.listen)
        keep(self._progress.copy)
        if self._keeper is not None:
            keep(self._keeper.keep)
        self._background.start(self._serve())
        file = file_watch.ConfigWatch(options.file, lambda: state.content, lambda: request(RequestKind.RELOAD))
        keep(lambda: file.watch(lambda: bool(options.code) or state.config.watch_config))
        if options.code:
            self._background.start(file_watch.watch_code(options.code, lambda: request(RequestKind.RESTART)))
        if options.burst:
            keep(lambda: self._redis.leave_when_idle(lambda: request(RequestKind.DRAIN)))
        # `give_memory_back` takes 20 ms and should not delay the start, so it runs later.
        asyncio.get_running_loop().call_later(_STARTED_SECONDS, give_memory_back)

    def _listen(self) -> None:
        """Listen on the address of the exporter. If the configuration does not set `http.listen`, use the first free
        port. Raises Failure."""
        listening = self._listening
        was_set = "http.listen" in self._options.loaded.origins
        listening.start(self._state.config.http.listen, or_next=not was_set)
        if listening.warning:
            log.logger().warning(log_events.CONFIG_WARNING, path="http.listen", warning=listening.warning)
        log.logger().info(log_events.FLEET_STARTING, listen=listening.address)

    async def _serve(self) -> None:
        """Serve the control socket, forever."""
        async with serve_control(self._options.control_socket, self._port):
            await asyncio.Event().wait()

    async def close(self) -> None:
        """Release all resources. Children that are still alive are killed.

        If a child survives this, it dies when the master ends, because the death pipe then closes.
        """
        await self._background.cancel()
        for child in self._state.children:
            if child.state is not ChildState.EXITED:  # Another process may already have the pid of an EXITED child.
                self._processes.signal_child(do.SignalChild(child.ref, do.Order.KILL))
        self._processes.close()
        self._listening.close()
        await self._redis.connection.close()
        await self._redis.parked.close()
        self._options.spawner.close()

    def _rung(self) -> None:
        """Wake the loop. This method is called when a child has notified the master that its slot should be read."""
        self._inbox.wake.set()
        self._claims.rung()

    def _read(self, effect: do.ReadConfiguration) -> None:
        """Read the configuration for a reload. If the configuration has errors, the core receives them, and no part of
        the configuration is used."""
        try:
            event = ConfigurationRead(effect.ticket, self._options.reload())
        except ConfigError as error:
            loaded = Loaded(error.usable, {}, (), error.content)
            event = ConfigurationRead(effect.ticket, loaded, tuple(error.faults))
        if self._keeper is None or event.faults or not self._keeper.would_change(event.loaded.config):
            self._inbox.happened(event)
        else:
            self._background.start(self._try_login(self._keeper, event))

    async def _try_login(self, keeper: LoginKeeper, event: ConfigurationRead) -> None:
        """Continue a reload that changes the login of the server or the provider of the login. If the new login cannot
        be used, the event for the core contains a fault."""
        fault = await keeper.fault_of(event.loaded.config)
        faults = () if fault is None else (fault,)
        self._inbox.happened(ConfigurationRead(event.ticket, event.loaded, faults))
