"""Tracing: spans for enqueues and attempts, which follow OpenTelemetry's semantic conventions for messaging.

`instrument` wraps the client methods that enqueue, and adds an `around_task` hook for attempts. If it is not called,
tracing costs nothing.
"""

import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, TracerProvider
from opentelemetry.util.types import AttributeValue

from rota import __version__
from rota.client.aio.client import AsyncClient
from rota.client.aio.flows import AsyncFlows
from rota.client.blocking.client import Client
from rota.client.blocking.flows import Flows
from rota.client.consumer.leased_task import ClaimedTask
from rota.client.preparation import carried
from rota.errors import Cancelled, Retry
from rota.protocol.entry import Kind
from rota.tasks.call import Call, CallChain, CallGroup, many
from rota.tasks.hooks import CurrentTask, around_task, default_hooks
from rota.tasks.registry import default_registry

_SYSTEM: Final = {"messaging.system": "rota"}

_Arguments = tuple[Any, ...]
_FoundCalls = tuple[_Arguments, Sequence[Call[Any]]]
"""The arguments of a method, with iterators replaced by lists, and the calls among them if they are known."""
_FindCalls = Callable[[_Arguments, dict[str, Any]], _FoundCalls]


@dataclass(slots=True)
class _Instrumentation:
    """The state of the instrumentation: the arguments of `instrument`, and the original methods that it has wrapped, by
    class and name."""

    tracer: Tracer = field(default_factory=trace.NoOpTracer)
    as_children: bool = False
    originals: dict[tuple[type, str], Any] = field(default_factory=dict)


_instrumentation: Final = _Instrumentation()


def instrument(tracer_provider: TracerProvider | None = None, *, as_children: bool = False) -> None:
    """Make a span for each enqueue (`send QUEUE`) and for each attempt (`process QUEUE`) from now on.

    Call it where tasks are declared, both in the application and in its workers. It starts no threads and no span
    exporters. Without a `tracer_provider`, spans go to the global one, even if it is set later, for example in workers
    after the fork.

    The span of an attempt begins a new trace that is linked to the span of its enqueue. With `as_children`, it is a
    child of the span of the enqueue instead. A second call of this function changes the options.
    """
    _instrumentation.tracer = trace.get_tracer("rota", __version__, tracer_provider)
    _instrumentation.as_children = as_children
    around_task(_around_attempt)
    for owner, name, calls_in in _SENDING:
        original = _instrumentation.originals.setdefault((owner, name), getattr(owner, name))
        setattr(owner, name, _traced(original, calls_in))


def uninstrument() -> None:
    """Undo `instrument`."""
    if _around_attempt in default_hooks.around:
        default_hooks.around.remove(_around_attempt)
    for (owner, name), original in _instrumentation.originals.items():
        setattr(owner, name, original)
    _instrumentation.originals.clear()


# Attempts


@contextmanager
def processing(task: CurrentTask | ClaimedTask) -> Iterator[Span]:
    """Make a span for a block in which a task is processed. Workers do this automatically. Call it in programs with a
    consumer, as in `with task, processing(task):`. An exception from the block marks the span as failed and is raised
    again."""
    sent = _context_in(task.carried)
    producer = trace.get_current_span(sent).get_span_context()
    is_child = _instrumentation.as_children
    with _instrumentation.tracer.start_as_current_span(
        f"process {task.queue}",
        sent if is_child else trace.set_span_in_context(trace.INVALID_SPAN, sent),
        SpanKind.CONSUMER,
        _of_attempt(task),
        [Link(producer)] if producer.is_valid and not is_child else None,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        _add_recovery_event(span, task)
        try:
            yield span
        except BaseException as error:
            _record_failure(span, error)
            raise


def _context_in(texts: Mapping[str, str]) -> Context:
    try:
        return propagate.extract(texts)
    except ValueError:  # JSON text may contain half of a surrogate pair, which propagators cannot process
        return Context()


def _around_attempt(task: CurrentTask) -> Generator[None, None, None]:
    with processing(task) as span:
        context = span.get_span_context()
        if context.is_valid:
            task.trace_id = trace.format_trace_id(context.trace_id)
        yield


def _of_attempt(task: CurrentTask | ClaimedTask) -> dict[str, AttributeValue]:
    return _operation("process", task.queue) | {
        "messaging.message.id": task.id,
        "rota.task.name": task.name,
        "rota.task.kind": task.kind,
        "rota.task.attempt": task.attempt,
        "rota.task.lag_seconds": task.lag_seconds,
    }


def _add_recovery_event(span: Span, task: CurrentTask | ClaimedTask) -> None:
    """Add an event to the span if the task was recovered from a dead worker, or is being retried."""
    if task.kind == Kind.RECOVERED.label:
        span.add_event("recovered", {"rota.task.crashes": task.crashes})
    elif task.kind == Kind.RETRY.label:
        span.add_event("retry", {"rota.task.attempt": task.attempt})


def _record_failure(span: Span, error: BaseException) -> None:
    # The task or a client has requested this end of the attempt, so it is not a failure.
    if isinstance(error, Retry | Cancelled):
        span.add_event(type(error).__name__.lower(), {"rota.reason": str(error)})
        return
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, str(error))
    span.set_attribute("error.type", type(error).__qualname__)


