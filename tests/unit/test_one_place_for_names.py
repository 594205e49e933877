"""Each name that people or programs see is defined in one module, and all other modules use the constant."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from rota.telemetry import log_events
from rota.telemetry.metrics import RESTART_REASONS
from rota_supervisor.master.core.reasons import Reason
from support.prose import ROOT

EVENTS: Final = {value for name, value in vars(log_events).items() if name.isupper() and isinstance(value, str)}
MODULES: Final = sorted(path for root in ("workers", "supervisor") for path in (ROOT / root).rglob("*.py"))
OTHERS: Final = [path for path in MODULES if path.stem != "log_events"]


def texts_in(path: Path) -> Iterator[str]:
    """Return the string literals of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_event_names_are_written_only_in_log_events(path: Path) -> None:
    assert not EVENTS.intersection(texts_in(path))


def test_each_reason_of_a_death_is_a_label_of_the_restart_counter() -> None:
    assert {reason.label for reason in Reason} == set(RESTART_REASONS)
