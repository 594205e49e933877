"""A worker's life around its loop: log, signals, hooks, and the way out."""

import os
import random

from rota.child.life import EXIT_LOST, EXIT_ORPHANED, NANOSECONDS, Fence, Life, StartFailed
from rota.child.settings import WorkerSettings
from rota.child.signals import SOFT_LIMIT_SIGNAL, StopSignals
from rota.child.wait import Orphaned, Waiter
from rota.client.default import inherit_from_fleet
from rota.client.settings import ClientSettings
from rota.hooks import default_hooks
from rota.protocol.store import Store
from rota.protocol.tiers import pack_tiers
from rota.registry import default_registry
from rota.server.address import parse_address
from rota.server.connection import ConnectionOptions
from rota.server.link import Link
from rota.soft_limit import soft_limit
from rota.telemetry import log
from rota.telemetry.queue_labels import QueueLabels
from rota.telemetry.recorder import Recorder
from rota.worker import bell, prepare
from rota.worker.application import NoCopies, Runner, call_hook
from rota.worker.attempt import Executor
from rota.worker.begin import Beginner
from rota.worker.limits import ShortLimits
from rota.worker.loop import Loop
from rota.worker.recycling import Growth, Recycling, span_of
from rota.worker.report import Report
from rota.worker.throttle import Throttle


def run_worker(settings: WorkerSettings, life: Life) -> int:
    """Live one life as a worker in this process, in its main thread; returns the exit code.

    Signals may be blocked when it is called; they are let through once their handlers are in place. Raises StartFailed.
    """
    growth = Growth(settings.max_rss_mb) if settings.max_rss_mb else None  # first of all: from the fork on
    log.configure(settings.log, role="worker", slot=life.slot_number, pid=os.getpid())
    log.adopt_foreign(settings.log)
    signals = StopSignals()
    signals.install()
    soft_limit.install(SOFT_LIMIT_SIGNAL, life.slot.record(0).is_cancelled)
    server = settings.server
    inherit_from_fleet(ClientSettings(server.redis_url, server.namespace, settings.max_payload_kb, settings.durability))
    runner = Runner()
    try:
        for hook in default_hooks.worker_start:
            if failure := call_hook(hook):
                raise StartFailed(failure)
        code = _loop(settings, life, signals, runner, growth).run()
    except Orphaned:
        return EXIT_ORPHANED
    life.ring_master()
    if code != EXIT_LOST:
        for hook in default_hooks.worker_stop:
            call_hook(hook)
        runner.close()
    return code


def _loop(settings: WorkerSettings, life: Life, signals: StopSignals, runner: Runner, growth: Growth | None) -> Loop:
    store = Store(settings.server.namespace)
    queues = [share.name for tier in settings.tiers for share in tier.queues]
    recorder = Recorder(life.slot.metrics, label_of_queue=QueueLabels(queues).of)
    report = Report(settings, recorder)
    waiter = Waiter(signals, life.death_fd, life.slot.beat, settings.beat_seconds / 2)
    options = ConnectionOptions(f"rota:worker:{life.owner}", wait=waiter.until_ready)
    spread = random.random()  # noqa: S311 - spreads work in time, guards no secret
    link = Link(parse_address(settings.server.redis_url), options, recorder)
    fence = Fence(life.slot, settings.lease_seconds)
    span = span_of(settings.max_tasks, settings.max_tasks_jitter, spread)
    return Loop(
        life=life,
        store=store,
        tiers=pack_tiers(settings.tiers),
        link=link,
        waiter=waiter,
        signals=signals,
        fence=fence,
        bell=bell.Bell(store.keys, settings.tiers, settings.beat_seconds),
        executor=Executor(
            round(settings.time_limit_seconds * NANOSECONDS),
            prepare.Preparer(default_registry, settings),
            default_hooks,
            life.slot.record(0),
            runner,
            report.started,
            NoCopies(),
            random.random,
            ShortLimits(life.slot, life.ring_master),
            Beginner(life, store, link, waiter, fence).begin,
            Throttle(life, store, link, waiter, fence, report.throttled).ask,
            settings.max_result_kb,
            life.owner,
        ),
        report=report,
        recycling=Recycling(life, span, growth),
    )
