"""From a call to what Redis takes: everything an enqueue checks and decides before it sends. Pure but for new ids."""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.arguments import check_arguments
from rota.call import Call
from rota.durations import microseconds, positive_seconds, unix_microseconds
from rota.errors import InvalidName, PayloadTooLarge
from rota.options import TaskOptions, Unique, check_queue, check_retries, check_unique
from rota.protocol.body import Body, encode_body
from rota.protocol.names import fault_in_name
from rota.protocol.store import NewTask
from rota.registry import Registry

KIB = 1024
_KEY_HEX_DIGITS = 32


@dataclass(frozen=True, slots=True)
class _Plan:
    """A call with its defaults filled in. `bound` are its arguments as the function takes them."""

    queue: str
    bound: tuple[Sequence[Any], Mapping[str, Any]]
    unique: Unique
    unique_for: float | None


def prepare(call: Call[Any], registry: Registry, max_payload_kb: int) -> NewTask:
    """Check a call and turn it into a NewTask.

    Raises InvalidName, InvalidArguments or PayloadTooLarge; ValueError or TypeError for options at odds.
    """
    require_name("task name", call.name)
    task_id = str(uuid.uuid4()) if call.id is None else require_name("id", call.id)
    check_arguments(call.name, call.args, call.kwargs)
    plan = _fill_in(call, registry)
    body = encode_body(Body(task_id, plan.queue, call.name, list(call.args), dict(call.kwargs), _body_options(call)))
    if len(body) > max_payload_kb * KIB:
        raise PayloadTooLarge(
            f"{call.name}: the task has {len(body):,} bytes, the limit is {max_payload_kb} KiB "
            "(max_payload_kb); store the data elsewhere and pass a reference to it"
        )
    hold_ms = 0 if plan.unique_for is None else max(1, round(plan.unique_for * 1000))
    return NewTask(task_id, plan.queue, body, _due(call), _unique_key(call.name, plan), hold_ms)


def require_name(what: str, text: str) -> str:
    """A task's name, an id or a namespace; `what` is the word for it. Raises InvalidName."""
    fault = fault_in_name(what, text) if isinstance(text, str) else f"{what} must be a string, got {text!r}"
    if fault:
        raise InvalidName(fault)
    return text


def _fill_in(call: Call[Any], registry: Registry) -> _Plan:
    task = registry.get(call.name)
    if task is None:
        if call.queue is None:
            raise InvalidName(
                f'{call.name}: say which queue, as in queue="default": no task of that name is declared in this process'
            )
        return _plan(call, TaskOptions(), (list(call.args), dict(call.kwargs)))
    return _plan(call, task.options, task.bind(call.args, call.kwargs))


def _plan(call: Call[Any], options: TaskOptions, bound: tuple[Sequence[Any], Mapping[str, Any]]) -> _Plan:
    unique = options.unique if call.unique is None else check_unique(call.unique)
    unique_for = options.unique_for
    if call.unique_for is not None:
        if not unique:
            raise ValueError(f"{call.name}: unique_for says how long a task stays unique: give unique=True with it")
        unique_for = positive_seconds(call.unique_for, "unique_for")
    queue = options.queue if call.queue is None else call.queue
    return _Plan(check_queue(queue), bound, unique, unique_for if unique else None)


def _body_options(call: Call[Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if call.retries is not None:
        options["retries"] = check_retries(call.retries)
    if call.expires is not None:
        options["expires"] = positive_seconds(call.expires, "expires")
    return options


def _due(call: Call[Any]) -> str:
    if call.at is not None:
        if call.delay is not None:
            raise ValueError(f"{call.name}: give delay or at, not both")
        at_us = unix_microseconds(call.at, "at")
        return f"@{at_us}" if at_us > 0 else ""
    delay_us = 0 if call.delay is None else microseconds(call.delay, "delay")
    return f"+{delay_us}" if delay_us > 0 else ""


def _unique_key(name: str, plan: _Plan) -> str:
    if not plan.unique:
        return ""
    # Of the bound arguments, so that f(1) and f(x=1) are the same call.
    args, kwargs = plan.bound
    what = plan.unique(*args, **kwargs) if callable(plan.unique) else [args, kwargs]
    check_arguments(f"the unique key of {name}", [what], {})
    text = json.dumps([plan.queue, name, what], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_HEX_DIGITS]
