"""The body of a task: the JSON text that Redis stores under the task's id. Any language can write it.

A body is `[id, queue, name, args]`, optionally with a fifth element: an object with `kwargs` and `options`. Other
fields of that object are kept as `extra`. The legacy form with two elements, `[name, args]`, is also accepted. A
signature may follow the JSON text: see `rota.protocol.signatures`.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from json.scanner import make_scanner
from typing import Any, Final, NoReturn

from rota.protocol.keys import MOST_CHARACTERS, fault_in_name, is_name
from rota.protocol.signatures import without_signature

MAX_DEPTH = 64


class BodyError(ValueError):
    """Raised for a body that cannot be read. The message is the reason, in a form that can be stored in a death
    record."""


@dataclass(slots=True)  # not frozen, because a frozen class would make reading a small body take a third longer
class Body:
    """A task as it was enqueued. `id` and `queue` are None if the producer did not set them."""

    id: str | None
    queue: str | None
    name: str
    args: list[Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


def encode_body(body: Body) -> bytes:
    """Write a body as compact JSON in UTF-8, with the fifth element only if it is not empty.

    Raises ValueError, TypeError or RecursionError if a value cannot be written as JSON; see `rota.tasks.arguments`.
    """
    fields: list[Any] = [body.id, body.queue, body.name, body.args]
    if body.kwargs or body.options or body.extra:
        rest = dict(body.extra)
        if body.kwargs:
            rest["kwargs"] = body.kwargs
        if body.options:
            rest["options"] = body.options
        fields.append(rest)
    return encode_json(fields)


def texts_in(extra: dict[str, Any]) -> dict[str, str]:
    """Return the extra fields of a body whose values are strings, for example the trace context of a tracing
    library."""
    return {name: value for name, value in extra.items() if isinstance(value, str)}


def encode_json(value: Any) -> bytes:
    """Write strict, compact JSON in UTF-8. Raises the same errors as `encode_body`."""
    return "".join(_write(value, 0)).encode()


def decode_body(raw: bytes, max_bytes: int = 0) -> Body:
    """Read a body in the legacy or the full form. `max_bytes` is the maximum size of the body without its signature; 0
    means no limit. The signature is not verified.

    Raises BodyError with the reason if the body cannot be read.
    """
    raw = without_signature(raw)
    if max_bytes and len(raw) > max_bytes:
        raise BodyError(f"the body has {len(raw)} bytes, but the limit is {max_bytes}")
    match _parse(raw):
        case [task_id, queue, name, args]:
            return _check(task_id, queue, name, args, {})
        case [task_id, queue, name, args, rest]:
            return _check(task_id, queue, name, args, rest)
        case [name, args]:
            return _check(None, None, name, args, {})
        case _:
            raise BodyError("the body is not an array [id, queue, name, args] or [name, args]")


def _parse(raw: bytes) -> Any:
    try:
        text = raw.decode()
        try:
            parsed, end = _scan(text, 0)
        except (ValueError, StopIteration):
            end = -1
        # The value is surrounded by white space, or the text is not valid JSON. This parser takes twice as long, but
        # its error describes the fault.
        if end != len(text):
            parsed = json.loads(text, parse_constant=refuse_constant)
    except RecursionError:
        raise BodyError(f"the body is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise BodyError(f"the body is not JSON: {error}") from None
    # A short body, or one with few brackets, cannot be nested deeply, so most bodies need not be checked.
    may_be_deep = len(raw) > 2 * MAX_DEPTH and raw.count(b"[") + raw.count(b"{") > MAX_DEPTH
    if may_be_deep and _is_deeper_than(parsed, MAX_DEPTH):
        raise BodyError(f"the body is nested deeper than {MAX_DEPTH} levels")
    return parsed


def refuse_constant(constant: str) -> NoReturn:
    """Raise ValueError for NaN and infinity. Python's JSON parser calls this function for these constants. Otherwise
    the parser would accept NaN and infinity, which are not valid JSON."""
    raise ValueError(f"{constant} is not a JSON number")


def _writer() -> Callable[[Any, int], Iterable[str]]:
    # A JSONEncoder creates this object on each call of `encode`. Creating it only once halves the time to encode a
    # body.
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, _: encoder.iterencode(value)
    quote = json.encoder.encode_basestring
    made: Callable[[Any, int], Iterable[str]] = make(None, encoder.default, quote, None, ":", ",", False, False, False)
    return made


# Created only once, because `json.dumps` and `json.loads` with options create an encoder or a decoder on each call,
# which takes longer than processing a small body.
_write: Final = _writer()
_scan: Final = make_scanner(json.JSONDecoder(parse_constant=refuse_constant))  # type: ignore[arg-type]  # wrong stub
_is_name: Final = lru_cache(maxsize=256)(is_name)  # a cache pays off, because there are few task names and many bodies


def _is_deeper_than(value: Any, depth: int) -> bool:
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(depth):
        values = [outer.values() if isinstance(outer, dict) else outer for outer in level]
        level = [inner for outer in values for inner in outer if isinstance(inner, list | dict)]
    return bool(level)


def _check(task_id: Any, queue: Any, name: Any, args: Any, rest: Any) -> Body:
    if not isinstance(name, str):
        raise BodyError(f"the task's name is not a string but {_shown(name)}")
    # Check the length first, because the cache would keep a long name.
    if len(name) > MOST_CHARACTERS or not _is_name(name):
        raise BodyError(fault_in_name("task name", name))
    if not isinstance(args, list):
        raise BodyError(f"the arguments of {name} are not an array but {_shown(args)}")
    if not (task_id is None or isinstance(task_id, str)):
        raise BodyError(f"the id is not a string but {_shown(task_id)}")
    if not (queue is None or isinstance(queue, str)):
        raise BodyError(f"the queue is not a string but {_shown(queue)}")
    if not isinstance(rest, dict):
        raise BodyError(f"the fifth element is not an object but {_shown(rest)}")
    if not rest:
        return Body(task_id, queue, name, args, {}, {}, {})
    extra = {key: value for key, value in rest.items() if key not in ("kwargs", "options")}
    return Body(task_id, queue, name, args, _part(rest, "kwargs"), _part(rest, "options"), extra)


def _part(rest: dict[str, Any], key: str) -> dict[str, Any]:
    value = rest.get(key, {})
    if not isinstance(value, dict):
        raise BodyError(f"{key} is not an object but {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    words = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return words.get(type(value), "null" if value is None else "an object")
