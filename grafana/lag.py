"""The home dashboard: how late tasks start, which objectives that breaks, and where the lag comes from."""

from collections.abc import Iterable

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from grafana.board import board
from grafana.panels import GREEN, RED, YELLOW, Face, Query, Step, Style, dashed, graph, heatmap, lines_at, stat
from grafana.queries import JOB, QUEUE, WINDOW, burn, growth, quantile, queue_gauge, rate

Panels = Iterable[Builder[Panel]]


def dashboard() -> Dashboard:
    """The whole dashboard."""
    made = board(
        "rota-lag",
        "Rota: lag and objectives",
        "How late tasks start against the time they were meant to start, why, and what that costs.",
    )
    for title, panels in (
        ("Now", (*_objectives_now(), *_queues_now(), *_fleet_now())),
        ("Lag", (_quantiles(), _burn(), _heatmap(), _by_queue())),
        ("Where the lag comes from", (_mean_by_cause(), _p99_by_cause(), _by_kind(), _oldest_ready(), _overdue())),
        ("Tasks", _tasks()),
        ("Workers and restarts", (_workers(), *_losses())),
    ):
        made.with_row(Row(title))
        for panel in panels:
            made.with_panel(panel)
    return made


def _objectives_now() -> Panels:
    worst = quantile(99, "rota_task_lag_seconds", "job", "queue")
    yield stat(
        Face("Worst p99 lag", "Of the selected queues, the highest p99 of start minus due.", "s", 4),
        Query(f"max({worst})", "p99"),
        [Step(1, YELLOW), Step(30, RED)],
    )
    yield stat(
        Face(
            "Error budget left",
            "Over the selected time, of the queue that has spent most: 100 % is untouched, 0 % is spent. "
            "The budget is the share of starts that the lag target lets be late.",
            "percentunit",
            4,
        ),
        Query(f"clamp_min(1 - max({burn('$__range')}), 0)", "left", instant=True),
        [Step(0.25, YELLOW), Step(0.5, GREEN)],
        first=RED,
    )


def _queues_now() -> Panels:
    yield stat(
        Face(
            "Oldest ready task",
            "How long the longest waiting task has stood in a lane. A queue that starves shows here, and nowhere in "
            "the lag: lag is counted when a task starts.",
            "s",
            4,
        ),
        Query(f"max({queue_gauge('rota_queue_oldest_ready_age_seconds')})", "age"),
        [Step(10, YELLOW), Step(60, RED)],
    )
    yield stat(
        Face("Overdue tasks", "Due, and not yet moved to a lane by a poller. Expected: none.", "short", 4),
        Query(f"sum({queue_gauge('rota_queue_overdue_tasks')})", "overdue"),
        [Step(1, YELLOW), Step(100, RED)],
    )


def _fleet_now() -> Panels:
    yield stat(
        Face("Workers running", "Over all masters of the job.", "short", 4),
        Query(f'sum(rota_workers{{{JOB}, state="running"}})', "running"),
        [Step(1, GREEN)],
        first=RED,
    )
    yield stat(
        Face("Redis reached", "1 while every master reaches Redis, 0 when one does not.", "short", 4),
        Query(f"min(rota_redis_up{{{JOB}}})", "reached"),
        [Step(1, GREEN)],
        first=RED,
    )


def _quantiles() -> Builder[Panel]:
    face = Face(
        "Lag: p50, p95, p99",
        "Start minus due over all selected queues; dashed the strictest objective of them.",
        "s",
        12,
    )
    lines = [Query(quantile(percent, "rota_task_lag_seconds"), f"p{percent}") for percent in (50, 95, 99)]
    objective = Query(f"min(rota_queue_lag_objective_seconds{{{QUEUE}}})", "objective")
    return dashed(graph(face, *lines, objective, style=Style.LOGARITHMIC), "objective", RED)


def _burn() -> Builder[Panel]:
    panel = graph(
        Face(
            "Burn by queue",
            "How many times faster than the objective allows the error budget is being spent. The lines are the burns "
            "at which RotaLagBurn3d, 1d, 6h and 1h speak up once they last. Queues in which nothing started have none.",
            "short",
            12,
        ),
        Query(burn(WINDOW), "{{queue}}"),
    )
    return lines_at(panel, Step(1, YELLOW), Step(3, "orange"), Step(6, RED), Step(14.4, "dark-red"))


def _heatmap() -> Builder[Panel]:
    return heatmap(
        Face("Lag of all starts", "How many starts fell into each bucket of lag.", "s", 12),
        Query(f"sum by (le) (increase(rota_task_lag_seconds_bucket{{{QUEUE}}}[{WINDOW}]))", "{{le}}"),
    )


