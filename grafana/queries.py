"""PromQL that more than one panel is made of.

Gauges of queues are read from Redis, so every master shows the same one: `max by (job, queue)`. What a master
counted itself is summed.
"""

from typing import Final

JOB: Final = 'job=~"$job"'
QUEUE: Final = 'job=~"$job", queue=~"$queue"'
WINDOW: Final = "$__rate_interval"


def quantile(percent: int, histogram: str, *by: str) -> str:
    """The quantile of a histogram of the selected queues; what has no observations is left out rather than NaN."""
    labels = ", ".join([*by, "le"])
    return (
        f"histogram_quantile({percent / 100}, sum by ({labels}) (rate({histogram}_bucket{{{QUEUE}}}[{WINDOW}]))) >= 0"
    )


def rate(counter: str) -> str:
    """How much a counter grows in a second, summed over all that is selected."""
    return f"sum(rate({counter}{{{QUEUE}}}[{WINDOW}]))"


def growth(counter: str, labels: str, *by: str) -> str:
    """How much a counter grew from one point to the next, by those labels; what did not grow is left out."""
    return f"sum by ({', '.join(by)}) (increase({counter}{{{labels}}}[{WINDOW}])) > 0"


def queue_gauge(gauge: str) -> str:
    """A gauge of each selected queue."""
    return f"max by (job, queue) ({gauge}{{{QUEUE}}})"


def burn(window: str) -> str:
    """How many times faster than the objective allows each queue spends its error budget."""
    misses = f"sum by (job, queue) (rate(rota_task_lag_objective_misses_total{{{QUEUE}}}[{window}]))"
    starts = f"sum by (job, queue) (rate(rota_task_lag_seconds_count{{{QUEUE}}}[{window}]))"
    return f"{misses} / ({starts} > 0) / (1 - {queue_gauge('rota_queue_lag_target_ratio')})"
