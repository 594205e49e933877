"""The home dashboard: how late tasks start, which objectives that breaks, and where the lag comes from."""

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import DynamicConfigValue, Panel

from grafana import causes
from grafana.board import Panels, board, with_rows
from grafana.panels import (
    GREEN,
    RED,
    YELLOW,
    Face,
    Query,
    Step,
    Style,
    dashed,
    graph,
    heatmap,
    lines_at,
    link,
    stat,
    table,
)
from grafana.queries import (
    BY_QUEUE,
    FLEET,
    QUEUE,
    WINDOW,
    burn,
    called,
    events,
    growth,
    lateness,
    quantile,
    queue_gauge,
    stuck,
)


def dashboard() -> Dashboard:
    """The whole dashboard."""
    made = board(
        "rota-lag",
        "Rota: lag and objectives",
        "How late tasks start against the time they were meant to start, why, and what that costs.",
        ("job", "fleet", "queue"),
    )
    return with_rows(
        made,
        {
            "Now": (*_late_now(), *_why_now(), _quantiles(), _alerts()),
            "Objectives": (_burn(), _late_starts(), _by_queue(), _heatmap(), _worst()),
            "Where the lag comes from": (causes.mean_by_cause(), causes.p99_by_cause(), causes.by_kind()),
            "What has not started": (causes.oldest_ready(), causes.overdue(), causes.clocks()),
        },
    )


def _late_now() -> Panels:
    yield stat(
        Face(
            "Latest queue",
            "The queue that is latest now, in whatever way: a task of it started late within the last minute, has "
            "waited to start, or is due and was not promoted. A queue that nobody may claim from does not wait.",
            "s",
            5,
        ),
        Query(f"topk(1, {lateness()})", called("{{queue}}: {{what}}")),
        [Step(1, YELLOW), Step(30, RED)],
    )
    objective = queue_gauge("rota_queue_lag_objective_seconds")
    yield stat(
        Face(
            "Against its objective",
            "The queue that is latest for its objective: over 100 % it is later than it may be.",
            "percentunit",
            5,
        ),
        Query(f"topk(1, max by ({BY_QUEUE}) ({lateness()}) / on ({BY_QUEUE}) {objective})", called("{{queue}}")),
        [Step(0.5, YELLOW), Step(1, RED)],
    )
    yield stat(
        Face(
            "Error budget left",
            "Over the time shown, of the queue that has spent most: 100 % is untouched, 0 % is spent. "
            "The budget is the share of starts that the lag target lets be late.",
            "percentunit",
            4,
        ),
        Query(f"bottomk(1, clamp_min(1 - {burn('$__range')}, 0))", called("{{queue}}")),
        [Step(0.25, YELLOW), Step(0.5, GREEN)],
        first=RED,
    )


def _why_now() -> Panels:
    yield stat(
        Face(
            "Nothing is claimed",
            "The queue that is open and in which tasks wait, but of which nothing was claimed lately, and for how long "
            "its first task has waited. Lag is silent of it: lag is counted when a task starts.",
            "s",
            4,
        ),
        Query(f"topk(1, {stuck()})", called("{{queue}}")),
        [Step(10, YELLOW), Step(60, RED)],
    )
    running = queue_gauge("rota_queue_oldest_running_age_seconds")
    yield stat(
        Face("Runs for longest", "The queue whose task has been running for longest.", "s", 3),
        Query(f"topk(1, {running} > 0)", called("{{queue}}")),
    )
    yield stat(
        Face("Redis reached", "1 while every master reaches Redis, 0 when one does not.", "short", 3, "no answer"),
        Query(f"min(rota_redis_up{{{FLEET}}})", "reached"),
        [Step(1, GREEN)],
        first=RED,
    )


def _quantiles() -> Builder[Panel]:
    face = Face(
        "Lag: p50, p95, p99",
        "Start minus due over all selected queues; dashed the strictest objective of them. A gap means that nothing "
        "started.",
        "s",
        12,
    )
    lines = [Query(quantile(percent, "rota_task_lag_seconds"), f"p{percent}") for percent in (50, 95, 99)]
    objective = Query(f"min(rota_queue_lag_objective_seconds{{{QUEUE}}})", "objective")
    return dashed(graph(face, *lines, objective, style=Style.LOGARITHMIC), "objective", RED)


def _alerts() -> Builder[Panel]:
    columns = {
        "alertname": "Alert",
        "severity": "Severity",
        "queue": "Queue",
        "instance": "Node",
        "fleet": "Fleet",
        "job": "Job",
    }
    of_these = 'job=~"$job|", fleet=~"$fleet|", queue=~"$queue|"'
    panel = table(
        Face(
            "Alerts that fire",
            "Of the rules in deploy/prometheus, if this Prometheus has loaded them. Each leads to its section of the "
            "runbook.",
            "short",
            12,
        ),
        Query(
            f'count by ({", ".join(columns)}) (ALERTS{{{of_these}, alertname=~"Rota.+", alertstate="firing"}})', "alert"
        ),
        columns,
    )
    runbook = link("What to do about it", "${docs}/runbook.md#:~:text=${__value.raw}")
    return panel.override_by_name("Alert", [DynamicConfigValue("links", [runbook])])


def _burn() -> Builder[Panel]:
    panel = graph(
        Face(
            "Burn by queue",
            "How many times faster than the objective allows the error budget is being spent. The lines are the burns "
            "at which RotaLagBurn3d, 1d, 6h and 1h speak up once they last. Queues in which nothing started have none.",
            "short",
            8,
        ),
        Query(burn(WINDOW), called("{{queue}}")),
    )
    return lines_at(panel, Step(1, YELLOW), Step(3, "orange"), Step(6, RED), Step(14.4, "dark-red"))


def _late_starts() -> Builder[Panel]:
    return graph(
        Face(
            "Starts later than their objective",
            "Each late start is in one bar, so that queues with few tasks show too. What a task's own rate held back "
            "is not among them.",
            "short",
            8,
        ),
        Query(
            events("rota_task_lag_objective_misses_total", f'{QUEUE}, kind!="throttled"', BY_QUEUE),
            called("{{queue}}"),
        ),
        style=Style.BARS,
    )


def _by_queue() -> Builder[Panel]:
    return graph(
        Face("p99 lag by queue", "Start minus due of each selected queue.", "s", 8),
        Query(quantile(99, "rota_task_lag_seconds", "job", "fleet", "queue"), called("{{queue}}")),
        style=Style.LOGARITHMIC,
    )


def _heatmap() -> Builder[Panel]:
    return heatmap(
        Face("Lag of all starts", "How many starts fell into each bucket of lag.", "s", 12),
        Query(growth("rota_task_lag_seconds_bucket", QUEUE, "le"), "{{le}}"),
    )


def _worst() -> Builder[Panel]:
    return graph(
        Face(
            "Worst lag by queue",
            "The highest lag of a start within the last minute: what was made up for between two scrapes shows too.",
            "s",
            12,
        ),
        Query(f"{queue_gauge('rota_task_lag_worst_seconds')} > 0", called("{{queue}}")),
        style=Style.LOGARITHMIC,
    )
