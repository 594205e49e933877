"""The repository's dashboards: their panels, and their queries as Grafana would send them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.prometheus import Answer, Prometheus

TOP = Path(__file__).parents[2]
FOLDER = TOP / "grafana" / "dashboards"
SCREEN: Final = 26  # the number of grid rows that are visible at 1920 x 1080
STEP_SECONDS: Final = 5
_TIMES: Final = {"window": f"{2 * STEP_SECONDS}s", "step": f"{STEP_SECONDS}s"}


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """A query of a panel or an annotation. `board` is the file of the dashboard. `panel` is the title of the panel or
    the name of the annotation. If `instant` is set, the query is only for the current value.
    """

    board: str
    panel: str
    expr: str
    legend: str
    instant: bool = False

    def filled_in(self, *, window: str, time_range: str, step: str, job: str = ".+") -> str:
        """Return the query with all of Grafana's variables replaced: the times and the job by these arguments, and the
        other variables by a pattern that matches everything.
        """
        times = {"$__rate_interval": window, "$__range": time_range, "$__interval": step}
        expr = self.expr.replace("$job", job)
        for variable, value in (times | dict.fromkeys(("$fleet", "$queue", "$task"), ".+")).items():
            expr = expr.replace(variable, value)
        return expr


def boards() -> dict[str, dict[str, Any]]:
    """Return every dashboard by its file name."""
    return {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all panels that show data, that is, all except row titles."""
    return (panel for panel in board["panels"] if panel["type"] != "row")


def queries(name: str, board: dict[str, Any]) -> Iterator[PanelQuery]:
    """Yield each query of the panels and annotations of a board. `name` is the name of the board's file."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield PanelQuery(name, panel["title"], target["expr"], target["legendFormat"], target.get("instant", False))
    for annotation in board["annotations"]["list"]:
        yield PanelQuery(name, annotation["name"], annotation["expr"], annotation["titleFormat"])


def all_queries() -> list[PanelQuery]:
    """Return the queries of all boards."""
    return [query for name, board in boards().items() for query in queries(name, board)]


def run_query(prometheus: Prometheus, query: PanelQuery, job: str = ".+", seconds: int = 120) -> Answer:
    """Return the data that the panel would show for the last `seconds`, or only the current value if the query is
    instant. The fleets must be scraped every second.
    """
    expr = query.filled_in(**_TIMES, time_range=f"{seconds}s", job=job)
    if query.instant:
        return prometheus.query(expr)
    return prometheus.query_range(expr, seconds=seconds, step_seconds=STEP_SECONDS)
