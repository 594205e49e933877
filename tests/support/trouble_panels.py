"""For each trouble, the dashboard panel that shows it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from support.dashboards import PanelQuery, all_queries
from support.prometheus import Answer
from troubles.scene import WORK_QUEUE


@dataclass(frozen=True, slots=True)
class Shown:
    """A dashboard panel that shows a trouble. The trouble is visible if the last value of a series with the labels
    `labels` is between `low` and `high`.
    """

    board: str
    panel: str
    labels: Mapping[str, str]
    low: float
    high: float = float("inf")

    def queries(self) -> list[PanelQuery]:
        return [query for query in all_queries() if (query.board, query.panel) == (f"{self.board}.json", self.panel)]

    def is_in(self, answer: Answer) -> bool:
        return any(
            self.labels.items() <= series["metric"].items() and self.low <= value <= self.high
            for series, value in zip(answer.result, answer.values(), strict=True)
        )


SHOWN: Final[dict[str, Shown]] = {
    "crash_loop": Shown("fleet", "Restarts", {"role": "worker", "reason": "signal"}, 1),
    "hung_task": Shown("tasks", "Longest running task", {"queue": WORK_QUEUE}, 5),
    "failing_tasks": Shown("tasks", "Highest failure rate", {"task": "give_up"}, 0.9, 1),
    "failing_hook": Shown("fleet", "Starts held back", {"role": "worker"}, 1),
    "saturation": Shown("fleet", "Busiest pool", {}, 1, 1),
    "rare_late_queue": Shown("lag", "Starts later than their objective", {"queue": "rare"}, 1),
    "unserved_queue": Shown("queues", "Not served", {"queue": "wrok"}, 5, 5),
    "forgotten_queue": Shown("queues", "Closed for longest", {"queue": WORK_QUEUE}, 5),
    "pollers_stuck": Shown("lag", "Latest queue", {"what": "not promoted"}, 5),
    "redis_away": Shown("fleet", "Redis reachable", {}, 0, 0),
    "node_lost": Shown("fleet", "Nodes that respond", {}, 0.5, 0.5),
    "fleet_absent": Shown("fleet", "Nodes that respond", {}, 0, 0),
    "bad_reload": Shown("fleet", "Last reload", {}, 0, 0),
    "log_blocked": Shown("fleet", "Log lines lost", {}, 1),
}
