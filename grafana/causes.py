"""The lower rows of the home dashboard: where the lag comes from, and what has not started at all."""

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from grafana.panels import RED, Face, Query, Step, Style, graph, lines_at
from grafana.queries import BY_QUEUE, QUEUE, called, fleet_gauge, quantile, queue_gauge, rate


def mean_by_cause() -> Builder[Panel]:
    lag, promotion, wait = (rate(f"rota_{part}_seconds_sum") for part in ("task_lag", "promotion_lag", "queue_wait"))
    recovered = rate("rota_queue_wait_seconds_sum", f'{QUEUE}, kind="recovered"')
    parts = {
        "promotion lag": promotion,
        "queue wait": rate("rota_queue_wait_seconds_sum", f'{QUEUE}, kind!="recovered"'),
        "wait after a worker died": recovered,
        "held back by its rate": f"clamp_min({lag} - {promotion} - {wait}, 0)",
    }
    starts = rate("rota_task_starts_total")
    return graph(
        Face(
            "Mean lag by cause",
            "Promotion lag (due to ready: the pollers), queue wait (ready to start: the workers), and for how long "
            "tasks were held back by their own rate, each over all starts, so that they add up to the mean lag. What a "
            "dead worker ran waits from when it was given back.",
            "s",
            8,
        ),
        *(Query(f"{part} / ({starts} > 0)", name) for name, part in parts.items()),
        style=Style.STACKED,
    )


def p99_by_cause() -> Builder[Panel]:
    return graph(
        Face(
            "p99 of each cause",
            "Promotion lag is observed of tasks that waited for a due time; queue wait of all.",
            "s",
            8,
        ),
        Query(quantile(99, "rota_promotion_lag_seconds"), "promotion lag"),
        Query(quantile(99, "rota_queue_wait_seconds"), "queue wait"),
        style=Style.LOGARITHMIC,
    )


def by_kind() -> Builder[Panel]:
    return graph(
        Face(
            "p99 lag by kind",
            "Immediate, delayed, retry, periodic; recovered from a worker that died; throttled by a rate. An immediate "
            "task is due when it is enqueued, a recovered one when it is given back.",
            "s",
            8,
        ),
        Query(quantile(99, "rota_task_lag_seconds", "kind"), "{{kind}}"),
        style=Style.LOGARITHMIC,
    )


def oldest_ready() -> Builder[Panel]:
    panel = graph(
        Face(
            "Oldest ready task by queue",
            "How long the first task of the lanes has been ready. Above the line RotaQueueStalled speaks up when "
            "nothing is taken from the queue.",
            "s",
            8,
        ),
        Query(queue_gauge("rota_queue_oldest_ready_age_seconds"), called("{{queue}}")),
    )
    return lines_at(panel, Step(60, RED))


def overdue() -> Builder[Panel]:
    panel = graph(
        Face(
            "Oldest overdue task by queue",
            "How long ago the first task not yet promoted was due. Above the line RotaPollerBehind speaks up.",
            "s",
            8,
        ),
        Query(queue_gauge("rota_queue_oldest_overdue_age_seconds"), called("{{queue}}")),
    )
    return lines_at(panel, Step(10, RED))


def clocks() -> Builder[Panel]:
    return graph(
        Face(
            "Clocks, and starts before their time",
            "Redis time minus the clock of each node: Redis's decides, so that an offset makes no task late. Starts "
            "before the task was due, counted since the masters began, are expected to be none.",
            "s",
            8,
        ),
        Query(fleet_gauge("rota_redis_clock_offset_seconds"), called("{{instance}}")),
        Query(
            f"sum by ({BY_QUEUE}) (rota_task_early_starts_total{{{QUEUE}}}) > 0", called("early starts of {{queue}}")
        ),
    )
