"""Run a master in this process: set it up, serve signals and the control socket, take it down."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

from rota.child.slots import MASTER_SLOT
from rota.protocol.store import Store
from rota.server.address import parse_address, redact
from rota.server.aio_connection import AioConnection
from rota.telemetry import events, log
from rota.telemetry.recorder import Recorder
from rota_supervisor import spawn
from rota_supervisor.config.load import Loaded
from rota_supervisor.config.rules import served_queues
from rota_supervisor.control.places import ControlPlace
from rota_supervisor.control.serving import serve_control
from rota_supervisor.exits import Failure
from rota_supervisor.layout import Role
from rota_supervisor.master import startup
from rota_supervisor.master.burst import leave_when_idle
from rota_supervisor.master.children.births import Births
from rota_supervisor.master.children.child import State
from rota_supervisor.master.children.hands import Hands, bell_fd
from rota_supervisor.master.deaths import oom
from rota_supervisor.master.deaths.deaths import Deaths
from rota_supervisor.master.deaths.reaper import Reaper
from rota_supervisor.master.eviction import EvictionWatch
from rota_supervisor.master.master import Master
from rota_supervisor.master.owners.leases import Leases
from rota_supervisor.master.owners.owners import Owners
from rota_supervisor.master.owners.recalls import Recalls
from rota_supervisor.master.records import Records
from rota_supervisor.master.redis_watch import RedisWatch
from rota_supervisor.master.reload.listening import Listening
from rota_supervisor.master.reload.reloading import Reloading, configure_log
from rota_supervisor.master.reload.watching import ConfigWatch, Watched, watch_code
from rota_supervisor.master.requests import signals
from rota_supervisor.master.requests.requests import Requests
from rota_supervisor.master.shown.gauges import Gauges
from rota_supervisor.master.shown.notify import Notifier, NotifySocket
from rota_supervisor.master.shown.reporting import Report
from rota_supervisor.master.shown.status import Status
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
) -> None:
    """Run a fleet until it is stopped. Raises Failure, logged, when it cannot be run.

    `first`: the configuration; `reload` reads it again, raising ConfigError. `place`: where the control socket listens.
    `manager`: who is told how it goes. `watched`: the files whose changes reload. `burst`: leave when nothing is ready
    or running. `import_paths`: folders with the task modules. Signals blocked before are let through while they are
    handled, and blocked again after.
    """
    config = first.config
    configure_log(config)
    try:
        startup.check_sizes(config)
        for warning in [*check_server(config, begin=True).warnings, *oom.warnings()]:
            log.logger().warning(events.CONFIG_WARNING, warning=warning)
        asyncio.run(_run(first, reload, place, manager, watched, burst=burst, import_paths=import_paths))
    except Failure as failure:
        log.logger().error(events.FLEET_FAILED, error=str(failure), exit_code=int(failure.code))
        raise


async def _run(
    first: Loaded,
    reload: Callable[[], Loaded],
    place: ControlPlace,
    manager: NotifySocket,
    watched: Watched,
    *,
    burst: bool,
    import_paths: tuple[str, ...],
) -> None:
    startup.keep_to_ourselves()
    startup.show_where_it_ends()
    become_subreaper()
    fleet_master = _Running(first, reload, manager, import_paths)
    try:
        fleet_master.start()
        fleet_master.serve(place)
        fleet_master.watch(watched)
        if burst:
            fleet_master.leave_when_idle()
        await fleet_master.master.run()
    finally:
        await fleet_master.close()
    log.logger().info(events.FLEET_STOPPED)


class _Running:
    """A master with everything round it: connection, descriptors, signals, control socket."""

    def __init__(
        self, first: Loaded, reload: Callable[[], Loaded], manager: NotifySocket, import_paths: tuple[str, ...]
    ) -> None:
        config = first.config
        self._node = startup.node_name()
        self._listening = Listening()
        memory = startup.make_slots()
        gauges = Gauges(Recorder(memory.slot(MASTER_SLOT).metrics))
        gauges.show_recovered_queues(served_queues(config))
        self._records = records = Records(memory, gauges, Reloading(first, reload, self._listening, gauges))
        self._redis = RedisWatch(gauges, redact(config.redis_url))
        address = parse_address(config.redis_url)
        self._connection = AioConnection(address, "rota:master", self._patience, self._redis.watch)
        self._store = Store(config.namespace)
        self._death_pipe = os.pipe2(os.O_CLOEXEC)
        lines = spawn.Lines(memory.fd, self._death_pipe[0], bell_fd(self._rung))
        self._hands = Hands(memory, lines, records.wake.set)
        self._recalls = Recalls(records, self._connection, self._store)
        leases = Leases(self._connection, self._store, self._node, self._lease_lost)
        self._owners = Owners(leases, records.fleet, memory, gauges, records.wake.set)
        self._eviction = EvictionWatch(self._connection, gauges)
        deaths = Deaths(records, self._hands, self._owners)
        births = Births(records, self._hands, deaths)
        self.master = Master(
            records,
            self._hands,
            owners=self._owners,
            births=births,
            deaths=deaths,
            reaper=Reaper(records.fleet, self._hands, births, deaths.died),
            listening=self._listening,
            import_paths=import_paths,
            tell=Notifier(records, self._redis, manager).show,
        )
        status = Status(self._node, records, self._redis, self._listening)
        self._requests = Requests(records, self._hands, status, Report(records, self._hands.stacks, status).begin)

    def start(self) -> None:
        """Listen, and let signals in. Raises Failure with nothing spawned."""
        records, config = self._records, self._records.config
        signals.let_in(self._requests.signalled, self._records.wake.set)
        self._listening.begin(config.http.listen)
        log.logger().info(
            events.FLEET_STARTING, node=self._node, namespace=config.namespace, listen=self._listening.place
        )
        keep = records.background.keep
        keep(lambda: self._owners.keep_leases(lambda: records.config, lambda: records.taken_queues))
        keep(lambda: self._eviction.watch(lambda: records.config))

    def serve(self, place: ControlPlace) -> None:
        """Answer at the control socket."""

        async def forever() -> None:
            async with serve_control(place, self._requests):
                await asyncio.Event().wait()

        self._records.background.start(forever())

    def watch(self, watched: Watched) -> None:
        """Ask for a reload when files change."""
        reloading, ask = self._records.reloading, self._requests.signalled
        file = ConfigWatch(watched.file, lambda: reloading.content, lambda: ask(signals.Request.RELOAD))
        self._records.background.keep(lambda: file.watch(lambda: bool(watched.code) or reloading.config.watch_config))
        if watched.code:
            self._records.background.start(watch_code(watched.code, lambda: ask(signals.Request.RESTART)))

    def leave_when_idle(self) -> None:
        """Drain as soon as nothing is ready, running or overdue."""
        self._records.background.keep(
            lambda: leave_when_idle(self._records, self._connection, self._store, self._requests.drain)
        )

    async def close(self) -> None:
        """Let everything go. Who is still alive dies of it: the death pipe closes with this process."""
        await self._records.background.cancel()
        for child in self._records.fleet:
            self._hands.kill(child)
        self._hands.close()
        self._listening.close()
        await self._connection.close()
        for fd in self._death_pipe:
            os.close(fd)
        signals.keep_out()

    def _patience(self) -> float:
        # One lost answer must not cost a lease, which a reload may have made shorter.
        return min(_MOST_PATIENCE_SECONDS, self._records.config.lease.seconds / 4)

    def _rung(self) -> None:
        """A child rang: its slot is worth a look."""
        self._records.wake.set()
        self._recalls.rung()

    def _lease_lost(self, owner: str) -> None:
        workers = self._records.fleet.of(Role.WORKER)
        if not any(child.owner == owner and child.state is not State.EXITED for child in workers):
            return  # it died and was retired while the renewal was on its way
        self._records.gauges.count_lost_lease()
        log.logger().error(events.WORKER_LOST, owner=owner)
