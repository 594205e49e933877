"""`rota run --record FILE`: what happened to a master and what it did about it, a line of JSON each, to be replayed.

The first line is the state at the start; a line for each event follows, with the time and the effects.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

import msgspec

from rota_supervisor.config.loader import Loaded
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.shell.loop import Recorder


@contextlib.contextmanager
def recording_to(path: str, state: MasterState, first: Loaded) -> Iterator[Recorder]:
    """Record to a file for the length of the block."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)  # it holds passwords
    with os.fdopen(descriptor, "w", buffering=1, encoding="utf-8") as file:  # each line is written at once

        def write(**values: Any) -> None:
            file.write(json.dumps(as_json(values)) + "\n")

        write(surroundings=state.surroundings, loaded=first, at=state.started_at)
        yield lambda event, now, effects: write(event=event, at=now, effects=effects)


def as_json(value: Any) -> Any:
    """A value as JSON has it; whatever JSON does not know as an object with the class and what it is made of."""
    match value:
        case Enum() | datetime():
            return _tagged(value, value.name if isinstance(value, Enum) else value.isoformat())
        case bytes():
            return {"bytes": value.decode("latin-1")}
        case Mapping():
            return {"items": [[as_json(key), as_json(each)] for key, each in value.items()]}
        case list():
            return [as_json(each) for each in value]
        case tuple() | frozenset():
            parts = list(value)
        case msgspec.Struct():
            parts = [getattr(value, name) for name in value.__struct_fields__]
        case _ if dataclasses.is_dataclass(value):
            parts = [getattr(value, each.name) for each in dataclasses.fields(value)]
        case _:
            return value
    return _tagged(value, [as_json(each) for each in parts])


def _tagged(value: Any, parts: Any) -> dict[str, Any]:
    kind = type(value)
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "parts": parts}
