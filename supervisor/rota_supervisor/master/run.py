"""Run a master in this process: set it up, serve signals and the control socket, take it down."""

import asyncio
import functools
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Final

from rota.child.slots import MASTER_SLOT
from rota.protocol.store import Store
from rota.server.address import parse_address, redact
from rota.server.aio_connection import AioConnection
from rota.server.server_errors import ServerError
from rota.telemetry import events, log
from rota.telemetry.recorder import Recorder
from rota_supervisor import spawn
from rota_supervisor.config.load import Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.config.rules import served_queues
from rota_supervisor.control.places import ControlPlace
from rota_supervisor.control.serving import serve_control
from rota_supervisor.exits import Failure
from rota_supervisor.layout import Role
from rota_supervisor.master import startup
from rota_supervisor.master.births import Births
from rota_supervisor.master.children import State
from rota_supervisor.master.deaths import Deaths
from rota_supervisor.master.eviction import EvictionWatch
from rota_supervisor.master.gauges import Gauges
from rota_supervisor.master.hands import Hands, bell_fd
from rota_supervisor.master.leases import Leases
from rota_supervisor.master.listening import Listening
from rota_supervisor.master.master import Master
from rota_supervisor.master.owners import Owners
from rota_supervisor.master.reaper import Reaper
from rota_supervisor.master.recalls import Recalls
from rota_supervisor.master.records import Records
from rota_supervisor.master.redis_watch import RedisWatch
from rota_supervisor.master.reloading import Answer, Reloading, configure_log
from rota_supervisor.master.signals import QUEUED, UNUSED, Request, SignalReader, has_terminal
from rota_supervisor.master.status import children_of, pools_of
from rota_supervisor.master.targets import Stage, worker_counts
from rota_supervisor.process import become_subreaper
from rota_supervisor.server import check_server

BURST_LOOK_SECONDS: Final = 0.1
_MOST_PATIENCE_SECONDS: Final = 5.0  # with an answer of Redis


def run_master(
    config: Config,
    reload: Callable[[], Loaded],
    *,
    place: ControlPlace,
    burst: bool = False,
    import_paths: tuple[str, ...] = (),
) -> None:
    """Run a fleet until it is stopped. Raises Failure, logged, when it cannot be run.

    `reload` reads the configuration again, raising ConfigError. `place`: where the control socket listens.
    `burst`: leave when nothing is ready or running. `import_paths`: folders with the task modules. Signals
    blocked before are let through while they are handled, and blocked again after.
    """
    configure_log(config)
    try:
        startup.check_sizes(config)
        for warning in check_server(config, begin=True).warnings:
            log.logger().warning(events.CONFIG_WARNING, warning=warning)
        asyncio.run(_run(config, reload, place, burst=burst, import_paths=import_paths))
    except Failure as failure:
        log.logger().error(events.FLEET_FAILED, error=str(failure), exit_code=int(failure.code))
        raise


async def _run(
    config: Config,
    reload: Callable[[], Loaded],
    place: ControlPlace,
    *,
    burst: bool,
    import_paths: tuple[str, ...],
) -> None:
    startup.keep_to_ourselves()
    become_subreaper()
    fleet_master = _Running(config, reload, import_paths)
    try:
        fleet_master.start()
        fleet_master.serve(place)
        if burst:
            fleet_master.leave_when_idle()
        await fleet_master.master.run()
    finally:
        await fleet_master.close()
    log.logger().info(events.FLEET_STOPPED)


