"""What people ask of the fleet while it runs, by signal or by the control socket: the same calls for both.

1. A request is checked, the records are moved, and the loop is woken: it does the rest.
2. One that cannot be fulfilled raises Refused; nothing was changed then.
3. A fleet that leaves takes no other request than to leave sooner.
"""

import asyncio
from collections.abc import Awaitable, Callable

from rota.telemetry import events, log
from rota_supervisor.control.port import Answer, Refused, ScaleOrder
from rota_supervisor.layout import Role
from rota_supervisor.master.children.hands import Hands
from rota_supervisor.master.planning.scaling import chosen_pool, ordered_count
from rota_supervisor.master.planning.targets import Stage, worker_counts
from rota_supervisor.master.records import Records, now_seconds
from rota_supervisor.master.requests import stopping
from rota_supervisor.master.requests.quieting import Quiet
from rota_supervisor.master.requests.signals import Request


class Requests:
    """Moves the records as people ask. `look`: how the fleet stands. `report`: writes that to the log, with stacks."""

    def __init__(self, records: Records, hands: Hands, look: Callable[[], Answer], report: Callable[[], None]) -> None:
        self._records = records
        self._hands = hands
        self._look = look
        self._report = report

    def status(self) -> Answer:
        """The fleet as it stands."""
        return self._look()

    def signalled(self, request: Request) -> None:
        """Do what a signal asks for. Nobody waits for an answer: a refusal is told in the log."""
        try:
            self._fulfil(request)
        except Refused as refused:
            log.logger().warning(events.FLEET_REFUSED, request=request.name.lower(), error=str(refused))

    def _fulfil(self, request: Request) -> None:
        match request:
            case Request.DRAIN:
                self.drain()
            case Request.STOP_NOW:
                self.stop(now=True)
            case Request.RELOAD:
                self.reload()
            case Request.RESTART:
                self.restart()
            case Request.MORE | Request.LESS:
                first = next(iter(self._counts()))
                self.scale(ScaleOrder(first, 1 if request is Request.MORE else -1, is_relative=True))
            case Request.QUIET:
                self.quiet(by_signal=True)
            case Request.RESUME:
                self.resume(by_signal=True)
            case Request.REPORT:
                self._report()

    # Reloads

    def reload(self) -> Awaitable[Answer]:
        """Read the configuration again and apply what changed."""
        return self._reload(fresh=False)

    def restart(self) -> Awaitable[Answer]:
        """Reload, and replace every worker by one with freshly imported code."""
        return self._reload(fresh=True)

    def preview(self) -> Answer:
        """What a reload would do."""
        self._refuse_while_leaving()
        return self._records.reloading.preview()

    def _reload(self, *, fresh: bool) -> Awaitable[Answer]:
        self._refuse_while_leaving()
        asker: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        asker.add_done_callback(self._note_reload)
        self._records.forgive()
        self._records.reloading.reload(asker, self._records.fleet, fresh=fresh)
        self._records.wake.set()
        return asker

    def _note_reload(self, asker: "asyncio.Future[Answer]") -> None:
        if not asker.cancelled():
            self._records.last_reload = {**asker.result(), "at": now_seconds()}

    # How many workers

    def scale(self, order: ScaleOrder) -> Answer:
        """Give a pool another number of workers."""
        self._refuse_while_leaving()
        counts = self._counts()
        pool = chosen_pool(order, counts)
        count = ordered_count(order, pool, counts)
        self._records.reloading.scale(pool, count)
        log.logger().info(events.FLEET_SCALED, pool=pool, before=counts[pool], workers=count)
        self._records.wake.set()
        return {"pool": pool, "from": counts[pool], "to": count}

    def _counts(self) -> dict[str, int]:
        reloading = self._records.reloading
        return worker_counts(reloading.rollout, reloading.scaling)

    # Quiet

    def quiet(self, *, by_signal: bool = False) -> Answer:
        """Claim nothing more; what runs goes on, and workers stay."""
        return self._set_quiet(self._records.quiet.quieted(by_signal=by_signal))

    def resume(self, *, by_signal: bool = False) -> Answer:
        """Claim again. By signal, only when a signal quieted the fleet."""
        return self._set_quiet(self._records.quiet.resumed(by_signal=by_signal))

    def _set_quiet(self, wanted: Quiet) -> Answer:
        before = self._records.quiet
        if wanted is not before:
            self._refuse_while_leaving()
        self._records.quiet = wanted
        changed = wanted.asked is not before.asked
        if changed:
            self._tell_workers(quiet=wanted.asked)
            log.logger().info(events.FLEET_QUIET if wanted.asked else events.FLEET_RESUMED)
            self._records.wake.set()
        return {"quiet": wanted.asked, "changed": changed}

    def _tell_workers(self, *, quiet: bool) -> None:
        """Those there are; one whose owner is being registered is told when its slot is its own."""
        for child in self._records.fleet.of(Role.WORKER):
            slot = self._records.memory.slot(child.slot)
            if slot.nonce == child.nonce:
                slot.quiet_asked = quiet
                self._hands.wake(child)

    # The end

    def drain(self) -> None:
        """Drain and leave."""
        self.stop(now=False)

    def stop(self, *, now: bool) -> Answer:
        """Drain and leave, or leave at once."""
        records = self._records
        drain_seconds = records.config.limits.drain_seconds
        before = records.stop
        records.stop = stopping.begin(before, now_seconds(), drain_seconds, at_once=now)
        if records.stop is not before:
            records.reloading.stopped()
            log.logger().info(events.FLEET_DRAINING, at_once=now, seconds=0 if now else drain_seconds)
        records.wake.set()
        return {"at_once": records.stop.stage is Stage.AT_ONCE}

    def _refuse_while_leaving(self) -> None:
        if self._records.stop.stage is not Stage.RUNNING:
            raise Refused("the fleet is draining and will leave: start it again, then ask")
