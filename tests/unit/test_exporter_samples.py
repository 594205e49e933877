"""The values that the exporter computes itself, and the series that exist from the start with the value 0."""

import math

import pytest

from rota.child.child_settings import ServerSettings
from rota.child.slot_record import TaskInSlot
from rota.child.slots import Phase
from rota.protocol.groups import GroupEnd, Groups
from rota.protocol.views import Consumers, ConsumerState, QueueState
from rota.telemetry import metrics as m
from rota.telemetry.metrics import CounterDefinition
from rota_supervisor.config.model import QueueConfig
from rota_supervisor.exporter.observer import (
    CpuTotals,
    put_folded,
    put_processes,
    put_reading,
    put_running,
    put_settings,
    put_starts_held,
    put_usage,
)
from rota_supervisor.exporter.queue_watch import Largest, QueueReading
from rota_supervisor.exporter.series import Fold, Samples, zeroes
from rota_supervisor.fleet_snapshot import Member, MemberTask
from rota_supervisor.layout import Role
from rota_supervisor.master_snapshot import PoolInBackoff
from rota_supervisor.process import Usage
from support.child_settings import exporter_settings

SETTINGS = exporter_settings(
    {"mail": QueueConfig(weight=3.0, lag_objective_seconds=5.0, lag_target=0.999), "bulk": QueueConfig()},
    ServerSettings("redis://", "shop"),
)
QUEUES = SETTINGS.queues


def test_counters_of_every_queue_and_kind_start_at_zero() -> None:
    found = set(zeroes(["mail", "bulk"]))
    for queue in ("mail", "bulk"):
        for kind in ("immediate", "delayed", "retry", "periodic"):
            assert (m.TASK_STARTS, (queue, kind)) in found
            assert (m.TASK_LAG_OBJECTIVE_MISSES, (queue, kind)) in found
        assert (m.TASKS_RECOVERED, (queue, "child_exit")) in found
    assert (m.PROCESS_RESTARTS, ("worker", "signal")) in found
    assert (m.LEASES_LOST, ()) in found
    assert {type(definition) for definition, _ in found} == {CounterDefinition}, "a histogram would be 20 series"
    assert m.TASKS_ENQUEUED not in {definition for definition, _ in found}, "a zero would hide that Redis is away"


def test_the_settings_of_each_queue_are_exported_as_gauges() -> None:
    samples = Samples()
    put_settings(samples, QUEUES, "1.2.3", 1000.0)
    assert samples.value(m.QUEUE_LAG_OBJECTIVE, "mail") == 5.0
    assert samples.value(m.QUEUE_LAG_TARGET, "mail") == 0.999
    assert samples.value(m.QUEUE_WEIGHT, "mail") == 3.0
    assert samples.value(m.BUILD_INFO, "1.2.3", "1") == 1
    assert samples.value(m.FORGOTTEN_AFTER) == 1000.0


def worker(slot: int, queue: str, age: float) -> Member:
    task = TaskInSlot(f"id {queue} i 1 1 0 0 0 0 -".encode(), "name", 1, 0)
    return Member(slot, Role.WORKER, 100 + slot, Phase.BUSY, 1.5, (MemberTask(task, age, math.inf),))


def test_each_queue_exports_its_oldest_running_task_or_zero() -> None:
    samples = Samples()
    put_running(samples, [worker(8, "mail", 3.0), worker(9, "mail", 7.0), worker(10, "other", 1.0)], QUEUES)
    assert dict(samples.series(m.QUEUE_OLDEST_RUNNING_AGE)) == {
        ("mail",): (7.0,),
        ("bulk",): (0.0,),
        ("other",): (1.0,),
    }


def test_no_heartbeat_age_is_exported_for_a_zygote() -> None:
    samples = Samples()
    put_processes(samples, [Member(2, Role.ZYGOTE, 5, Phase.EMPTY, 900.0), worker(8, "mail", 1.0)])
    assert dict(samples.series(m.HEARTBEAT_AGE)) == {("worker", "8"): (1.5,)}


def test_times_of_queue_readings_are_exported_in_seconds() -> None:
    state = QueueState(
        "mail", 1, 2, 3, 4, 5, 6, 7_500_000, 8_250_000, paused=True, served=False, closed_age_us=9_500_000
    )
    consumers = tuple(ConsumerState(f"consumer-{held}", 0, held, "mail") for held in (1, 2))
    samples = Samples()
    put_reading(
        samples,
        QueueReading(
            Largest(["mail"], 0).choose([state], all_seen=True), 9, -0.25, Consumers(2, consumers),
            groups=Groups(3, (), {GroupEnd.THEN: 4}),
        ),
    )  # fmt: skip
    shown = {
        d.name: samples.value(d, "mail")
        for d in m.ALL
        if d.labels == ("queue",) and samples.value(d, "mail") is not None
    }
    assert shown == {
        "rota_queue_ready_tasks": 1,
        "rota_queue_scheduled_tasks": 2,
        "rota_queue_overdue_tasks": 3,
        "rota_queue_inflight_tasks": 4,
        "rota_queue_dead_tasks": 5,
        "rota_tasks_enqueued_total": 6,
        "rota_queue_oldest_ready_age_seconds": 7.5,
        "rota_queue_oldest_overdue_age_seconds": 8.25,
        "rota_queue_paused": 1,
        "rota_queue_served": 0,
        "rota_queue_closed": 0,
        "rota_queue_closed_age_seconds": 9.5,
    }
    assert samples.value(m.AUDIT_MISSING) == 9
    assert (samples.value(m.CONSUMERS), samples.value(m.CONSUMER_HELD_TASKS)) == (2, 3)
    assert (samples.value(m.GROUPS_OPEN), samples.value(m.GROUPS_ENDED, "then")) == (3, 4)
    assert samples.value(m.REDIS_CLOCK_OFFSET) == -0.25


