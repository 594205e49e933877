"""The spans of enqueues and attempts in applications that enable OpenTelemetry."""

import asyncio
import contextvars
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rota
from rota.client.blocking.client import Client
from rota.client.preparation import prepare
from rota.contrib.opentelemetry import instrument, uninstrument
from rota.tasks.hooks import default_hooks
from rota.tasks.registry import default_registry
from rota.testing import eager
from support.spans import recorded_spans


@rota.task(name="otel_double", queue="traced", result_ttl=60)
def double(number: int) -> int:
    return number * 2


@rota.task(name="otel_fails", queue="traced", retries=1, base=0)
def fails() -> None:
    if rota.current_task().attempt == 1:
        raise ConnectionError("no")


@rota.task(name="otel_again", queue="traced", retries=1)
def again() -> None:
    if rota.current_task().attempt == 1:
        raise rota.Retry(delay=0)


@rota.task(name="otel_outer", queue="traced")
def outer() -> None:
    double.enqueue(1)


@rota.task(name="otel_fetch", queue="traced")
async def fetch() -> None:
    await asyncio.sleep(0)
    trace.get_current_span().set_attribute("seen", True)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    with recorded_spans() as exporter:
        yield exporter


@pytest.fixture
def traced(spans: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    with eager(retries=True):
        yield spans


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def test_enqueue_and_attempt_spans_are_linked_and_follow_the_conventions(
    traced: InMemorySpanExporter,
) -> None:
    handle = double.enqueue(7)
    [sent], [processed] = named(traced, "send traced"), named(traced, "process traced")
    both = {
        "messaging.system": "rota",
        "messaging.destination.name": "traced",
        "messaging.message.id": handle.id,
        "rota.task.name": "otel_double",
    }
    send = {"messaging.operation.name": "send", "messaging.operation.type": "send"}
    assert (sent.kind, sent.attributes) == (trace.SpanKind.PRODUCER, both | send)
    attributes = dict(processed.attributes or {})
    assert attributes.pop("rota.task.lag_seconds") is not None
    process = {"messaging.operation.name": "process", "messaging.operation.type": "process"}
    assert attributes == both | process | {"rota.task.kind": "immediate", "rota.task.attempt": 1}
    assert (processed.kind, processed.parent, linked(processed)) == (trace.SpanKind.CONSUMER, None, [id_of(sent)])


def test_with_as_children_attempts_continue_the_trace_of_their_enqueue() -> None:
    with recorded_spans(as_children=True) as traced, eager():
        double.enqueue(7)
    [sent], [processed] = named(traced, "send traced"), named(traced, "process traced")
    assert processed.parent is not None
    assert (processed.parent.span_id, linked(processed)) == (id_of(sent), [])


def test_enqueues_of_a_task_belong_to_the_trace_of_its_attempt(traced: InMemorySpanExporter) -> None:
    outer.enqueue()
    inner_sent, outer_sent = named(traced, "send traced")
    outermost, inner = named(traced, "process traced")
    assert inner_sent.parent is not None
    assert inner_sent.parent.span_id == id_of(outermost)
    assert (linked(inner), linked(outermost)) == ([id_of(inner_sent)], [id_of(outer_sent)])


def test_a_failed_attempt_and_its_retry_link_to_the_same_enqueue(
    traced: InMemorySpanExporter,
) -> None:
    fails.enqueue()
    [sent], [first, second] = named(traced, "send traced"), named(traced, "process traced")
    assert (first.status.status_code, (first.attributes or {})["error.type"]) == (
        trace.StatusCode.ERROR,
        "ConnectionError",
    )
    assert [event.name for event in first.events] == ["exception"]
    assert second.status.status_code is trace.StatusCode.UNSET
    assert [(event.name, dict(event.attributes or {})) for event in second.events] == [
        ("retry", {"rota.task.attempt": 2})
    ]
    assert linked(first) == linked(second) == [id_of(sent)]


def test_the_span_of_a_requested_retry_is_not_marked_as_failed(traced: InMemorySpanExporter) -> None:
    again.enqueue()
    first, _ = named(traced, "process traced")
    assert (first.status.status_code, [event.name for event in first.events]) == (trace.StatusCode.UNSET, ["retry"])


def test_a_coroutine_task_runs_within_the_span_of_its_attempt(traced: InMemorySpanExporter) -> None:
    fetch.enqueue()
    [processed] = named(traced, "process traced")
    assert (processed.attributes or {})["seen"] is True


def test_enqueue_many_makes_one_span_that_all_attempts_link_to(traced: InMemorySpanExporter) -> None:
    rota.enqueue_many(double.call(number) for number in range(3))
    [sent] = named(traced, "send traced")
    assert (sent.attributes or {})["messaging.batch.message_count"] == 3
    assert [linked(each) for each in named(traced, "process traced")] == [[id_of(sent)]] * 3


def test_all_tasks_of_a_chain_or_group_link_to_its_enqueue(traced: InMemorySpanExporter) -> None:
    rota.chain(double.call(1), fetch.call()).enqueue()
    rota.group([double.call(1), double.call(2)], then=fetch.call()).enqueue()
    chain, group = named(traced, "send traced")
    assert [linked(each) for each in named(traced, "process traced")] == [[id_of(chain)]] * 2 + [[id_of(group)]] * 3


def test_concurrent_async_enqueues_have_separate_spans(spans: InMemorySpanExporter) -> None:
    async def enqueue_some() -> None:
        async with rota.AsyncClient("redis://no-server.invalid") as client:
            await asyncio.gather(*(client.enqueue(double.call(number)) for number in range(2)))

    with eager():
        asyncio.run(enqueue_some())
    sent = {id_of(span) for span in named(spans, "send traced")}
    assert {linked(span)[0] for span in named(spans, "process traced")} == sent
    assert len(sent) == 2


def test_a_failed_enqueue_marks_its_span_as_failed(spans: InMemorySpanExporter) -> None:
    with Client("redis://no-server.invalid", timeout_seconds=0.1) as client, pytest.raises(rota.Unavailable):
        client.enqueue("unheard", queue="traced")
    [sent] = named(spans, "send traced")
    assert (sent.status.status_code, (sent.attributes or {})["error.type"]) == (trace.StatusCode.ERROR, "Unavailable")


@pytest.mark.parametrize(
    "carried",
    [
        {"traceparent": "00-zz-zz-01"},
        {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa", "tracestate": "\x1b[2J,=,="},
        {"tracestate": "a=1", "baggage": "%zz=\udcff;;;"},
    ],
)
def test_an_invalid_trace_context_does_not_stop_the_attempt(
    spans: InMemorySpanExporter, carried: dict[str, str]
) -> None:
    task = rota.CurrentTask("id", "name", "q", "immediate", 1, 0, datetime.now(UTC), 0.0, carried=carried)
    with default_hooks.wrapped(task):
        pass
    [processed] = named(spans, "process q")
    assert (processed.parent, linked(processed), len(task.trace_id)) == (None, [], 32)


def test_uninstrument_removes_all_wrappers_and_trace_contexts() -> None:
    before, around = Client.enqueue, list(default_hooks.around)
    instrument()
    assert Client.enqueue is not before
    assert default_hooks.around != around
    uninstrument()
    assert Client.enqueue is before
    assert default_hooks.around == around
    body = contextvars.copy_context().run(prepare, double.call(1), default_registry, 256).body
    assert len(json.loads(body)) == 4
