"""`rota run --record FILE`: what happened to a master and what it did about it, a line of JSON each, to be replayed.

The first line is the state at the start; a line for each event follows, with the time and the effects.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Protocol, TextIO

import msgspec

from rota_supervisor.config.load import Loaded
from rota_supervisor.master.core.effects import Effect
from rota_supervisor.master.core.events import Event
from rota_supervisor.master.core.state import MasterState


class EventRecorder(Protocol):
    """Whoever keeps what happened."""

    def took(self, event: Event, now: float, effects: list[Effect]) -> None:
        """An event was taken in at that time, and these effects follow."""


class Recording:
    """Writes it to a file."""

    def __init__(self, file: TextIO, state: MasterState, first: Loaded) -> None:
        self._file = file
        self._write(surroundings=state.surroundings, loaded=first, at=state.started_at)

    def took(self, event: Event, now: float, effects: list[Effect]) -> None:
        self._write(event=event, at=now, effects=effects)

    def _write(self, **values: Any) -> None:
        self._file.write(json.dumps(as_json(values)) + "\n")
        self._file.flush()


@contextlib.contextmanager
def recording_to(path: str, state: MasterState, first: Loaded) -> Iterator[EventRecorder | None]:
    """Record to a file for the length of the block; nothing is recorded to ""."""
    if not path:
        yield None
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)  # it holds passwords
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        yield Recording(file, state, first)


def as_json(value: Any) -> Any:
    """A value as JSON has it; whatever JSON does not know as an object with the class and what it is made of."""
    if isinstance(value, Enum):
        return _tagged(value, value.name)
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin-1")}
    if isinstance(value, Mapping):
        return {"items": [[as_json(key), as_json(each)] for key, each in value.items()]}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    parts = _parts_of(value)
    return value if parts is None else _tagged(value, [as_json(each) for each in parts])


def _parts_of(value: Any) -> list[Any] | None:
    """What a value is made of; None for one that JSON knows."""
    if isinstance(value, tuple | frozenset):
        return list(value)
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value):
        return [getattr(value, each.name) for each in dataclasses.fields(value)]
    return None


def _tagged(value: Any, parts: Any) -> dict[str, Any]:
    kind = type(value)
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "parts": parts}
