"""The parts of a worker process other than its loop: the log, signal handlers, hooks and exit code."""

import random
from typing import TYPE_CHECKING, Any

from rota.child.child_process import (
    EXIT_LOST,
    EXIT_ORPHANED,
    SOFT_LIMIT_SIGNAL,
    ChildProcess,
    Fence,
    Orphaned,
    StartFailed,
    StopSignals,
    Waiter,
)
from rota.child.child_settings import WorkerSettings
from rota.child.slots import boottime_ns
from rota.durations import NANOSECONDS
from rota.errors import NoCurrentTask
from rota.protocol.store import Store
from rota.protocol.tiers import pack_tiers
from rota.server.address import address_of
from rota.server.connection import ConnectionOptions
from rota.server.link import Link
from rota.server.logins import URL_SETTING, fleet_login
from rota.soft_limit import soft_limit
from rota.tasks.claimed_call import Preparer, StartSteps
from rota.tasks.fleet_settings import ClientSettings, own_fleet
from rota.tasks.hooks import current_task, default_hooks
from rota.tasks.keyring import keyring_of
from rota.tasks.registry import default_registry
from rota.telemetry import log
from rota.telemetry.metrics import QueueLabels
from rota.telemetry.recorder import Recorder
from rota.worker.application import NoCopies, Runner, call_hook
from rota.worker.attempt import AttemptMaker, ShortLimits
from rota.worker.doorbells import Bell
from rota.worker.executor import Executor, StartChecker
from rota.worker.loop_state import Growth, RecycleRequest, span_of
from rota.worker.worker_loop import Loop
from rota.worker.worker_report import Report

if TYPE_CHECKING:
    from rota.worker.concurrent.concurrent_loop import ConcurrentLoop


def run_worker(settings: WorkerSettings, process: ChildProcess) -> int:
    """Run a worker in this process, in its main thread, and return the exit code.

    Signals may be blocked when this is called. They are unblocked when their handlers have been installed. Raises
    StartFailed if a start hook fails.
    """
    # Measure memory before anything else, so that growth is counted from the fork.
    growth = Growth(settings.max_rss_mb) if settings.max_rss_mb else None
    _configure_log(settings, process)
    signals = StopSignals()
    signals.install()
    if settings.concurrency == 1:
        soft_limit.install(SOFT_LIMIT_SIGNAL, process.slot.record(0).is_cancelled)
    own_fleet.settings = _settings_for_tasks(settings)
    try:
        for hook in default_hooks.worker_start:
            if failure := call_hook(hook):
                raise StartFailed(failure)
        loop = _loop(settings, process, signals, growth)
        code = loop.run()
    except Orphaned:
        return EXIT_ORPHANED
    process.ring_master()
    if code != EXIT_LOST:
        for hook in default_hooks.worker_stop:
            call_hook(hook)
        loop.close()
    return code


def _settings_for_tasks(settings: WorkerSettings) -> ClientSettings:
    """Return the settings with which tasks reach their own fleet through the default client."""
    server = settings.server
    if fleet_login.shared is not None and not server.redis_credentials:
        fleet_login.shared.setting = URL_SETTING
    return ClientSettings(
        server.redis_url,
        server.namespace,
        settings.max_payload_kb,
        settings.durability,
        redis_tls_ca=server.redis_tls_ca,
        redis_tls_cert=server.redis_tls_cert,
        redis_tls_key=server.redis_tls_key,
        redis_credentials=fleet_login.shared,
        signing=settings.signing,
    )


def _configure_log(settings: WorkerSettings, process: ChildProcess) -> None:
    identity = {"pool": settings.pool, "slot": process.slot_number}
    bound = log.of_process("worker", settings.server.namespace, process.node, **identity)
    log.configure(settings.log, held=process.slot.held_lines, **bound)
    log.adopt(settings.log, _fields_of_task)


def _fields_of_task() -> dict[str, Any]:
    """Return the log fields for the task in which the calling code runs, or no fields outside of a task."""
    try:
        task = current_task()
    except NoCurrentTask:
        return {}
    return {"task_id": task.id, "task": task.name}


def _loop(
    settings: WorkerSettings, process: ChildProcess, signals: StopSignals, growth: Growth | None
) -> "Loop | ConcurrentLoop":
    store = Store(settings.server.namespace)
    queues = [share.name for tier in settings.tiers for share in tier.queues]
    recorder = Recorder(process.slot.metrics, label_of_queue=QueueLabels(queues).of)
    report = Report(settings, recorder)
    fence = Fence(process.slot, settings.lease_seconds)
    spread = random.random()  # noqa: S311 - spreads work in time, guards no secret
    span = span_of(settings.max_tasks, settings.max_tasks_jitter, spread)
    standing: dict[str, Any] = {
        "process": process,
        "store": store,
        "tiers": pack_tiers(settings.tiers),
        "signals": signals,
        "fence": fence,
        "bell": Bell(store.keys, settings.tiers, settings.park_seconds, lambda: process.slot.renewed_ns),
        "report": report,
        "recycling": RecycleRequest(process, span, growth),
    }
    maker = _maker(settings, process, report)
    starts = StartSteps(
        process.owner,
        store,
        lambda: process.slot.is_intact and not fence.is_up(boottime_ns()),
        report.throttled,
    )
    if settings.concurrency > 1:
        from rota.worker.concurrent.concurrent_loop import ConcurrentLoop  # noqa: PLC0415 - takes 5 MB

        return ConcurrentLoop(**standing, settings=settings, maker=maker, starts=starts, recorder=recorder)
    waiter = Waiter(signals, process.death_fd, process.slot.heartbeat, settings.beat_seconds / 2)
    options = ConnectionOptions(f"rota:worker:{process.owner}", wait=waiter.until_ready)
    link = Link(address_of(settings.server), options, recorder)
    executor = Executor(maker, process.slot.record(0), Runner(), StartChecker(starts, link, waiter).check_start)
    return Loop(**standing, link=link, waiter=waiter, executor=executor)


def _maker(settings: WorkerSettings, process: ChildProcess, report: Report) -> AttemptMaker:
    return AttemptMaker(
        round(settings.time_limit_seconds * NANOSECONDS),
        Preparer(default_registry, settings, keyring_of(settings.signing)),
        default_hooks,
        report.started,
        NoCopies(),
        random.random,
        ShortLimits(process.slot, process.ring_master),
        settings.max_result_kb,
        process.owner,
    )