FOLDED = Fold(frozenset([("queue", "mail"), ("queue", "stray")]))


def test_gauges_sum_the_queues_beyond_the_series_limit() -> None:
    states = [QueueState(name, 1, 0, 0, 0, 0, 2, 0, 0, paused=False, served=True) for name in ("mail", "bulk", "stray")]
    shown = Largest(["mail", "bulk"], 1).choose(states, all_seen=True)
    samples = Samples()
    put_reading(samples, QueueReading(shown, 0, 0.0, Consumers(0, ())), FOLDED)
    assert dict(samples.series(m.QUEUE_READY)) == {("bulk",): (1,), ("_other",): (2,)}
    assert dict(samples.series(m.TASKS_ENQUEUED)) == {("bulk",): (2,), ("_other",): (4,)}


def test_queues_summed_as_other_have_their_average_lag_target() -> None:
    starts, samples = Samples(), Samples()
    starts.put(m.TASK_STARTS, ("mail", "immediate"), 899.0)
    starts.put(m.TASK_STARTS, ("bulk", "immediate"), 99.0)
    put_folded(samples, QUEUES, Fold(frozenset([("queue", "mail"), ("queue", "bulk")])), starts)
    assert samples.value(m.QUEUE_LAG_TARGET, "_other") == pytest.approx((0.999 * 900 + 0.99 * 100) / 1000)
    assert samples.value(m.QUEUE_LAG_OBJECTIVE, "_other") == max(queue.lag_objective_seconds for queue in QUEUES)
    assert (samples.value(m.QUEUES_SHOWN), samples.value(m.QUEUES_FOLDED)) == (0, 2)


def test_processor_time_of_dead_and_live_processes_never_decreases() -> None:
    totals = CpuTotals()

    def total(dead: float, living: float | None) -> float | None:
        """Return the total time of dead processes, which the master has counted, plus that of living processes, which
        is read from /proc.
        """
        samples = Samples()
        samples.put(m.PROCESS_CPU, ("worker", "8"), dead)
        member = Member(8, Role.WORKER, 1, Phase.IDLE, 0.0)
        totals.put(samples, {} if living is None else {member: Usage(1, living, 1)})
        return samples.value(m.PROCESS_CPU, "worker", "8")

    assert [total(0.0, 2.0), total(0.0, None), total(0.0, 0.0), total(2.5, None)] == [2.0, 2.0, 2.0, 2.5]
    assert [total(2.5, 0.5), total(3.5, None), total(3.5, 0.25)] == [3.0, 3.5, 3.75]


def test_file_descriptor_counts_are_omitted_if_the_kernel_hides_them() -> None:
    samples = Samples()
    put_usage(samples, {worker(8, "mail", 1.0): Usage(4096, 1.0, None), worker(9, "mail", 1.0): Usage(8192, 1.0, 7)})
    assert dict(samples.series(m.PROCESS_OPEN_FDS)) == {("worker", "9"): (7,)}
    assert samples.value(m.PROCESS_RESIDENT_MEMORY, "worker", "8") == 4096


def test_the_back_off_gauge_is_one_for_delayed_pools_and_otherwise_zero() -> None:
    samples = Samples()
    samples.put(m.WORKERS_DESIRED, ("mail",), 2)
    samples.put(m.WORKERS_DESIRED, ("bulk",), 2)
    held = [PoolInBackoff(*who, "backoff", 1, 0.0, "") for who in (("worker", "bulk"), ("zygote", "generation-2"))]
    put_starts_held(samples, held)
    assert dict(samples.series(m.STARTS_HELD)) == {
        ("worker", "mail"): (0,),
        ("worker", "bulk"): (1,),
        ("exporter", ""): (0,),
        ("zygote", ""): (1,),
        ("poller", ""): (0,),
    }


def test_queues_without_recent_late_starts_export_zero() -> None:
    samples = Samples()
    samples.put(m.TASK_LAG_WORST, ("mail",), 7.5)
    put_running(samples, [], QUEUES)
    assert dict(samples.series(m.TASK_LAG_WORST)) == {("mail",): (7.5,), ("bulk",): (0.0,)}
