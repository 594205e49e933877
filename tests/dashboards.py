"""The committed dashboards, as tests look at them: their panels, and their queries as Grafana would send them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[1]
FOLDER = TOP / "grafana" / "dashboards"


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """One query of one panel; for an annotation its name stands for the panel's title."""

    panel: str
    expr: str

    def filled_in(self, *, job: str, queue: str, window: str, time_range: str) -> str:
        """The query with Grafana's variables replaced."""
        values = {"$__rate_interval": window, "$__range": time_range, "$job": job, "$queue": queue}
        expr = self.expr
        for variable, value in values.items():
            expr = expr.replace(variable, value)
        return expr


def boards() -> dict[str, dict[str, Any]]:
    """Every dashboard by the name of its file."""
    return {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The panels that show something: all but the titles of rows."""
    return (panel for panel in board["panels"] if panel["type"] != "row")


def queries(board: dict[str, Any]) -> Iterator[PanelQuery]:
    """Every query of every panel and annotation."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield PanelQuery(panel["title"], target["expr"])
    for annotation in board["annotations"]["list"]:
        yield PanelQuery(annotation["name"], annotation["expr"])
