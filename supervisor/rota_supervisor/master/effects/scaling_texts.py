"""The text format in which nodes store loads and decisions in Redis. Each text is a JSON array of the fields.

A text that cannot be read is ignored, because a node with another version, or any other program, may have written it.
Additional fields at the end, which a later version may write, are ignored too.
"""

import json
import math
from typing import Any, Final, TypeVar

import msgspec

from rota_supervisor.master.core.scaling_inputs import NodeLoad
from rota_supervisor.master.core.scaling_rule import Decision

_T = TypeVar("_T", Decision, NodeLoad)
_COUNTS: Final = ("workers", "starting", "free_slots", "running", "held", "least", "most", "granted")


def text_of(value: Decision | NodeLoad) -> bytes:
    """Return the text of a load or a decision."""
    return json.dumps(value, separators=(",", ":")).encode()


def decision_in(text: bytes) -> Decision | None:
    """Return the decision that this text contains, or None if the text is not valid."""
    decision = _read(text, Decision)
    return decision if decision is not None and min([decision.wanted, *decision.shares.values()]) >= 0 else None


def load_in(text: bytes, node: str) -> NodeLoad | None:
    """Return the load that `node` has stored as this text, or None if the text is not valid."""
    load = _read(text, NodeLoad)
    if load is None or load.concurrency < 1 or any(getattr(load, name) < 0 for name in _COUNTS):
        return None
    return load._replace(node=node)


def _read(text: bytes, kind: type[_T]) -> _T | None:
    try:
        parts = json.loads(text, parse_constant=_constant)
        return msgspec.convert(parts[: len(kind._fields)], kind)
    except (ValueError, TypeError, LookupError, RecursionError, msgspec.ValidationError):
        return None


def _constant(name: str) -> Any:
    if name == "Infinity":
        return math.inf
    raise ValueError(name)
