"""Run a master in this process: set it up, serve signals and the control socket, take it down."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

from rota.protocol.store import Store
from rota.redaction import redact
from rota.server.address import parse_address
from rota.server.aio_connection import AioConnection
from rota.telemetry import events, log
from rota_supervisor import spawn
from rota_supervisor.config.faults import ConfigError
from rota_supervisor.config.load import Loaded
from rota_supervisor.control.places import ControlPlace
from rota_supervisor.control.serving import serve_control
from rota_supervisor.exits import Failure
from rota_supervisor.master.core.children import ChildState
from rota_supervisor.master.core.effects import Order, ReadConfiguration, Tell
from rota_supervisor.master.core.events import ConfigurationRead, RequestKind
from rota_supervisor.master.core.reloading import counters_of_queues
from rota_supervisor.master.core.state import MasterState, Surroundings
from rota_supervisor.master.effects.background import Background
from rota_supervisor.master.effects.claims import ClaimWatch
from rota_supervisor.master.effects.listening import Listening
from rota_supervisor.master.effects.notify_socket import NotifySocket
from rota_supervisor.master.effects.processes import Processes, bell_fd
from rota_supervisor.master.effects.redis_calls import RedisCalls
from rota_supervisor.master.effects.report import StackReport
from rota_supervisor.master.effects.shown import Display, configure_log
from rota_supervisor.master.effects.slots import now_seconds
from rota_supervisor.master.shell import oom, signals, startup, unforeseen
from rota_supervisor.master.shell.asking import Asking
from rota_supervisor.master.shell.inbox import Inbox
from rota_supervisor.master.shell.loop import MasterLoop
from rota_supervisor.master.shell.reaping import Reaper
from rota_supervisor.master.shell.recording import recording_to
from rota_supervisor.master.shell.redis_watches import RedisWatch, leave_when_idle, watch_eviction
from rota_supervisor.master.shell.watching import ConfigWatch, Watched, watch_code
from rota_supervisor.process import become_subreaper
from rota_supervisor.server import check_server

_MOST_PATIENCE_SECONDS: Final = 5.0  # with an answer of Redis


def run_master(
    first: Loaded,
    reload: Callable[[], Loaded],
    *,
    place: ControlPlace,
    manager: NotifySocket,
    watched: Watched,
    burst: bool = False,
    import_paths: tuple[str, ...] = (),
    record: str = "",
) -> None:
    """Run a fleet until it is stopped. Raises Failure, logged, when it cannot be run.

    `first`: the configuration; `reload` reads it again, raising ConfigError. `place`: where the control socket listens.
    `manager`: who is told how it goes. `watched`: the files whose changes reload. `burst`: leave when nothing is ready
    or running. `import_paths`: folders with the task modules. `record`: where to write what happens,
    "" for nowhere. The signals that it takes are blocked then, and stay so.
    """
    config = first.config
    configure_log(config)
    unforeseen.tell_in_log()
    try:
        startup.check_sizes(config)
        for warning in [*check_server(config, begin=True).warnings, *oom.warnings()]:
            log.logger().warning(events.CONFIG_WARNING, warning=warning)
        surroundings = Surroundings(
            startup.node_name(),
            os.getpid(),
            redact(config.redis_url),
            import_paths,
            manager.is_there,
            manager.watchdog_seconds,
        )
        state = MasterState.first(surroundings, first, now_seconds())
        with recording_to(record, state, first) as recorder:
            asyncio.run(_run(Inbox(state, recorder), reload, place, manager, watched, burst=burst))
    except Failure as failure:
        log.logger().error(events.FLEET_FAILED, error=str(failure), exit_code=int(failure.code))
        raise


async def _run(
    inbox: Inbox,
    reload: Callable[[], Loaded],
    place: ControlPlace,
    manager: NotifySocket,
    watched: Watched,
    *,
    burst: bool,
) -> None:
    unforeseen.tell_of_loop(asyncio.get_running_loop())
    startup.keep_to_ourselves()
    startup.show_where_it_ends()
    become_subreaper()
    running = _Running(inbox, reload, manager)
    try:
        running.start()
        running.serve(place)
        running.watch(watched)
        if burst:
            running.leave_when_idle()
        await running.loop.run()
    finally:
        await running.close()
    log.logger().info(events.FLEET_STOPPED)


class _Running:
    """A master with everything round it: connection, descriptors, signals, control socket."""

    def __init__(self, inbox: Inbox, read: Callable[[], Loaded], manager: NotifySocket) -> None:
        self._inbox = inbox
        self._state = state = inbox.state
        happened = inbox.happened
        memory = startup.make_slots()
        self._background = Background()
        config = state.config
        address = parse_address(config.redis_url)
        self._redis = RedisWatch(state, happened)
        self._connection = AioConnection(address, "rota:master", self._patience, self._redis.watch)
        self._store = Store(config.namespace)
        self._listening = Listening(happened)
        self._death_pipe = os.pipe2(os.O_CLOEXEC)
        lines = spawn.InheritedFds(memory.fd, self._death_pipe[0], bell_fd(self._rung))
        self._processes = Processes(memory, lines, happened, inbox.wake.set, lambda: self._listening.fd)
        self._claims = ClaimWatch(state, memory, self._background, happened)
        calls = RedisCalls(
            self._connection,
            self._store,
            node=state.surroundings.node,
            memory=memory,
            background=self._background,
            happened=happened,
        )
        self._shown = Display(memory)
        report = StackReport(state, memory, self._processes.stacks, self._background)
        for part in (self._processes, calls, self._listening, self._shown, manager, report):
            inbox.handlers |= part.handlers
        inbox.handlers[ReadConfiguration] = lambda effect: happened(_read(read, effect))
        self._asking = Asking(inbox, memory)
        reaper = Reaper(state, memory, self._processes.stacks, happened)
        self.loop = MasterLoop(inbox, memory, self._processes, reaper, self._redis)

    def start(self) -> None:
        """Listen, and let signals in. Raises Failure with nothing spawned."""
        state, config = self._state, self._state.config
        self._shown.begin()
        for effect in counters_of_queues(config):
            self._inbox.handlers[type(effect)](effect)
        signals.let_in(self._asking.signalled, self._inbox.wake.set)
        self._listening.begin(config.http.listen)
        node = state.surroundings.node
        log.logger().info(events.FLEET_STARTING, node=node, namespace=config.namespace, listen=self._listening.place)
        self._background.keep(lambda: watch_eviction(state, self._connection, self._inbox.happened))

    def serve(self, place: ControlPlace) -> None:
        """Answer at the control socket."""

        async def forever() -> None:
            async with serve_control(place, self._asking):
                await asyncio.Event().wait()

        self._background.start(forever())

    def watch(self, watched: Watched) -> None:
        """Ask for a reload when files change."""
        state, ask = self._state, self._asking.signalled
        file = ConfigWatch(watched.file, lambda: state.content, lambda: ask(RequestKind.RELOAD))
        self._background.keep(lambda: file.watch(lambda: bool(watched.code) or state.config.watch_config))
        if watched.code:
            self._background.start(watch_code(watched.code, lambda: ask(RequestKind.RESTART)))

    def leave_when_idle(self) -> None:
        """Drain as soon as nothing is ready, running or overdue."""

        def drain() -> None:
            self._asking.signalled(RequestKind.DRAIN)

        self._background.keep(lambda: leave_when_idle(self._state, self._connection, self._store, drain))

    async def close(self) -> None:
        """Let everything go. Who is still alive dies of it: the death pipe closes with this process."""
        await self._background.cancel()
        for child in self._state.children:
            if child.state is not ChildState.EXITED:  # its number may be anybody's
                self._processes.tell(Tell(child.ref, Order.KILL))
        self._processes.close()
        self._listening.close()
        await self._connection.close()
        for fd in self._death_pipe:
            os.close(fd)

    def _patience(self) -> float:
        # One lost answer must not cost a lease, which a reload may have made shorter.
        return min(_MOST_PATIENCE_SECONDS, self._state.config.lease.seconds / 4)

    def _rung(self) -> None:
        """A child rang: its slot is worth a look."""
        self._inbox.wake.set()
        self._claims.rung()


def _read(read: Callable[[], Loaded], effect: ReadConfiguration) -> ConfigurationRead:
    """Read the configuration. What was loaded is of use without faults only."""
    try:
        return ConfigurationRead(effect.ticket, read())
    except ConfigError as error:
        return ConfigurationRead(effect.ticket, Loaded(error.usable, {}, (), error.content), tuple(error.faults))
