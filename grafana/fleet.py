"""The fleet: masters, workers and what becomes of them, processes, Redis, and the books."""

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import DynamicConfigValue, Panel

from grafana import inside
from grafana.board import Panels, board, with_rows
from grafana.panels import GREEN, RED, YELLOW, Face, Query, Step, Style, dashed, graph, lines_at, link, stat, table
from grafana.queries import (
    BY_FLEET,
    BY_NODE,
    BY_POOL,
    FLEET,
    UNWANTED_RESTARTS,
    called,
    events,
    fleet_gauge,
    masters,
    rate,
    since_a_round,
)


def dashboard() -> Dashboard:
    """The whole dashboard."""
    made = board(
        "rota-fleet",
        "Rota: fleet",
        "Masters, workers and what becomes of them, processes, Redis, and the books.",
        ("job", "fleet"),
    )
    return with_rows(
        made,
        {
            "Now": (*_missing_now(), *_answers_now(), *_lately()),
            "Workers": (_workers(), _busy(), *_deaths()),
            "Nodes": (_nodes(), _scraped(), *_configuration()),
            "Pollers": inside.pollers(),
            "Processes": inside.processes(),
            "Redis": inside.redis(),
            "Books, log and metrics": (*inside.books(), *inside.itself()),
        },
    )


def _missing_now() -> Panels:
    running = f'sum by ({BY_POOL}) (rota_workers{{{FLEET}, state=~"running|quiet"}})'
    yield stat(
        Face(
            "Workers missing", "The pool that lacks most of the workers that were asked for.", "short", 4, "no answer"
        ),
        Query(f"topk(1, sum by ({BY_POOL}) (rota_workers_desired{{{FLEET}}}) - {running})", called("{{pool}}")),
        [Step(1, RED)],
    )
    held = f"sum by (job, fleet, role, pool) (rota_starts_held{{{FLEET}}})"
    yield stat(
        Face(
            "Starts held back",
            "Whose processes fail again and again as they start, and on how many nodes: the next try waits. The status "
            "page of the node says how the last one ended.",
            "short",
            5,
        ),
        Query(f"topk(1, {held} > 0)", called("{{role}} {{pool}}")),
        [Step(1, RED)],
    )
    yield stat(
        Face(
            "Busiest pool", "Tasks that run, over how many the workers may run at once.", "percentunit", 4, "no workers"
        ),
        Query(f"topk(1, {_utilisation()})", called("{{pool}}")),
        [Step(0.8, YELLOW), Step(0.98, RED)],
    )


def _answers_now() -> Panels:
    yield stat(
        Face(
            "Nodes that answer",
            "The share that Prometheus reaches, of all that it reached in the time shown.",
            "percentunit",
            4,
        ),
        Query(f"avg({_reached()})", "of nodes"),
        [Step(1, GREEN)],
        first=RED,
    )
    yield stat(
        Face("Redis reached", "1 while every master reaches Redis, 0 when one does not.", "short", 3, "no answer"),
        Query(f"min(rota_redis_up{{{FLEET}}})", "reached"),
        [Step(1, GREEN)],
        first=RED,
    )
    yield stat(
        Face(
            "Last reload",
            "1 when the last one was accepted everywhere, 0 where it was refused.",
            "short",
            4,
            "no answer",
        ),
        Query(f"min(rota_config_last_reload_successful{{{FLEET}}})", "accepted"),
        [Step(1, GREEN)],
        first=RED,
    )


def _lately() -> Panels:
    yield stat(
        Face("Processes that died", "Within the time shown, of themselves or killed as a limit says.", "short", 6),
        Query(f"round(sum(increase({UNWANTED_RESTARTS}[$__range])))", "died"),
        [Step(1, YELLOW), Step(10, RED)],
    )
    yield stat(
        Face(
            "Pollers' last round",
            "Of the fleet whose pollers made none for longest: beyond some seconds nothing is promoted there.",
            "s",
            6,
            "no answer",
        ),
        Query(f"topk(1, {since_a_round()})", called("ago")),
        [Step(5, YELLOW), Step(30, RED)],
    )
    yield stat(
        Face("Log lines lost", "Within the time shown, as nobody read them fast enough.", "short", 6),
        Query(f"round(sum(increase(rota_log_lines_dropped_total{{{FLEET}}}[$__range])))", "lost"),
        [Step(1, YELLOW)],
    )
    missing, unplaced = (fleet_gauge(f"rota_audit_{which}_tasks", BY_FLEET) for which in ("missing", "unplaced"))
    yield stat(
        Face(
            "Not in the books",
            "Tasks missing or unplaced, of the fleet where it is most. Expected: 0.",
            "short",
            6,
            "no answer",
        ),
        Query(f"topk(1, {missing} + {unplaced})", called("tasks")),
        [Step(1, RED)],
    )