class _Running:
    """A master with everything round it: connection, descriptors, signals, control socket."""

    def __init__(self, config: Config, reload: Callable[[], Loaded], import_paths: tuple[str, ...]) -> None:
        self._started_at = time.time()
        self._node = startup.node_name()
        self._listening = Listening()
        memory = startup.make_slots()
        gauges = Gauges(Recorder(memory.slot(MASTER_SLOT).metrics))
        gauges.show_recovered_queues(served_queues(config))
        self._records = records = Records(memory, gauges, Reloading(config, reload, self._listening, gauges))
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
        )
        self._signals = SignalReader(had_terminal=has_terminal())

    def start(self) -> None:
        """Listen, and let signals in. Raises Failure with nothing spawned."""
        config = self._records.config
        self._handle_signals()
        self._listening.prepare(config.http.listen)
        self._listening.use(config.http.listen)
        log.logger().info(
            events.FLEET_STARTING, node=self._node, namespace=config.namespace, listen=self._listening.place
        )
        self._records.background.start(self._owners.keep_leases(lambda: self._records.reloading.config))
        self._records.background.start(self._eviction.watch(lambda: self._records.reloading.config))

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
        # The handlers go with the loop: a TERM after that would end this process, with another exit code than it has.
        signal.pthread_sigmask(signal.SIG_BLOCK, QUEUED | UNUSED)

    def serve(self, place: ControlPlace) -> None:
        """Answer at the control socket."""

        async def forever() -> None:
            async with serve_control(place, self):
                await asyncio.Event().wait()

        self._records.background.start(forever())

    def _patience(self) -> float:
        # One lost answer must not cost a lease, which a reload may have made shorter.
        return min(_MOST_PATIENCE_SECONDS, self._records.reloading.config.lease.seconds / 4)

    def _rung(self) -> None:
        """A child rang: its slot is worth a look."""
        self._records.wake.set()
        self._recalls.rung()

    # Signals

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in QUEUED:
            loop.add_signal_handler(number, functools.partial(self._signalled, number))
        for number in UNUSED:
            loop.add_signal_handler(number, int)
        # Explicit: under a parent that ignored it, waiting for children would fail.
        loop.add_signal_handler(signal.SIGCHLD, self._records.wake.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, QUEUED | UNUSED | {signal.SIGCHLD})

    def _signalled(self, number: signal.Signals) -> None:
        match self._signals.read(number, time.monotonic()):
            case Request.DRAIN:
                self.request_stop(now=False)
            case Request.STOP_NOW:
                self.request_stop(now=True)
            case Request.RELOAD:
                self.request_reload()
            case Request.MORE:
                self.master.adjust(1)
            case Request.LESS:
                self.master.adjust(-1)
            case None:
                pass

    # The control port

    def status(self) -> dict[str, object]:
        """The fleet as it stands."""
        rollout = self._records.reloading.rollout
        counts = worker_counts(rollout, self._records.reloading.adjust)
        return {
            "node": self._node,
            "pid": os.getpid(),
            "namespace": self._records.reloading.config.namespace,
            "state": self._state(),
            "uptime_seconds": round(time.time() - self._started_at, 1),
            "redis": redact(self._records.reloading.config.redis_url),
            "redis_up": self._redis.up is True,
            "listen": self._listening.place,
            "generation": rollout.in_force.number,
            "loading": rollout.latest.number != rollout.in_force.number,
            "pools": pools_of(counts, self._records.fleet, self._records.memory),
            "children": children_of(self._records.fleet, self._records.memory),
        }

    def _state(self) -> str:
        if self._records.stop.stage is not Stage.RUNNING:
            return "draining"
        return "starting" if self._records.reloading.rollout.current is None else "running"

    def request_reload(self) -> Awaitable[Answer]:
        """Read the configuration again and apply what changed."""
        asker: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self._records.stop.stage is not Stage.RUNNING:
            asker.set_result({"result": "failure", "faults": ["the fleet is draining"]})
            return asker
        self._records.reloading.reload(asker, self._records.fleet)
        self._records.wake.set()
        return asker

    def request_stop(self, *, now: bool) -> None:
        """Drain and leave, or leave at once."""
        self.master.ask_to_stop(at_once=now)

    # Beside the loop

    def _lease_lost(self, owner: str) -> None:
        workers = self._records.fleet.of(Role.WORKER)
        if not any(child.owner == owner and child.state is not State.EXITED for child in workers):
            return  # it died and was retired while the renewal was on its way
        self._records.gauges.count_lost_lease()
        log.logger().error(events.WORKER_LOST, owner=owner)

    def leave_when_idle(self) -> None:
        """Drain as soon as nothing is ready, running or overdue."""
        self._records.background.start(self._watch_for_idleness())

    async def _watch_for_idleness(self) -> None:
        while self._records.stop.stage is Stage.RUNNING:
            if await self._is_idle():
                self.request_stop(now=False)
                return
            await asyncio.sleep(BURST_LOOK_SECONDS)

    async def _is_idle(self) -> bool:
        try:
            overview = await self._connection.run(self._store.overview(served_queues(self._records.reloading.config)))
        except ServerError:  # told by the watch; nothing is known, so nobody leaves
            return False
        started = self._records.reloading.rollout.current is not None
        return started and not any(queue.ready or queue.inflight or queue.overdue for queue in overview.queues)
