"""A worker's life around its loop: log, signals, hooks, and the way out."""

import os
import random
from typing import Final

from rota import default
from rota.child.fence import NANOSECONDS, Fence
from rota.child.life import EXIT_LOST, EXIT_ORPHANED, Life
from rota.child.settings import WorkerSettings
from rota.child.signals import StopSignals
from rota.child.wait import Orphaned, Waiter
from rota.hooks import Hooks, default_hooks
from rota.protocol.store import Store, pack_tiers
from rota.registry import default_registry
from rota.server.address import parse_address
from rota.server.connection import ConnectionOptions
from rota.server.link import Link
from rota.telemetry import log
from rota.telemetry.recorder import Recorder
from rota.worker.application import NoCopies, call_hook
from rota.worker.attempt import Bench
from rota.worker.bell import Bell
from rota.worker.loop import Loop, Tools
from rota.worker.prepare import Preparer
from rota.worker.recycling import life_length
from rota.worker.report import Report
from rota.worker.runner import Runner

EXIT_FAILED: Final = 1


def run_worker(settings: WorkerSettings, life: Life) -> int:
    """Live one life as a worker in this process, in its main thread; answers the exit code.

    Signals may be blocked when it is called; they are let through once their handlers are in place.
    """
    log.configure(settings.log, role="worker", slot=life.slot_number, pid=os.getpid())
    log.adopt_foreign(settings.log)
    signals = StopSignals()
    signals.install()
    server = settings.server
    default.inherit_from_fleet(
        default.ClientSettings(server.redis_url, server.namespace, settings.max_payload_kb, settings.durability)
    )
    runner = Runner()
    try:
        if not all(call_hook(hook) for hook in default_hooks.worker_start):
            return EXIT_FAILED
        code = Loop(_tools(settings, life, signals, runner)).run()
        return _leave(life, default_hooks, runner, code)
    except Orphaned:
        return EXIT_ORPHANED


def _tools(settings: WorkerSettings, life: Life, signals: StopSignals, runner: Runner) -> Tools:
    store = Store(settings.server.namespace)
    recorder = Recorder(life.slot.metrics)
    report = Report(settings, recorder)
    waiter = Waiter(signals, life.death_fd, life.slot.beat, settings.beat_seconds / 2)
    options = ConnectionOptions(f"rota:worker:{life.owner}", wait=waiter.until_ready)
    spread = random.random()  # noqa: S311 - spreads work in time, guards no secret
    return Tools(
        life=life,
        store=store,
        tiers=pack_tiers(settings.tiers),
        link=Link(parse_address(settings.server.redis_url), options, recorder),
        waiter=waiter,
        signals=signals,
        fence=Fence(life.slot, settings.lease_seconds),
        bell=Bell(store.keys, settings.tiers, settings.beat_seconds),
        bench=Bench(
            round(settings.time_limit_seconds * NANOSECONDS),
            Preparer(default_registry, settings),
            default_hooks,
            life.slot,
            runner,
            report.started,
            NoCopies(),
            random.random,
        ),
        report=report,
        life_length=life_length(settings.max_tasks, settings.max_tasks_jitter, spread),
    )


def _leave(life: Life, hooks: Hooks, runner: Runner, code: int) -> int:
    life.ring_master()
    if code != EXIT_LOST:
        for hook in hooks.worker_stop:
            call_hook(hook)
        runner.close()
    return code
