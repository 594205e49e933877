"""The reason for a scaling decision, as one line for people."""

import math
from collections.abc import Mapping
from typing import Final

from rota_supervisor.master.core.scaling_demand import Demand

CAUSES: Final[Mapping[str, str]] = {
    "failing": "most first attempts fail",
    "blocked": "an event loop is blocked",
    "no_gain": "the last workers that were added gained too little",
    "turn": "the pool shrank less than a minute ago",
    "operator": "an operator has set the number of workers",
    "budget": "the budget of the node is used up",
    "cpu": "the CPU is busy",
    "memory": "no memory is left for more workers",
    "range": "the range permits no more workers",
}
"""The causes that can keep a pool from growing, each with the text that appears in the reason."""
GUARDS: Final = frozenset(("failing", "blocked", "no_gain", "turn"))
"""The causes against which more workers would not help, not even on other nodes. Against all other causes, more nodes
would help."""
_WHOLE_SECONDS: Final = 10  # longer times are shown as whole seconds


def reason_of(demand: Demand, workers: int, causes: tuple[str, ...]) -> str:
    """Return a line for people with the measurements that led to a number of workers. For example, "620 per second, 12
    ms each: 7.4 busy" means that 620 tasks per second, which take 12 ms each, keep 7.4 task slots busy."""
    limits = "".join(f"; not more, because {CAUSES[cause]}" for cause in causes[:1])
    return f"{_backlog(demand, workers) or _load(demand)}{limits}"


def _load(demand: Demand) -> str:
    if not demand.load and not demand.held:
        return "nothing to do"
    held = f" and {demand.held} held" if demand.held else ""
    return f"{demand.arrivals:,.3g} per second, {_each(demand)}: {demand.load:,.1f} busy{held}"


def _backlog(demand: Demand, workers: int) -> str:
    if not demand.backlogs:
        return ""
    worst = max(
        (queue for queue, _, _ in demand.backlogs), key=lambda each: each.oldest_seconds / each.objective_seconds
    )
    return (
        f"{demand.waiting:,.0f} ready, {_each(demand)}, oldest {_span(worst.oldest_seconds)}, "
        f"objective {_span(worst.objective_seconds)}{_end(demand, workers)}"
    )


def _end(demand: Demand, workers: int) -> str:
    """Return the end of the sentence about a backlog: when the backlog will be drained. Return "" if the run time of
    its tasks is not known."""
    if not demand.task_seconds:
        return ""
    seconds = demand.drain_seconds(workers)
    return f": drained in {_span(seconds)}" if seconds < math.inf else ": not drained"


def _each(demand: Demand) -> str:
    return f"{_span(demand.task_seconds)} each" if demand.task_seconds else "run time unknown"


def _span(seconds: float) -> str:
    """Return a time with two or three digits, for example "12 ms", "4.2 s" or "1,840 s"."""
    if round(seconds, 3) < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.2g} s" if round(seconds, 1) < _WHOLE_SECONDS else f"{seconds:,.0f} s"
