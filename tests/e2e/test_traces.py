"""The traces of a whole fleet. The traces begin with an enqueue in this process, and include the attempts in workers,
failures, and the death of a worker.
"""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rota import Call, chain
from support.fleets import Fleets, RunningFleet
from support.growing_files import whole_lines
from support.spans import recorded_spans
from support.waiting import until

MANY = 8
TRACED = """
import asyncio
import os

import rota
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from rota.contrib.opentelemetry import instrument

instrument()


@rota.on_worker_start
def trace_to_a_file() -> None:
    spans = open(os.environ["FLEET_FOLDER"] + "/spans", "a")
    exporter = ConsoleSpanExporter(out=spans, formatter=lambda span: span.to_json(indent=None) + "\\n")
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


@rota.task(retries=1, base=0)
def fails_once() -> None:
    if rota.current_task().attempt == 1:
        raise ConnectionError("no")


@rota.task(queue="many")
async def beside_others(number: int) -> None:
    before = trace.get_current_span().get_span_context().span_id
    await asyncio.sleep(0.01)
    assert trace.get_current_span().get_span_context().span_id == before
    trace.get_current_span().set_attribute("number", number)
"""


@pytest.fixture
def sent() -> Iterator[InMemorySpanExporter]:
    """Yield an exporter that collects the spans of the enqueues in this process."""
    with recorded_spans() as exporter:
        yield exporter


@pytest.fixture
def fleet(fleets: Fleets) -> RunningFleet:
    pools = {"one": {"workers": 1, "queues": ["default"]}, "many": {"workers": 1, "queues": ["many"], "concurrency": 4}}
    fleet = fleets.make(imports=["tasks", "traced"], pools=pools, tiers=[["default", "many"]])
    (fleet.folder / "traced.py").write_text(TRACED)
    return fleet.start()


def processed(fleet: RunningFleet, count: int, **attributes: Any) -> list[dict[str, Any]]:
    """Wait until the fleet has written this many spans with these attributes. Returns the spans in the order in which
    they ended.
    """

    def found() -> list[dict[str, Any]]:
        spans = [json.loads(line) for line in whole_lines(fleet.shared / "spans")]
        those = [span for span in spans if attributes.items() <= span["attributes"].items()]
        return those if len(those) >= count else []

    return until(found, f"{count} spans")


def linked(span: dict[str, Any]) -> list[int]:
    return [int(link["context"]["span_id"], 16) for link in span["links"]]


def events(span: dict[str, Any]) -> list[str]:
    return [event["name"] for event in span["events"]]


def test_each_attempt_is_linked_to_its_enqueue_and_its_log_line(
    fleet: RunningFleet, sent: InMemorySpanExporter
) -> None:
    failed = fleet.client.enqueue("fails_once", queue="default").id
    first, second = processed(fleet, 2, **{"messaging.message.id": failed})
    [send] = sent.get_finished_spans()
    assert send.context is not None
    assert linked(first) == linked(second) == [send.context.span_id]
    assert (events(first), events(second)) == (["exception"], ["retry"])
    retried = until(lambda: fleet.log("task.retried"), "its line")[0]
    done = until(lambda: fleet.log("task.done"), "its line")[0]
    for line, span in ((retried, first), (done, second)):
        assert f"0x{line['trace_id']}" == span["context"]["trace_id"]

    held = fleet.hold("task")
    os.kill(held.pid, signal.SIGKILL)
    fleet.wait_for("start", 2, label="task")
    fleet.release("task")
    [recovered] = processed(fleet, 1, **{"messaging.message.id": held.id})
    recorded = [(event["name"], event["attributes"]) for event in recovered["events"]]
    assert recorded == [("recovered", {"rota.task.crashes": 1})]
    assert linked(recovered) == [span.context.span_id for span in sent.get_finished_spans()[1:] if span.context]


def test_concurrent_tasks_have_separate_spans_and_chains_share_context(
    fleet: RunningFleet, sent: InMemorySpanExporter
) -> None:
    calls = [Call("beside_others", args=[number], queue="many") for number in range(MANY)]
    fleet.client.enqueue_many(calls)
    spans = processed(fleet, MANY, **{"rota.task.name": "beside_others"})
    assert sorted(span["attributes"]["number"] for span in spans) == list(range(MANY))
    assert len({span["context"]["span_id"] for span in spans}) == MANY
    fleet.client.enqueue(chain(Call("note", args=["a"], queue="default"), calls[0]))
    follower = processed(fleet, MANY + 1, **{"rota.task.name": "beside_others"})[-1]
    [note] = processed(fleet, 1, **{"rota.task.name": "note"})
    many, both = (span.context.span_id for span in sent.get_finished_spans() if span.context)
    assert {linked(span)[0] for span in spans} == {many}
    assert linked(note) == linked(follower) == [both]