def _reached() -> str:
    return masters('up{job=~"$job"}')


def _utilisation() -> str:
    running = f"sum by ({BY_POOL}) (rota_workers_busy{{{FLEET}}})"
    return f"{running} / (sum by ({BY_POOL}) (rota_worker_concurrency{{{FLEET}}}) > 0)"


def _workers() -> Builder[Panel]:
    panel = graph(
        Face(
            "Workers by state",
            "Over all nodes, and dashed how many were asked for. backoff and fatal are missing workers: the starts of "
            "their pool are held back, fatal when it will hardly mend by itself.",
            "short",
            12,
        ),
        Query(f"sum by ({BY_FLEET}, state) (rota_workers{{{FLEET}}}) > 0", called("{{state}}")),
        Query(f"sum(rota_workers_desired{{{FLEET}}})", "desired"),
        style=Style.STACKED,
    )
    return dashed(panel, "desired", RED)


def _busy() -> Builder[Panel]:
    panel = graph(
        Face(
            "Utilisation by pool",
            "Tasks that run, over how many the workers may run at once; and the share of their time that they spent in "
            "task functions. At 100 % tasks wait for workers.",
            "percentunit",
            12,
        ),
        Query(_utilisation(), called("{{pool}} now")),
        Query(
            f"{rate('rota_worker_busy_seconds_total', FLEET, BY_POOL)} "
            f"/ (sum by ({BY_POOL}) (rota_worker_concurrency{{{FLEET}}}) > 0)",
            called("{{pool}} on average"),
        ),
    )
    return lines_at(panel, Step(1, RED))


def _deaths() -> Panels:
    yield graph(
        Face("Restarts", "Processes replaced, by role and reason. Each is in one bar.", "short", 8),
        Query(
            events("rota_process_restarts_total", FLEET, f"{BY_FLEET}, role, reason"), called("{{role}}: {{reason}}")
        ),
        style=Style.BARS,
    )
    yield graph(
        Face(
            "Starts held back",
            "Nodes on which processes of that kind failed in a row as they started, so that the next try waits.",
            "short",
            8,
        ),
        Query(f"sum by (job, fleet, role, pool) (rota_starts_held{{{FLEET}}}) > 0", called("{{role}} {{pool}}")),
    )
    yield graph(
        Face("Quiet nodes", "For how long a node has claimed nothing as it was asked to.", "s", 8),
        Query(f"{fleet_gauge('rota_quiet_age_seconds')} > 0", inside.NODE),
    )


def _nodes() -> Builder[Panel]:
    columns = {"instance": "Node", "fleet": "Fleet", "job": "Job", "version": "Version", "protocol": "Protocol"}
    panel = table(
        Face("Nodes", "Every master that answers. The name leads to the status page of the node.", "short", 8),
        Query(f"max by ({', '.join(columns)}) (rota_build_info{{{FLEET}}})", "node"),
        columns,
    )
    page = link("Status page", "http://${__value.raw}/")
    return panel.override_by_name("Node", [DynamicConfigValue("links", [page])])


def _scraped() -> Builder[Panel]:
    return graph(
        Face(
            "Answers to Prometheus",
            "1 while the node answers, 0 when it was there in the time shown and does not.",
            "short",
            8,
        ),
        Query(_reached(), inside.NODE),
    )


def _configuration() -> Panels:
    yield graph(
        Face("Since the start", "How old each master is.", "s", 8),
        Query(f"time() - {fleet_gauge('rota_start_time_seconds')}", inside.NODE),
    )
    yield graph(
        Face("Reloads", "Accepted and refused. Each is in one bar.", "short", 12),
        Query(events("rota_config_reloads_total", FLEET, f"{BY_NODE}, result"), called("{{result}} on {{instance}}")),
        style=Style.BARS,
    )
    yield graph(
        Face(
            "Last reload by node",
            "1 when it was accepted, 0 when it was refused: the node goes on with what it had.",
            "short",
            12,
        ),
        Query(fleet_gauge("rota_config_last_reload_successful"), inside.NODE),
    )
