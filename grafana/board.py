"""What every dashboard of Rota has: its variables, links, and marks where something was replaced or loaded."""

from collections.abc import Iterable
from typing import Final

from grafana_foundation_sdk.builders.dashboard import (
    AnnotationQuery,
    ConstantVariable,
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    QueryVariable,
    Row,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    Panel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from grafana.panels import DATASOURCE, GREEN, RED
from grafana.queries import FLEET, QUEUE, UNWANTED_RESTARTS

Panels = Iterable[Builder[Panel]]

# As rota_docs_url in deploy/prometheus/prometheus.yml: where a copy of docs/ is served.
DOCS_URL: Final = "https://docs.example.com/rota"

_EVERYTHING: Final = VariableOption(selected=True, text=["All"], value=["$__all"])
_ASKED_OF: Final = {
    "job": ("Job", "label_values(rota_build_info, job)"),
    "fleet": ("Fleet", 'label_values(rota_build_info{job=~"$job"}, fleet)'),
    "queue": ("Queue", f"label_values(rota_queue_ready_tasks{{{FLEET}}}, queue)"),
    "task": ("Task", f"label_values(rota_tasks_processed_total{{{QUEUE}}}, task)"),
}


def board(uid: str, title: str, description: str, variables: Iterable[str]) -> Dashboard:
    """A dashboard without panels. `variables` are labels to choose by, each a key of `_ASKED_OF`."""
    made = (
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
        .with_variable(ConstantVariable("docs").label("Where docs/ is served").value(DOCS_URL))
        .links([_boards(), _runbook()])
    )
    for name in variables:
        made.with_variable(_variable(name, *_ASKED_OF[name]))
    for mark in (_deploys(), _code(), _reloads(), _restarts()):
        made.annotation(mark)
    return made


def with_rows(made: Dashboard, rows: dict[str, Panels]) -> Dashboard:
    """The dashboard with those panels, under the titles of their rows."""
    for title, panels in rows.items():
        made.with_row(Row(title))
        for panel in panels:
            made.with_panel(panel)
    return made


def _boards() -> DashboardLink:
    """All dashboards of Rota, for the same fleet at the same time."""
    link = DashboardLink("Rota").type(DashboardLinkType.DASHBOARDS).icon("external link").tooltip("")
    return link.url("").tags(["rota"]).as_dropdown(False).include_vars(True).keep_time(True)


def _runbook() -> DashboardLink:
    link = DashboardLink("Runbook").type(DashboardLinkType.LINK).icon("doc").tooltip("What to do about each alert")
    return link.url("${docs}/runbook.md").target_blank(True)


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


def _deploys() -> AnnotationQuery:
    versions = f"count by (job, fleet, instance, version) (rota_build_info{{{FLEET}}}"
    is_known = f"count by (job, fleet, instance) (rota_build_info{{{FLEET}}} offset 1m)"
    return _mark(
        "Deploys",
        GREEN,
        f"{versions}) unless {versions} offset 1m) and on (job, fleet, instance) {is_known}",
        "Rota {{version}} ({{instance}})",
    )


def _code() -> AnnotationQuery:
    """A loading of the application's code has a zygote of its own, which takes the place of the one before."""
    replaced = f'rota_process_restarts_total{{{FLEET}, role="zygote", reason="reload"}}'
    return _mark(
        "Code",
        GREEN,
        f"sum by (job, fleet, instance) (increase({replaced}[1m])) > 0",
        "code loaded anew ({{instance}})",
    )


def _reloads() -> AnnotationQuery:
    return _mark(
        "Reloads",
        "blue",
        f"changes(rota_config_last_reload_success_timestamp_seconds{{{FLEET}}}[1m]) > 0",
        "configuration loaded ({{instance}})",
    )


def _restarts() -> AnnotationQuery:
    return _mark(
        "Restarts",
        RED,
        f"sum by (instance, role, reason) (increase({UNWANTED_RESTARTS}[1m])) > 0",
        "{{role}} replaced: {{reason}} ({{instance}})",
    )


def _mark(name: str, color: str, expr: str, title: str) -> AnnotationQuery:
    made = AnnotationQuery().name(name).datasource(DATASOURCE).enable(True).icon_color(color)
    return made.expr(expr).title_format(title).step("1m")
