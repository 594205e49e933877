"""What every dashboard of Rota has: its variables, and marks where a process was replaced or a file loaded."""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import AnnotationQuery, Dashboard, DatasourceVariable, QueryVariable
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from grafana.panels import DATASOURCE, RED
from grafana.queries import JOB

_EVERYTHING: Final = VariableOption(selected=True, text=["All"], value=["$__all"])


def board(uid: str, title: str, description: str) -> Dashboard:
    """A dashboard without panels."""
    return (
        Dashboard(title)
        .uid(uid)
        .description(description)
        .tags(["rota"])
        .timezone("browser")
        .editable()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("10s")
        .with_variable(DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_variable("job", "Job", "label_values(rota_build_info, job)"))
        .with_variable(
            _variable("queue", "Queue", f"label_values(rota_queue_lag_objective_seconds{{{JOB}}}, queue)"),
        )
        .annotation(_restarts())
        .annotation(_reloads())
    )


def _variable(name: str, label: str, query: str) -> QueryVariable:
    return (
        QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(_EVERYTHING)
    )


# The windows of annotations are fixed: Grafana does not promise $__rate_interval to them.


def _restarts() -> AnnotationQuery:
    return (
        AnnotationQuery()
        .name("Restarts")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(RED)
        .expr(f"sum by (instance, role, reason) (increase(rota_process_restarts_total{{{JOB}}}[1m])) > 0")
        .title_format("{{role}} replaced: {{reason}} ({{instance}})")
        .step("1m")
    )


def _reloads() -> AnnotationQuery:
    return (
        AnnotationQuery()
        .name("Reloads")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color("blue")
        .expr(f"changes(rota_config_last_reload_success_timestamp_seconds{{{JOB}}}[1m]) > 0")
        .title_format("configuration loaded ({{instance}})")
        .step("1m")
    )
