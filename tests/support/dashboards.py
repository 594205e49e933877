"""The committed dashboards, as tests look at them: their panels, and their queries as Grafana would send them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.prometheus import Answer, Prometheus

TOP = Path(__file__).parents[2]
FOLDER = TOP / "grafana" / "dashboards"
SCREEN: Final = 26  # rows of the grid that one sees at 1920 x 1080
STEP_SECONDS: Final = 5
_TIMES: Final = {"window": f"{2 * STEP_SECONDS}s", "step": f"{STEP_SECONDS}s"}


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """One query of one panel; for an annotation its name stands for the panel's title. `panel` may stand on two boards,
    `board` is the file of this one. `instant` asks for the value of now alone."""

    board: str
    panel: str
    expr: str
    legend: str
    instant: bool = False

    def filled_in(self, *, window: str, time_range: str, step: str, job: str = ".+") -> str:
        """The query with Grafana's variables replaced; of all but the job everything is chosen."""
        times = {"$__rate_interval": window, "$__range": time_range, "$__interval": step}
        expr = self.expr.replace("$job", job)
        for variable, value in (times | dict.fromkeys(("$fleet", "$queue", "$task"), ".+")).items():
            expr = expr.replace(variable, value)
        return expr


def boards() -> dict[str, dict[str, Any]]:
    """Every dashboard by the name of its file."""
    return {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The panels that show something: all but the titles of rows."""
    return (panel for panel in board["panels"] if panel["type"] != "row")


def queries(name: str, board: dict[str, Any]) -> Iterator[PanelQuery]:
    """Every query of every panel and annotation of the board in the file of that name."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield PanelQuery(name, panel["title"], target["expr"], target["legendFormat"], target.get("instant", False))
    for annotation in board["annotations"]["list"]:
        yield PanelQuery(name, annotation["name"], annotation["expr"], annotation["titleFormat"])


def all_queries() -> list[PanelQuery]:
    """The queries of all boards."""
    return [query for name, board in boards().items() for query in queries(name, board)]


def ask(prometheus: Prometheus, query: PanelQuery, job: str = ".+", seconds: int = 120) -> Answer:
    """What the panel would show, over that time unless it asks for now alone, if fleets are scraped each second."""
    expr = query.filled_in(**_TIMES, time_range=f"{seconds}s", job=job)
    if query.instant:
        return prometheus.query(expr)
    return prometheus.query_range(expr, seconds=seconds, step_seconds=STEP_SECONDS)
