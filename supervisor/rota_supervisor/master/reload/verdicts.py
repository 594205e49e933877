"""What became of a reload, told to everybody: the log, the metrics, and those who wait to hear of it."""

import asyncio
from collections.abc import Iterable
from typing import Final

from rota.telemetry import events, log
from rota_supervisor.config.faults import Fault
from rota_supervisor.config.rules import served_queues
from rota_supervisor.control.port import Answer
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import PoolKey, Reason
from rota_supervisor.master.deaths.account import Death
from rota_supervisor.master.planning.backoff import Backoff
from rota_supervisor.master.reload.rollout import Generation
from rota_supervisor.master.shown.gauges import Gauges

STACK_CHARACTERS: Final = 400

Askers = list["asyncio.Future[Answer]"]  # emptied as they are answered


class Verdicts:
    """Tells each verdict once."""

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def accepted(self, in_force: Generation, changes: list[str], askers: Askers) -> None:
        """It is in force."""
        self._gauges.count_reload(success=True)
        self._gauges.show_recovered_queues(served_queues(in_force.config))
        log.logger().info(events.CONFIG_RELOADED, changes=changes, generation=in_force.number)
        _answer(askers, {"result": "success", "changes": changes})

    def rejected(self, faults: Iterable[Fault], askers: Askers) -> None:
        """It is not used, for these faults."""
        faults = list(faults)
        self._gauges.count_reload(success=False)
        for fault in faults:
            elsewhere = {"origin": fault.origin} if fault.origin else {}
            log.logger().error(events.CONFIG_REJECTED, path=fault.path, error=fault.message, **elsewhere)
        _answer(askers, {"result": "failure", "faults": list(map(str, faults))})

    def overtaken(self, why: str, askers: Askers) -> None:
        """It is given up before anything was found out of it: no fault of the configuration."""
        _answer(askers, {"result": "failure", "faults": [why]})


def _answer(askers: Askers, said: Answer) -> None:
    for asker in askers:
        if not asker.done():  # the asker may have left
            asker.set_result(said)
    askers.clear()


# Why code or settings are refused


def fault_of_death(death: Death, importing: str, boot_seconds: float) -> Fault:
    """Why one death before READY is enough to refuse a generation: a zygote's, or that of a worker that hung.

    `importing`: the module that was being imported, "" for none.
    """
    child, stack = death.child, death.stack(STACK_CHARACTERS)
    at = f": {stack}" if stack else ""
    late = f"took longer than limits.boot_seconds, {boot_seconds:g} s{at}"
    if child.role is not Role.ZYGOTE:
        return Fault(_workers_of(child.pool), f"the start of one {late} (see @rota.on_worker_start)")
    path, what = (f"imports: {importing}", "it") if importing else ("imports", "the modules")
    ended = f"ended its process: {death.words}{at}"
    return Fault(path, f"importing {what} {late if child.why is Reason.BOOT else ended}")


def fault_of_crash_loop(key: PoolKey, backoff: Backoff) -> Fault:
    """Why a generation is refused whose processes do not come to be ready, or not any more."""
    last = f", at last: {backoff.words}" if backoff.words else ""
    if key.role is Role.ZYGOTE:
        died = f"died {backoff.setbacks} times in a row" if backoff.ever_ready else f"died {backoff.failures} times"
        return Fault("imports", f"the process that imports the tasks {died} before being ready{last}: see the log")
    if backoff.ever_ready:
        failed = f"one was ready, and then {backoff.setbacks} in a row failed"
    else:
        failed = f"none was ever ready, {backoff.failures} starts in a row failed"
    return Fault(_workers_of(key.pool), f"{failed}{last}: see the log")


def _workers_of(pool: str) -> str:
    return f"workers of pool {pool!r}"
