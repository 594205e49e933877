"""The numbers in docs/scaling.md match the scaling rule in the code."""

import math
import re
from typing import Final

from rota_supervisor.master.core.scaling_reason import CAUSES
from rota_supervisor.master.core.scaling_rule import (
    LoadWindow,
    NodeLoad,
    PoolInputs,
    PoolScaling,
    QueueBacklog,
    decide,
)
from rota_supervisor.master.core.waiting_times import tail_slots
from support.prose import ROOT

PAGE: Final = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
_ROW: Final = re.compile(r"^\| (?P<name>steady|drain|tail) \| .* \| (?P<workers>\d+) \|$", re.MULTILINE)


def _window(seconds: float) -> LoadWindow:
    """Return a load window of the worked example, which has 100 tasks of 30 ms per second."""
    return LoadWindow(seconds, round(100 * seconds), 3.0 * seconds, 1.0, 0, 0)


def test_the_worked_example_matches_the_rule() -> None:
    node = NodeLoad(
        node="a",
        short=_window(2),
        long=_window(60),
        workers=4,
        starting=0,
        free_slots=0,
        running_seconds=0.0,
        running=4,
        held=0,
        concurrency=1,
        least=2,
        most=16,
        granted=16,
        limited_by="",
        start_seconds=0.5,
        is_blocked=False,
        operator=None,
    )
    queue = QueueBacklog("mail", 1840, 3.0, 4, True, 0, math.inf, 10.0, 0.99)
    _, decision = decide(PoolScaling(), PoolInputs("default", (node,), (queue,)), 0.0)
    rows = {found["name"]: int(found["workers"]) for found in _ROW.finditer(PAGE)}
    assert rows == {"steady": decision.steady, "drain": decision.drain, "tail": decision.tail}
    assert f"pool default 4 -> {decision.wanted}: {decision.reason}" in PAGE
    assert f"in 55.2 / (12 - 3.0) = {decision.drain_seconds:.1f} s" in PAGE


def test_the_cost_of_a_short_objective_on_the_scaling_page_is_correct() -> None:
    words = " ".join(PAGE.split())
    found = re.search(r"tasks of 100 ms needs (\d) workers for an objective of 10 s, and (\d) workers for", words)
    assert found is not None
    assert int(found[1]) == math.ceil(2 / 0.9)
    assert int(found[2]) == tail_slots(2.0, 0.1, 1.0, 0.01, 0.99)


def test_the_scaling_page_lists_a_guard_for_every_cause() -> None:
    guards = PAGE.partition("## Guards")[2].partition("\n## ")[0]
    assert set(re.findall(r"\| `(\w+)` \|$", guards, re.MULTILINE)) == set(CAUSES)
