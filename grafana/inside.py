"""The lower rows of the fleet's dashboard: what goes on inside of it."""

from grafana.board import Panels
from grafana.panels import Face, Query, Style, graph
from grafana.queries import BY_FLEET, BY_NODE, FLEET, called, events, fleet_gauge, quantile, rate, since_a_round

NODE = called("{{instance}}")
PROCESS = called("{{role}} {{slot}} of {{instance}}")


def pollers() -> Panels:
    yield graph(
        Face(
            "Since the last round",
            "Of the poller of each fleet that was last to make one: beyond some seconds nothing is promoted.",
            "s",
            8,
        ),
        Query(since_a_round(), called("since the last round")),
    )
    yield graph(
        Face("Promoted by queue", "Due tasks moved to their lane in a second.", "ops", 8),
        Query(f"{rate('rota_poller_promoted_total', FLEET, 'job, fleet, queue')} > 0", called("{{queue}}")),
        style=Style.STACKED,
    )
    yield graph(
        Face(
            "Doorbells rung by the sweep",
            "For entries that nobody had been told of. Each is in one bar.",
            "short",
            8,
        ),
        Query(events("rota_doorbell_rescues_total", FLEET, BY_NODE), NODE),
        style=Style.BARS,
    )


def processes() -> Panels:
    process = "job, fleet, instance, role, slot"
    yield graph(
        Face("Since the last beat", "How long ago each process said that it is alive.", "s", 12),
        Query(fleet_gauge("rota_heartbeat_age_seconds", process), PROCESS),
    )
    yield graph(
        Face("Cores by role", "User and system time of all processes.", "short", 12),
        Query(rate("rota_process_cpu_seconds_total", FLEET, "job, fleet, role"), called("{{role}}")),
        style=Style.STACKED,
    )
    yield graph(
        Face("Resident memory", "Of each process, pages that it shares with others included.", "bytes", 8),
        Query(fleet_gauge("rota_process_resident_memory_bytes", process), PROCESS),
    )
    yield graph(
        Face("Cores by process", "User and system time of each process.", "short", 8),
        Query(rate("rota_process_cpu_seconds_total", FLEET, process), PROCESS),
    )
    yield graph(
        Face("Open descriptors", "File descriptors of each process.", "short", 8),
        Query(fleet_gauge("rota_process_open_fds", process), PROCESS),
    )


def redis() -> Panels:
    yield graph(
        Face("Redis reached by node", "1 while the master reaches Redis.", "short", 8),
        Query(fleet_gauge("rota_redis_up"), NODE),
        Query(f"{fleet_gauge('rota_redis_evicts_keys', BY_FLEET)} > 0", called("Redis may drop keys")),
    )
    yield graph(
        Face(
            "p99 of commands",
            "Round trips, without the waits of idle workers for work; those of masters by node.",
            "s",
            8,
        ),
        Query(
            quantile(99, "rota_redis_command_seconds", "job", "fleet", "command", selector=FLEET), called("{{command}}")
        ),
        Query(fleet_gauge("rota_redis_round_trip_seconds"), NODE),
        style=Style.LOGARITHMIC,
    )
    yield graph(
        Face("Failed calls by reason", "Calls to Redis that failed. Each is in one bar.", "short", 8),
        Query(events("rota_redis_errors_total", FLEET, f"{BY_NODE}, reason"), called("{{reason}} on {{instance}}")),
        style=Style.BARS,
    )
    yield graph(
        Face("Commands", "Round trips in a second.", "ops", 8),
        Query(f"{rate('rota_redis_command_seconds_count', FLEET, f'{BY_FLEET}, command')} > 0", called("{{command}}")),
        style=Style.STACKED,
    )
    yield graph(
        Face("Turns of workers", "Entries claimed, and turns that asked for work and got none, in a second.", "ops", 8),
        Query(rate("rota_claims_total", FLEET, BY_FLEET), called("claimed")),
        Query(rate("rota_claims_empty_total", FLEET, BY_FLEET), called("empty")),
    )
    yield graph(
        Face(
            "Leases lost, turns refused",
            "Owners whose lease ran out while they lived, and turns refused for that. Expected after outages alone.",
            "short",
            8,
        ),
        Query(events("rota_leases_lost_total", FLEET, BY_NODE), called("lost on {{instance}}")),
        Query(events("rota_claims_refused_total", FLEET, BY_NODE), called("refused on {{instance}}")),
        style=Style.BARS,
    )


def books() -> Panels:
    yield graph(
        Face(
            "Missing, unplaced, orphaned",
            "Tasks that the books cannot account for, live tasks that stand nowhere, in-flight lists that nobody owns. "
            "Expected: 0.",
            "short",
            6,
        ),
        Query(fleet_gauge("rota_audit_missing_tasks", BY_FLEET), called("missing")),
        Query(fleet_gauge("rota_audit_unplaced_tasks", BY_FLEET), called("unplaced")),
        Query(fleet_gauge("rota_inflight_orphans", BY_FLEET), called("orphaned")),
    )
    yield graph(
        Face(
            "Log lines lost or cut",
            "Lost, as nobody read them or the disk was full; cut, as they were over 4,096 bytes. One bar each.",
            "short",
            6,
        ),
        Query(events("rota_log_lines_dropped_total", FLEET, BY_NODE), called("lost on {{instance}}")),
        Query(events("rota_log_lines_failed_total", FLEET, BY_NODE), called("not written on {{instance}}")),
        Query(events("rota_log_lines_truncated_total", FLEET, BY_NODE), called("cut on {{instance}}")),
        style=Style.BARS,
    )


def itself() -> Panels:
    yield graph(
        Face("Making the metrics", "How long the answer to a scrape took to make.", "s", 6),
        Query(fleet_gauge("rota_metrics_collect_seconds"), NODE),
    )
    yield graph(
        Face(
            "Label sets that found no room",
            "Times that something was counted under _other, as there were too many series. Each is in one bar.",
            "short",
            6,
        ),
        Query(events("rota_metrics_series_dropped_total", FLEET, BY_NODE), NODE),
        style=Style.BARS,
    )
