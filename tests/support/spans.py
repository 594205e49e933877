"""The spans of an instrumented process, kept in memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rota.contrib.opentelemetry import instrument, uninstrument


@contextmanager
def recorded_spans(*, as_children: bool = False) -> Iterator[InMemorySpanExporter]:
    """Instrument Rota for OpenTelemetry during a block of code, and collect the spans in memory."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(provider, as_children=as_children)
    try:
        yield exporter
    finally:
        uninstrument()
        provider.shutdown()