def _by_queue() -> Builder[Panel]:
    return graph(
        Face("p99 lag by queue", "Start minus due of each selected queue.", "s", 12),
        Query(quantile(99, "rota_task_lag_seconds", "job", "queue"), "{{queue}}"),
        style=Style.LOGARITHMIC,
    )


def _mean_by_cause() -> Builder[Panel]:
    starts = rate("rota_task_lag_seconds_count")
    return graph(
        Face(
            "Mean lag by cause",
            "Promotion lag (due to ready: the pollers) and queue wait (ready to start: the workers), each over all "
            "starts, so that the two add up to the mean lag.",
            "s",
            12,
        ),
        Query(f"{rate('rota_promotion_lag_seconds_sum')} / ({starts} > 0)", "promotion lag"),
        Query(f"{rate('rota_queue_wait_seconds_sum')} / ({starts} > 0)", "queue wait"),
        style=Style.STACKED,
    )


def _p99_by_cause() -> Builder[Panel]:
    return graph(
        Face(
            "p99 of each cause",
            "Promotion lag is observed of tasks that waited for a due time; queue wait of all.",
            "s",
            12,
        ),
        Query(quantile(99, "rota_promotion_lag_seconds"), "promotion lag"),
        Query(quantile(99, "rota_queue_wait_seconds"), "queue wait"),
        style=Style.LOGARITHMIC,
    )


def _by_kind() -> Builder[Panel]:
    return graph(
        Face(
            "p99 lag by kind",
            "Immediate, delayed, retry, periodic. An immediate task is due when it is enqueued.",
            "s",
            8,
        ),
        Query(quantile(99, "rota_task_lag_seconds", "kind"), "{{kind}}"),
        style=Style.LOGARITHMIC,
    )


def _oldest_ready() -> Builder[Panel]:
    panel = graph(
        Face(
            "Oldest ready task by queue",
            "How long the first task of the lanes has been ready. Above the line RotaQueueStalled speaks up when "
            "nothing is taken from the queue.",
            "s",
            8,
        ),
        Query(queue_gauge("rota_queue_oldest_ready_age_seconds"), "{{queue}}"),
    )
    return lines_at(panel, Step(60, RED))


def _overdue() -> Builder[Panel]:
    panel = graph(
        Face(
            "Oldest overdue task by queue",
            "How long ago the first task not yet promoted was due. Above the line RotaPollerBehind speaks up.",
            "s",
            8,
        ),
        Query(queue_gauge("rota_queue_oldest_overdue_age_seconds"), "{{queue}}"),
    )
    return lines_at(panel, Step(10, RED))


def _tasks() -> Panels:
    yield graph(
        Face("Ready tasks by queue", "Tasks in both lanes of each queue.", "short", 8),
        Query(queue_gauge("rota_queue_ready_tasks"), "{{queue}}"),
    )
    yield graph(
        Face("Attempts by outcome", "Attempts ended in a second.", "ops", 8),
        Query(f"sum by (outcome) (rate(rota_tasks_processed_total{{{QUEUE}}}[{WINDOW}])) > 0", "{{outcome}}"),
        style=Style.STACKED,
    )
    yield graph(
        Face(
            "Dead tasks by queue",
            "Tasks set aside as dead that nobody has revived or purged yet.",
            "short",
            8,
        ),
        Query(queue_gauge("rota_queue_dead_tasks"), "{{queue}}"),
    )


def _workers() -> Builder[Panel]:
    panel = graph(
        Face("Workers by state", "Over all masters of the job, and the number that was asked for.", "short", 8),
        Query(f"sum by (state) (rota_workers{{{JOB}}}) > 0", "{{state}}"),
        Query(f"sum(rota_workers_desired{{{JOB}}})", "desired"),
        style=Style.STACKED,
    )
    return dashed(panel, "desired", RED)


def _losses() -> Panels:
    yield graph(
        Face("Restarts", "Processes replaced, by role and reason.", "short", 8),
        Query(growth("rota_process_restarts_total", JOB, "role", "reason"), "{{role}}: {{reason}}"),
        style=Style.BARS,
    )
    yield graph(
        Face(
            "Tasks recovered",
            "Given back to their lane for a worker that died: child_exit by its master at once, lease_expired by a "
            "poller when a whole node was lost.",
            "short",
            8,
        ),
        Query(growth("rota_tasks_recovered_total", QUEUE, "queue", "reason"), "{{queue}}: {{reason}}"),
        style=Style.BARS,
    )
