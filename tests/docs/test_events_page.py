"""docs/events.md matches rota/telemetry/log_events.py."""

import re

from rota.telemetry import log_events
from support.prose import ROOT

_ROW = re.compile(r"^\| `([a-z_]+\.[a-z_]+)` \|", re.MULTILINE)


def _constants() -> dict[str, str]:
    return {name: value for name, value in vars(log_events).items() if name.isupper() and isinstance(value, str)}


def test_the_events_page_lists_every_log_event_exactly_once() -> None:
    rows = _ROW.findall((ROOT / "docs/events.md").read_text(encoding="utf-8"))
    assert sorted(rows) == sorted(_constants().values())


def test_constants_are_named_after_their_events() -> None:
    assert {name: value.replace(".", "_").upper() for name, value in _constants().items()} == {
        name: name for name in _constants()
    }