# Enqueues


def _traced(method: Callable[..., Any], calls_in: _FindCalls) -> Callable[..., Any]:
    @wraps(method)
    def sends(self: Any, *given: Any, **options: Any) -> Any:
        given, calls = calls_in(given, options)
        with _sending(calls) as span:
            return _with_message_id(span, method(self, *given, **options))

    @wraps(method)
    async def sends_async(self: Any, *given: Any, **options: Any) -> Any:
        given, calls = calls_in(given, options)
        with _sending(calls) as span:
            return _with_message_id(span, await method(self, *given, **options))

    return sends_async if inspect.iscoroutinefunction(method) else sends


@contextmanager
def _sending(calls: Sequence[Call[Any]]) -> Iterator[Span]:
    """Make a span for an enqueue. All tasks of the enqueue carry the context of this one span, because a span for each
    task would cost more than enqueueing the task."""
    queues = {_queue_of(call) for call in calls}
    queue = queues.pop() if len(queues) == 1 else ""
    attributes = _operation("send", queue)
    if len(calls) == 1:
        attributes["rota.task.name"] = calls[0].name
    elif calls:
        attributes["messaging.batch.message_count"] = len(calls)
    with _instrumentation.tracer.start_as_current_span(
        f"send {queue}".rstrip(), None, SpanKind.PRODUCER, attributes
    ) as span:
        along: dict[str, str] = {}
        propagate.inject(along)
        token = carried.set(along)
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise
        finally:
            carried.reset(token)


def _with_message_id(span: Span, handle: Any) -> Any:
    if isinstance(task_id := getattr(handle, "id", None), str):
        span.set_attribute("messaging.message.id", task_id)
    return handle


def _operation(name: str, queue: str) -> dict[str, AttributeValue]:
    named = {"messaging.operation.name": name, "messaging.operation.type": name}
    return {**_SYSTEM, **named, **({"messaging.destination.name": queue} if queue else {})}


def _queue_of(call: Call[Any]) -> str:
    declared = None if call.queue else default_registry.get(call.name)
    return call.queue or ("" if declared is None else declared.options.queue)


def _in_one(given: _Arguments, options: dict[str, Any]) -> _FoundCalls:
    match given:
        case [str(name)]:
            return given, [Call(name, queue=options.get("queue"))]
        case [what]:
            return given, _calls_of(what)
        case _:
            return given, ()


def _in_many(given: _Arguments, _options: dict[str, Any]) -> _FoundCalls:
    match given:
        case [calls]:
            there = list(many(calls))
            return (there,), there
        case _:
            return given, ()


def _in_iterator(given: _Arguments, _options: dict[str, Any]) -> _FoundCalls:
    return given, ()


def _calls_of(what: Any) -> list[Call[Any]]:
    match what:
        case Call():
            return [what]
        case CallChain():
            return list(what.calls)
        case CallGroup():
            return [call for member in what.members for call in _calls_of(member)]
        case _:
            return []


_SENDING: Final = (
    (Client, "enqueue", _in_one),
    (Client, "enqueue_many", _in_many),
    (Client, "map", _in_iterator),
    (Flows, "add", _in_iterator),
    (AsyncClient, "enqueue", _in_one),
    (AsyncClient, "enqueue_many", _in_many),
    (AsyncClient, "map", _in_iterator),
    (AsyncFlows, "add", _in_iterator),
)
