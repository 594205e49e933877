"""Queues and fairness: what waits, where it comes from, whether it is worked off, and who gets which share."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from grafana.board import Panels, board, with_rows
from grafana.panels import GREEN, RED, YELLOW, Face, Query, Step, Style, graph, lines_at, stat
from grafana.queries import (
    BY_FLEET,
    BY_QUEUE,
    FLEET,
    QUEUE,
    WINDOW,
    called,
    counted_by_name,
    events,
    fleet_gauge,
    queue_gauge,
    rate,
    seconds_to_drain,
    share_of_claims,
)

UNSERVED = f"{queue_gauge('rota_queue_ready_tasks')} > 0 unless on ({BY_QUEUE}) {queue_gauge('rota_queue_served')} > 0"


def dashboard() -> Dashboard:
    """The whole dashboard."""
    made = board(
        "rota-queues",
        "Rota: queues and fairness",
        "What waits in each queue, whether it is being worked off, who may claim it, and who gets which share.",
        ("job", "fleet", "queue"),
    )
    return with_rows(
        made,
        {
            "Now": (*_backlog_now(), *_shut_now()),
            "What waits": (*_ready(), *_elsewhere()),
            "In and out": _flow(),
            "Fairness: choose the queues of one tier": _fairness(),
            "Open, and served": _shut(),
            "Where tasks come from and go to": (*_producers(), *_takers()),
        },
    )


def _backlog_now() -> Panels:
    yield stat(
        Face(
            "Longest to drain",
            "The open queue whose ready tasks need longest at the pace of now, if nothing more came: a day stands for "
            "more, and for queues in which nothing starts.",
            "s",
            6,
        ),
        Query(f"topk(1, {seconds_to_drain()})", called("{{queue}}")),
        [Step(60, YELLOW), Step(3600, RED)],
    )
    yield stat(
        Face("Ready tasks", "Tasks that could start now, in all selected queues.", "short", 4),
        Query(f"sum({queue_gauge('rota_queue_ready_tasks')})", "ready"),
    )


def _shut_now() -> Panels:
    yield stat(
        Face("Nobody serves", "The queue with most tasks of those that no living fleet has in its tiers.", "short", 5),
        Query(f"topk(1, {UNSERVED})", called("{{queue}}")),
        [Step(1, RED)],
    )
    closed = queue_gauge("rota_queue_closed_age_seconds")
    yield stat(
        Face(
            "Closed for longest",
            "The queue from which nobody may claim, as it is paused or its condition keeps tasks waiting, and for how "
            "long.",
            "s",
            5,
        ),
        Query(f"topk(1, {closed} > 0)", called("{{queue}}")),
        [Step(3600, YELLOW)],
    )
    yield stat(
        Face("Dead tasks", "Set aside as dead, and neither revived nor purged yet.", "short", 4),
        Query(f"sum({queue_gauge('rota_queue_dead_tasks')})", "dead"),
        [Step(1, YELLOW)],
    )


def _ready() -> Panels:
    for title, gauge, description in (
        ("Ready tasks by queue", "rota_queue_ready_tasks", "Tasks in both lanes: they could start now."),
        ("In flight by queue", "rota_queue_inflight_tasks", "Tasks claimed by a worker or a consumer and not settled."),
    ):
        yield graph(Face(title, description, "short", 8), Query(queue_gauge(gauge), called("{{queue}}")))
    yield graph(
        Face(
            "Time to drain by queue",
            "Ready tasks over the starts of now, if nothing more came; a day stands for more. Queues of a pattern are "
            "left out, as their starts are counted together, and queues that are closed.",
            "s",
            8,
        ),
        Query(seconds_to_drain(), called("{{queue}}")),
        style=Style.LOGARITHMIC,
    )


def _elsewhere() -> Panels:
    for title, gauge, description in (
        ("Scheduled by queue", "rota_queue_scheduled_tasks", "Tasks that wait for their due time."),
        (
            "Overdue by queue",
            "rota_queue_overdue_tasks",
            "Due, and not yet moved to a lane by a poller. Expected: none.",
        ),
        ("Dead by queue", "rota_queue_dead_tasks", "Set aside as dead, and neither revived nor purged yet."),
    ):
        yield graph(Face(title, description, "short", 8), Query(queue_gauge(gauge), called("{{queue}}")))


def _flow() -> Panels:
    enqueued = f"max by ({BY_QUEUE}) (rate(rota_tasks_enqueued_total{{{QUEUE}}}[{WINDOW}]))"
    ended = rate("rota_tasks_processed_total", f'{QUEUE}, outcome=~"done|dead|cancelled|expired"')
    yield graph(
        Face(
            "Enqueued and ended",
            "Tasks in a second, over all selected queues. Apart for long, tasks pile up.",
            "ops",
            8,
        ),
        Query(f"sum({enqueued})", "enqueued"),
        Query(ended, "ended"),
    )
    yield graph(
        Face("Enqueued by queue", "Tasks accepted in a second.", "ops", 8),
        Query(f"{enqueued} > 0", called("{{queue}}")),
        style=Style.STACKED,
    )
    yield graph(
        Face("Starts by queue", "Attempts started in a second.", "ops", 8),
        Query(f"{rate('rota_task_starts_total', by=BY_QUEUE)} > 0", called("{{queue}}")),
        style=Style.STACKED,
    )


def _fairness() -> Panels:
    weight = queue_gauge("rota_queue_weight")
    due = f"({weight} / on ({BY_FLEET}) group_left () sum by ({BY_FLEET}) ({weight}))"
    yield graph(
        Face("Share of claims", "Of all that was claimed from the selected queues.", "percentunit", 12),
        Query(f"{share_of_claims()} > 0", called("{{queue}}")),
        style=Style.STACKED,
    )
    fair = graph(
        Face(
            "Share of claims against share of weight",
            "1 where a queue gets what its weight says. Only queues in which tasks wait: one that is empty takes less, "
            "and leaves it to others.",
            "short",
            12,
        ),
        Query(
            f"{share_of_claims()} / on ({BY_QUEUE}) {due} "
            f"and on ({BY_QUEUE}) {counted_by_name(queue_gauge('rota_queue_ready_tasks'))} > 0",
            called("{{queue}}"),
        ),
    )
    yield lines_at(fair, Step(1, GREEN))


def _shut() -> Panels:
    closed, paused = (f"{queue_gauge(f'rota_queue_{which}')} > 0" for which in ("closed_age_seconds", "paused"))
    yield graph(
        Face(
            "Closed for",
            "For how long nobody may claim from a queue: it is paused, or its condition keeps tasks waiting.",
            "s",
            8,
        ),
        Query(f"{closed} and on ({BY_QUEUE}) {paused}", called("{{queue}}: paused")),
        Query(f"{closed} unless on ({BY_QUEUE}) {paused}", called("{{queue}}: by its condition")),
    )
    yield graph(
        Face("Tasks that nobody serves", "Of queues that no living fleet has in its tiers.", "short", 8),
        Query(UNSERVED, called("{{queue}}")),
    )
    yield graph(
        Face("Conditions that fail", "Looks at which a condition failed, which keeps its queue closed.", "short", 8),
        Query(events("rota_condition_errors_total", QUEUE, BY_QUEUE), called("{{queue}}")),
        style=Style.BARS,
    )


def _producers() -> Panels:
    yield graph(
        Face(
            "Occurrences of schedules",
            "Enqueued; missed and not made up for; skipped as one had not ended.",
            "short",
            8,
        ),
        Query(
            events("rota_schedule_occurrences_total", FLEET, "job, fleet, schedule, outcome"),
            called("{{schedule}}: {{outcome}}"),
        ),
        style=Style.BARS,
    )
    yield graph(
        Face("Waiting to be adopted", "Items in classic queues, which pollers make tasks of.", "short", 8),
        Query(fleet_gauge("rota_adopt_waiting_items", "job, fleet, source"), called("{{source}}")),
    )
    by_source = "job, fleet, source"
    yield graph(
        Face("Adopted from classic queues", "Items that became tasks in a second, and looks that failed.", "ops", 8),
        Query(rate("rota_adopted_total", FLEET, by_source), called("{{source}}")),
        Query(f"{rate('rota_adopt_errors_total', FLEET, by_source)} > 0", called("{{source}}: failed looks")),
    )


def _takers() -> Panels:
    yield graph(
        Face("Open groups", "Groups of tasks that have not ended.", "short", 8),
        Query(fleet_gauge("rota_groups_open", BY_FLEET), called("open")),
    )
    yield graph(
        Face("Groups that ended", "By what followed. All nodes show the same count.", "ops", 8),
        Query(
            f"max by (job, fleet, outcome) (rate(rota_groups_ended_total{{{FLEET}}}[{WINDOW}])) > 0",
            called("{{outcome}}"),
        ),
        style=Style.STACKED,
    )
    yield graph(
        Face("Consumers", "Programs of their own that take tasks, and the tasks that they hold.", "short", 8),
        Query(fleet_gauge("rota_consumers", BY_FLEET), called("consumers")),
        Query(fleet_gauge("rota_consumer_held_tasks", BY_FLEET), called("tasks held")),
    )
