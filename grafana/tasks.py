"""Tasks: which fail, die, run for long, or take the cores."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from grafana.board import Panels, board, with_rows
from grafana.panels import GREEN, RED, YELLOW, Face, Query, Step, Style, graph, stat
from grafana.queries import (
    BY_QUEUE,
    BY_TASK,
    QUEUE,
    TASK,
    WINDOW,
    called,
    events,
    failing,
    quantile,
    queue_gauge,
    rate,
)

NAME = called("{{task}} in {{queue}}")
DONE = f'{TASK}, outcome="done"'


def dashboard() -> Dashboard:
    """The whole dashboard."""
    made = board(
        "rota-tasks",
        "Rota: tasks",
        "Which tasks fail, die, run for long, or take the cores.",
        ("job", "fleet", "queue", "task"),
    )
    return with_rows(
        made,
        {
            "Now": (*_failing_now(), *_running_now()),
            "Attempts": (*_throughput(), *_failures()),
            "Run time": (*_runtimes(), *_cores()),
            "Held up": _held_up(),
        },
    )


def _failing_now() -> Panels:
    yield stat(
        Face(
            "Fails most",
            "The task with the highest share of failures among its attempts, those that are tried again included.",
            "percentunit",
            6,
        ),
        Query(f"topk(1, {failing()} > 0)", NAME),
        [Step(0.01, YELLOW), Step(0.1, RED)],
    )
    yield stat(
        Face("Died", "Tasks set aside as dead within the time shown.", "short", 4),
        Query(f"round(sum(increase(rota_tasks_dead_total{{{TASK}}}[$__range])))", "dead"),
        [Step(1, YELLOW)],
    )


def _running_now() -> Panels:
    yield stat(
        Face(
            "Runs for longest",
            "The queue whose task has been running for longest. The status page of the node says which task.",
            "s",
            6,
        ),
        Query(f"topk(1, {queue_gauge('rota_queue_oldest_running_age_seconds')} > 0)", called("{{queue}}")),
        [Step(60, YELLOW), Step(3600, RED)],
    )
    yield stat(
        Face("Attempts ended", "In a second, over all selected tasks.", "ops", 4),
        Query(rate("rota_tasks_processed_total", TASK), "attempts"),
    )
    yield stat(
        Face("Cores taken", "Seconds of task functions in a second.", "short", 4),
        Query(rate("rota_task_runtime_seconds_sum", TASK), "cores"),
        first=GREEN,
    )


def _throughput() -> Panels:
    yield graph(
        Face(
            "Attempts by outcome",
            "Attempts ended in a second. Released ones were given back by a worker that did not come to them.",
            "ops",
            12,
        ),
        Query(f"{rate('rota_tasks_processed_total', TASK, 'outcome')} > 0", "{{outcome}}"),
        style=Style.STACKED,
    )
    yield graph(
        Face("Done by task", "Attempts that ended well, in a second.", "ops", 12),
        Query(f"{rate('rota_tasks_processed_total', DONE, BY_TASK)} > 0", NAME),
        style=Style.STACKED,
    )


def _failures() -> Panels:
    yield graph(
        Face(
            "Share of failures by task",
            "Of the attempts that ended by themselves, how many failed, whether or not they are tried again.",
            "percentunit",
            8,
        ),
        Query(f"{failing()} > 0", NAME),
    )
    yield graph(
        Face("Retries", "Attempts that failed and will be repeated. Each is in one bar.", "short", 8),
        Query(events("rota_task_retries_total", TASK, BY_TASK), NAME),
        style=Style.BARS,
    )
    yield graph(
        Face("Deaths by reason", "Tasks set aside as dead. Each is in one bar.", "short", 8),
        Query(events("rota_tasks_dead_total", TASK, f"{BY_TASK}, reason"), called("{{task}} in {{queue}}: {{reason}}")),
        style=Style.BARS,
    )


def _runtimes() -> Panels:
    for percent in (50, 99):
        yield graph(
            Face(
                f"p{percent} run time by task",
                "How long the function ran, of attempts that ended. What still runs is in the panel below.",
                "s",
                12,
            ),
            Query(quantile(percent, "rota_task_runtime_seconds", "job", "fleet", "queue", "task", selector=TASK), NAME),
            style=Style.LOGARITHMIC,
        )


def _cores() -> Panels:
    yield graph(
        Face(
            "Longest running",
            "For how long the task that runs longest has been running, of the node where it is longest.",
            "s",
            8,
        ),
        Query(f"{queue_gauge('rota_queue_oldest_running_age_seconds')} > 0", called("{{queue}}")),
        style=Style.LOGARITHMIC,
    )
    yield graph(
        Face(
            "Cores by task",
            "Seconds of its function in a second, waiting for others included: how many workers the task keeps.",
            "short",
            8,
        ),
        Query(f"{rate('rota_task_runtime_seconds_sum', TASK, BY_TASK)} > 0", NAME),
        style=Style.STACKED,
    )
    yield graph(
        Face(
            "Loops blocked by task",
            "Share of time in steps of coroutines of over 0.1 s, in which no other task of their worker goes on.",
            "percentunit",
            8,
        ),
        Query(f"{rate('rota_worker_loop_blocked_seconds_total', TASK, BY_TASK)} > 0", NAME),
    )


def _held_up() -> Panels:
    yield graph(
        Face("Put off by their rate", "Starts in a second that the task's own rate put off.", "ops", 8),
        Query(f"sum by ({BY_TASK}) (rate(rota_tasks_throttled_total{{{TASK}}}[{WINDOW}])) > 0", NAME),
    )
    yield graph(
        Face(
            "Given back of the dead",
            "Tasks given back to their lane for a worker that died: child_exit by its master at once, lease_expired by "
            "a poller when a whole node was lost. Each is in one bar.",
            "short",
            8,
        ),
        Query(events("rota_tasks_recovered_total", QUEUE, f"{BY_QUEUE}, reason"), called("{{queue}}: {{reason}}")),
        style=Style.BARS,
    )
    yield graph(
        Face(
            "Cancelled and expired",
            "Tasks that ended unrun, or were stopped, as somebody asked. Each is in one bar.",
            "short",
            8,
        ),
        Query(
            events("rota_tasks_processed_total", f'{QUEUE}, outcome=~"cancelled|expired"', f"{BY_QUEUE}, outcome"),
            called("{{queue}}: {{outcome}}"),
        ),
        style=Style.BARS,
    )
