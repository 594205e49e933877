"""Replays of the files that `rota run --record` writes. The same events must have the same effects."""

import importlib
import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.take import take
from rota_supervisor.master.shell.loop import as_json


def differences(file: Path) -> Iterator[tuple[int, Any, Any]]:
    """Yield each line whose event now has different effects: line number, recorded effects, and current effects."""
    lines = file.read_text(encoding="utf-8").splitlines()
    first = value_of(json.loads(lines[0]))
    state = MasterState.first(first["surroundings"], first["loaded"], first["at"])
    for number, text in enumerate(lines[1:], 2):
        line = value_of(json.loads(text))
        effects = as_json(take(state, line["event"], line["at"]))
        recorded = as_json(line["effects"])
        if effects != recorded:
            yield number, recorded, effects


def value_of(raw: Any) -> Any:
    """Return the Python value of a field that `as_json` wrote into a record file."""
    if isinstance(raw, list):
        return [value_of(each) for each in raw]
    if not isinstance(raw, dict):
        return raw
    if "bytes" in raw:
        return raw["bytes"].encode("latin-1")
    if "items" in raw:
        return {value_of(key): value_of(each) for key, each in raw["items"]}
    module, _, name = raw["class"].partition(":")
    kind: Any = importlib.import_module(module)
    for part in name.split("."):
        kind = getattr(kind, part)
    if isinstance(raw["parts"], str):
        return kind[raw["parts"]] if issubclass(kind, Enum) else kind.fromisoformat(raw["parts"])
    parts = value_of(raw["parts"])
    return kind(parts) if kind in (tuple, frozenset) else kind(*parts)
