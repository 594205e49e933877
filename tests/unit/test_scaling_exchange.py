"""The load that a master publishes about a pool with a range, and the inputs on which the master bases a decision."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.child.slot_memory import SlotMemory
from rota.child.slots import boottime_ns
from rota.durations import NANOSECONDS
from rota.protocol.scaling import NO_DECISION, Backlog, ScalingReply
from rota.protocol.tiers import QueueShare, domain_of
from rota_supervisor.master.core.effects import LagObjective, ScaledPool, ScaledWorker
from rota_supervisor.master.core.scaling_inputs import LoadWindow, NodeLoad, QueueBacklog
from rota_supervisor.master.core.scaling_rule import Decision
from rota_supervisor.master.effects.node_resources import NodeResources
from rota_supervisor.master.effects.scaling_exchange import (
    UNKNOWN_START_SECONDS,
    PoolGauge,
    backlog_rows,
    inputs_of,
    most_of,
)
from rota_supervisor.master.effects.scaling_texts import decision_in, load_in, text_of

TIERS = (
    domain_of([QueueShare("mail", cap=3), QueueShare("t-*", interval_us=500_000)]),
    domain_of([QueueShare("low")]),
)
OBJECTIVES = {"mail": LagObjective(5, 0.99), "t-*": LagObjective(10, 0.9), "low": LagObjective(60, 0.5)}
POOL = ScaledPool("main", TIERS, OBJECTIVES, 1, 1, 8, 8, None, is_blocked=False, first_crashes=0, workers=())
NOTHING = LoadWindow(0.0, 0, 0.0, 1.0, 0, 0)
LOAD = NodeLoad(
    node="a",
    short=LoadWindow(2.0, 20, 1.5, 0.25, 20, 1),
    long=LoadWindow(60.0, 600, 45.0, 0.5, 600, 30),
    workers=3,
    starting=1,
    free_slots=2,
    running_seconds=1.25,
    running=1,
    held=0,
    concurrency=1,
    least=1,
    most=8,
    granted=8,
    limited_by="",
    start_seconds=0.05,
    is_blocked=False,
    operator=None,
)
DECISION = Decision(
    wanted=4,
    unbounded=9,
    shares={"a": 3, "b": 1},
    needs={"a": 3, "b": 1},
    steady=2,
    drain=4,
    tail=3,
    limited_by=("cpu",),
    reason="busy \N{EM DASH} \ud800",
    drain_seconds=math.inf,
    lag_ratio=0.5,
)
GIGABYTE = 1 << 30


# Texts


def test_loads_and_scaling_decisions_survive_encoding() -> None:
    assert load_in(text_of(LOAD), "a") == LOAD
    assert load_in(text_of(LOAD._replace(operator=5)), "a") == LOAD._replace(operator=5)
    assert decision_in(text_of(DECISION)) == DECISION


def test_a_load_is_attributed_to_the_node_that_stored_it() -> None:
    assert load_in(text_of(LOAD), "b") == LOAD._replace(node="b")


def test_fields_that_a_later_version_adds_to_a_load_are_ignored() -> None:
    assert load_in(text_of(LOAD)[:-1] + b',"new"]', "a") == LOAD


@pytest.mark.parametrize(
    "change", [{"workers": -1}, {"concurrency": 0}, {"running": "x"}, {"most": 1.5}, {"running_seconds": math.nan}]
)
def test_a_load_with_an_invalid_value_is_ignored(change: dict[str, Any]) -> None:
    assert load_in(text_of(LOAD._replace(**change)), "a") is None


@given(st.one_of(st.binary(max_size=60), st.text('[]{}",:-0123456789.eNaIfity').map(str.encode)))
def test_invalid_text_is_read_as_neither_a_load_nor_a_scaling_decision(text: bytes) -> None:
    assert load_in(text, "a") is None
    assert decision_in(text) is None


def test_deeply_nested_loads_and_decisions_are_ignored() -> None:
    assert load_in(b"[" * 100_000, "a") is None


# The backlog


def test_each_backlog_row_has_the_limits_of_its_queue_or_pattern() -> None:
    rows = [
        Backlog("mail", 1, 7, 2.0, 1, is_open=True),
        Backlog("t-1", 1, 5, 1.0, 0, is_open=False),
        Backlog("t-*", 40, 80, 0.0, 0, is_open=True),
        Backlog("low", 1, 1, 0.5, 0, is_open=True),
    ]
    assert list(backlog_rows(POOL, rows)) == [
        QueueBacklog("mail", 7, 2.0, 1, True, 3, math.inf, 5, 0.99),
        QueueBacklog("t-1", 5, 1.0, 0, False, 0, 2.0, 10, 0.9),
        QueueBacklog("t-*", 80, 0.0, 0, True, 0, 80.0, 10, 0.9),
        QueueBacklog("low", 1, 0.5, 0, True, 0, math.inf, 60, 0.5),
    ]


def test_a_queue_that_the_pool_does_not_serve_has_no_backlog_row() -> None:
    assert list(backlog_rows(POOL, [Backlog("other", 1, 7, 2.0, 1, is_open=True)])) == []


def test_a_scaling_decision_uses_every_readable_load() -> None:
    reply = ScalingReply("a", NO_DECISION, b"", {"c": text_of(LOAD), "b": b"garbage"}, ())
    assert [load.node for load in inputs_of(POOL, LOAD, reply).nodes] == ["a", "c"]


# Limits


@pytest.mark.parametrize(
    ("resources", "present", "private", "expected"),
    [
        (NodeResources(), 3, 0, (8, "")),
        (NodeResources(is_cpu_busy=True), 3, 0, (3, "cpu")),
        (NodeResources(is_cpu_busy=True), 0, 0, (1, "cpu")),
        (NodeResources(is_cpu_busy=True), 9, 0, (8, "")),
        (NodeResources(free_bytes=GIGABYTE), 3, GIGABYTE // 2, (5, "memory")),
        (NodeResources(free_bytes=GIGABYTE), 3, GIGABYTE // 50, (8, "")),
        (NodeResources(free_bytes=GIGABYTE), 3, 0, (8, "")),
        (NodeResources(is_cpu_busy=True, free_bytes=0), 3, GIGABYTE, (3, "cpu")),
    ],
)
def test_processors_and_memory_limit_the_number_of_workers(
    resources: NodeResources, present: int, private: int, expected: tuple[int, str]
) -> None:
    assert most_of(POOL, present, resources, private) == expected


# Measurements


def test_a_pool_without_workers_has_an_empty_load() -> None:
    memory = SlotMemory.create(4)
    load = PoolGauge().load("a", POOL, memory, NodeResources())
    assert load[:3] == ("a", NOTHING, NOTHING)
    assert (load.workers, load.free_slots, load.start_seconds) == (0, 0, UNKNOWN_START_SECONDS)


def test_the_load_of_a_worker_is_read_by_its_slot_and_nonce() -> None:
    memory = SlotMemory.create(4)
    gauge = PoolGauge()
    now_ns = boottime_ns()
    for number in (1, 2, 3):
        memory.slot(number).assign(nonce=number, concurrency=4)
        memory.slot(number).load.occupy(1, now_ns)
    memory.slot(1).record(0).start(b"entry", "work", now_ns - 2 * NANOSECONDS, 0)
    memory.slot(1).record(3).start(b"entry", "work", now_ns - 100 * NANOSECONDS, 0)
    workers = (
        ScaledWorker(1, 1, is_serving=True, is_starting=False, start_seconds=0.25),
        ScaledWorker(2, 2, is_serving=False, is_starting=True, start_seconds=None),
        ScaledWorker(3, 99, is_serving=True, is_starting=False, start_seconds=0.75),
    )
    load = gauge.load("a", POOL._replace(workers=workers, concurrency=4), memory, NodeResources())
    assert (load.workers, load.starting, load.free_slots) == (2, 1, 3)
    assert (load.running, load.held) == (1, 1)
    assert load.running_seconds == pytest.approx(2, abs=1)
    assert load.start_seconds == 0.5


def test_the_start_time_of_each_worker_is_averaged_once() -> None:
    memory = SlotMemory.create(4)
    gauge = PoolGauge()
    first = ScaledWorker(1, 1, is_serving=True, is_starting=False, start_seconds=1.0)
    second = ScaledWorker(2, 2, is_serving=True, is_starting=False, start_seconds=4.0)
    for workers in ((first,), (first,), (first,), (first, second)):
        load = gauge.load("a", POOL._replace(workers=workers), memory, NodeResources())
    assert load.start_seconds == 2.5


def test_a_worker_with_an_overwritten_slot_counts_as_no_load() -> None:
    memory = SlotMemory.create(4)
    memory.slot(1).assign(nonce=1)
    memory.slot(1)._words[:16] = memoryview(bytes(128)).cast("q")
    worker = ScaledWorker(1, 1, is_serving=True, is_starting=False, start_seconds=1.0)
    load = PoolGauge().load("a", POOL._replace(workers=(worker,)), memory, NodeResources())
    assert (load.workers, load.free_slots, load.short) == (1, 0, NOTHING)
