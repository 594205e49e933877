"""Write the tables of docs/metrics.md from the declarations of all metrics: `make docs`. The text around the tables is
written by hand."""

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from rota.telemetry import metrics as m
from rota.telemetry.metrics import (
    CounterDefinition,
    Definition,
    GaugeDefinition,
    HistogramDefinition,
    PeakDefinition,
)

PAGE: Final = Path(__file__).resolve().parents[1] / "metrics.md"
HEAD: Final = "| name | type | labels | meaning | written by |\n|---|---|---|---|---|\n"
_TYPES: Final = {
    CounterDefinition: "counter",
    GaugeDefinition: "gauge",
    HistogramDefinition: "histogram",
    PeakDefinition: "gauge",
}
# The first metric of each table. A table has all metrics from there up to the first one of the next table.
_BEGINS: Final[Mapping[str, Definition]] = {
    "How late": m.TASK_LAG,
    "Queues": m.QUEUE_READY,
    "Tasks": m.TASK_RUNTIME,
    "The fleet": m.WORKERS,
    "Configuration and Redis": m.CONFIG_LAST_RELOAD_SUCCESSFUL,
    "About itself": m.BUILD_INFO,
}


def page(text: str) -> str:
    """Return the page with tables made from the declarations. Raises ValueError if a section has no table."""
    begins = [m.ALL.index(first) for first in _BEGINS.values()]
    for heading, (begin, end) in zip(_BEGINS, pairwise([*begins, len(m.ALL)]), strict=True):
        rows = "".join(map(_row, m.ALL[begin:end]))
        table = re.compile(rf"(^## {heading}\n(?:(?!## ).*\n)*?{re.escape(HEAD)})(?:\|.*\n?)*", re.MULTILINE)
        section = table.search(text)
        if section is None:
            raise ValueError(f"docs/metrics.md has no table under the heading {heading!r}")
        text = text[: section.start()] + section[1] + rows + text[section.end() :]
    return text


def _row(definition: Definition) -> str:
    labels = " ".join(f"`{label}`" for label in definition.labels)
    cells = (f"`{definition.name}`", _TYPES[type(definition)], labels, definition.help, ", ".join(definition.writers))
    return f"| {' | '.join(cells)} |\n".replace("|  |", "| |")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
