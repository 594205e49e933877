"""What the exporter computes itself, and what exists at 0 from the start."""

import math
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from child_settings import exporter_settings
from rota.child.settings import ServerSettings
from rota.child.slot_task import TaskInSlot
from rota.child.slots import Phase
from rota.protocol.groups import GroupEnd, Groups
from rota.protocol.views import Consumers, ConsumerState, QueueState
from rota.telemetry import metrics as m
from rota.telemetry.definition import GaugeDefinition
from rota_supervisor.config.model import QueueConfig
from rota_supervisor.exporter.fleet import Member, MemberTask, Usage
from rota_supervisor.exporter.largest import Largest
from rota_supervisor.exporter.observer import (
    CpuTotals,
    put_fleet,
    put_held,
    put_reading,
    put_settings,
    put_usage,
    zeroes,
)
from rota_supervisor.exporter.queues import QueueReading
from rota_supervisor.exporter.samples import Samples, empty_families, families
from rota_supervisor.layout import Role

SETTINGS = exporter_settings(
    {"mail": QueueConfig(weight=3.0, lag_objective_seconds=5.0, lag_target=0.999), "bulk": QueueConfig()},
    ServerSettings("redis://", "shop"),
)
QUEUES = SETTINGS.queues


class Collected:
    """A collector of these samples."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        return families(self._samples, "shop")


def exposition(samples: Samples) -> str:
    registry = CollectorRegistry()
    registry.register(Collected(samples))
    return generate_latest(registry).decode()


def test_every_queue_and_kind_exists_at_zero_from_the_start() -> None:
    found = set(zeroes(["mail", "bulk"]))
    for queue in ("mail", "bulk"):
        for kind in ("immediate", "delayed", "retry", "periodic"):
            assert (m.TASK_LAG, (queue, kind)) in found
            assert (m.QUEUE_WAIT, (queue, kind)) in found
            assert (m.TASK_LAG_OBJECTIVE_MISSES, (queue, kind)) in found
        assert (m.PROMOTION_LAG, (queue,)) in found
        assert (m.TASKS_RECOVERED, (queue, "child_exit")) in found
    assert (m.PROCESS_RESTARTS, ("worker", "signal")) in found
    assert (m.LEASES_LOST, ()) in found
    assert not [definition for definition, _ in found if isinstance(definition, GaugeDefinition)]
    assert m.TASKS_ENQUEUED not in {definition for definition, _ in found}, "a zero would hide that Redis is away"


def test_settings_become_gauges_of_each_queue() -> None:
    samples = Samples()
    put_settings(samples, SETTINGS, "1.2.3", 1000.0)
    assert samples.value(m.QUEUE_LAG_OBJECTIVE, "mail") == 5.0
    assert samples.value(m.QUEUE_LAG_TARGET, "mail") == 0.999
    assert samples.value(m.QUEUE_WEIGHT, "mail") == 3.0
    assert samples.value(m.BUILD_INFO, "1.2.3", "1") == 1
    assert samples.value(m.START_TIME) == 1000.0


def worker(slot: int, queue: str, age: float) -> Member:
    task = TaskInSlot(f"id {queue} i 1 1 0 0 0 0 -".encode(), "name", 1, 0)
    return Member(slot, Role.WORKER, 100 + slot, Phase.BUSY, 1.5, (MemberTask(task, age, math.inf),))


def test_the_oldest_running_task_of_each_queue_is_found_and_idle_queues_say_zero() -> None:
    samples = Samples()
    put_fleet(samples, [worker(8, "mail", 3.0), worker(9, "mail", 7.0), worker(10, "other", 1.0)], QUEUES)
    assert dict(samples.series(m.QUEUE_OLDEST_RUNNING_AGE)) == {
        ("mail",): (7.0,),
        ("bulk",): (0.0,),
        ("other",): (1.0,),
    }


def test_a_zygote_has_no_heartbeat() -> None:
    samples = Samples()
    put_fleet(samples, [Member(2, Role.ZYGOTE, 5, Phase.EMPTY, 900.0), worker(8, "mail", 1.0)], QUEUES)
    assert dict(samples.series(m.HEARTBEAT_AGE)) == {("worker", "8"): (1.5,)}


def test_the_reading_of_redis_becomes_gauges_in_seconds() -> None:
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


def test_processor_time_of_a_slot_goes_on_with_the_next_process() -> None:
    totals = CpuTotals()

    def total(pid: int, seconds: float) -> float | None:
        samples = Samples()
        totals.put(samples, {Member(8, Role.WORKER, pid, Phase.IDLE, 0.0): Usage(1, seconds, 1)})
        return samples.value(m.PROCESS_CPU, "worker", "8")

    assert [total(1, 2.0), total(1, 3.0), total(2, 0.5), total(2, 1.0), total(3, 0.0)] == [2.0, 3.0, 3.5, 4.0, 4.0]
    assert [total(3, 0.5), total(3, 0.0), total(4, 0.5)] == [4.5, 4.5, 5.0]  # 0.0: as it is reaped


def test_processor_time_of_a_slot_stays_while_nobody_is_in_it() -> None:
    totals, samples = CpuTotals(), Samples()
    totals.put(Samples(), {Member(8, Role.WORKER, 1, Phase.IDLE, 0.0): Usage(1, 2.0, 1)})
    totals.put(samples, {})
    assert samples.value(m.PROCESS_CPU, "worker", "8") == 2.0


def test_descriptors_are_left_out_where_the_kernel_does_not_tell() -> None:
    samples = Samples()
    put_usage(samples, {worker(8, "mail", 1.0): Usage(4096, 1.0, None), worker(9, "mail", 1.0): Usage(8192, 1.0, 7)})
    assert dict(samples.series(m.PROCESS_OPEN_FDS)) == {("worker", "9"): (7,)}
    assert samples.value(m.PROCESS_RESIDENT_MEMORY, "worker", "8") == 4096


def test_the_exposition_is_read_back_by_the_librarys_parser() -> None:
    samples = Samples()
    samples.add(m.TASK_LAG, ("mail", "retry"), tuple(float(n) for n in range(22)))
    samples.add(m.CLAIMS, ('a"b\\c\nd',), (3.0,))
    samples.put(m.REDIS_UP, (), 1)
    parsed = {family.name: family for family in text_string_to_metric_families(exposition(samples))}
    assert parsed.keys() == {"rota_task_lag_seconds", "rota_claims", "rota_redis_up"}
    assert parsed["rota_claims"].samples[0].labels == {
        "fleet": "shop",
        "queue": 'a"b\\c\\nd',
    }  # escaped by us, and then by the library
    lag = {(s.name, s.labels.get("le")): s.value for s in parsed["rota_task_lag_seconds"].samples}
    assert lag[("rota_task_lag_seconds_bucket", "0.0025")] == 1
    assert lag[("rota_task_lag_seconds_bucket", "1.0")] == sum(range(10))
    assert lag[("rota_task_lag_seconds_bucket", "+Inf")] == lag[("rota_task_lag_seconds_count", None)] == sum(range(21))
    assert lag[("rota_task_lag_seconds_sum", None)] == 21


def test_every_series_says_of_which_fleet_it_is() -> None:
    samples = Samples()
    samples.put(m.REDIS_UP, (), 1)
    samples.add(m.PROMOTION_LAG, ("mail",), (1.0,) * m.PROMOTION_LAG.numbers)
    samples.add(m.CLAIMS, ("mail",), (1.0,))
    found = [sample for family in text_string_to_metric_families(exposition(samples)) for sample in family.samples]
    assert len(found) > 20
    assert {sample.labels["fleet"] for sample in found} == {"shop"}


def test_pools_and_roles_whose_starts_are_held_back_say_so_and_all_others_say_zero() -> None:
    samples = Samples()
    samples.put(m.WORKERS_DESIRED, ("mail",), 2)
    samples.put(m.WORKERS_DESIRED, ("bulk",), 2)
    put_held(samples, [{"role": "worker", "pool": "bulk"}, {"role": "zygote", "pool": "generation-2"}])
    assert dict(samples.series(m.STARTS_HELD)) == {
        ("worker", "mail"): (0,),
        ("worker", "bulk"): (1,),
        ("exporter", ""): (0,),
        ("zygote", ""): (1,),
        ("poller", ""): (0,),
    }


def test_queues_of_which_nothing_started_late_lately_say_zero() -> None:
    samples = Samples()
    samples.put(m.TASK_LAG_WORST, ("mail",), 7.5)
    put_fleet(samples, [], QUEUES)
    assert dict(samples.series(m.TASK_LAG_WORST)) == {("mail",): (7.5,), ("bulk",): (0.0,)}


def test_a_metric_without_samples_is_absent_and_still_described() -> None:
    assert list(families(Samples(), "shop")) == []
    assert len(list(empty_families())) == len(m.ALL)
