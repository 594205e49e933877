"""The dashboards are complete, consistent with each other, and only query existing metrics."""

import json
import re
from typing import Any

import promql_parser
import pytest
import yaml

from rota.telemetry.metrics import BY_NAME, HistogramDefinition
from support.dashboards import FOLDER, SCREEN, TOP, all_queries, boards, panels
from support.trouble_panels import SHOWN
from troubles.catalogue import TROUBLES

BOARDS = boards()
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}") for name, board in BOARDS.items() for panel in panels(board)
]
QUERIES = [
    pytest.param(query.filled_in(window="1m", time_range="1h", step="15s"), id=f"{query.board}: {query.panel}")
    for query in all_queries()
]
RULES = TOP / "deploy" / "prometheus"
# Metrics of Prometheus itself, whose label `instance` does not identify a node of a fleet.
OF_PROMETHEUS = {"up": ("job",), "ALERTS": ("job", "fleet", "queue", "alertname", "alertstate")}
# The metrics that neither a panel nor a rule uses, each with the reason.
SHOWN_NOWHERE: dict[str, str] = {}
# The keys that an export from Grafana adds.
OF_ONE_GRAFANA = {"id", "version", "iteration", "__inputs", "__requires", "__elements"}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def series_names() -> dict[str, tuple[str, ...]]:
    """Return the names of all series that a query may use, each with the names of its labels."""
    names = dict(OF_PROMETHEUS)
    for definition in BY_NAME.values():
        if isinstance(definition, HistogramDefinition):
            for suffix in ("_bucket", "_sum", "_count"):
                names[definition.name + suffix] = ("job", "fleet", *definition.labels)
        else:
            names[definition.name] = ("job", "fleet", *definition.labels)
    return names


@pytest.mark.parametrize("name", BOARDS)
def test_each_dashboard_file_is_formatted_as_make_dashboards_writes_it(name: str) -> None:
    written = json.dumps(BOARDS[name], indent=2, sort_keys=True) + "\n"
    assert (FOLDER / name).read_text() == written, "run `make dashboards`"


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_contains_no_fields_of_one_grafana_instance(name: str) -> None:
    assert not OF_ONE_GRAFANA & BOARDS[name].keys()
    assert [panel["id"] for panel in BOARDS[name]["panels"]] == list(range(1, len(BOARDS[name]["panels"]) + 1))


def test_annotations_and_variables_are_the_same_on_all_dashboards() -> None:
    variables = [variable for board in BOARDS.values() for variable in board["templating"]["list"]]
    assert len({json.dumps(each) for each in variables}) == len({each["name"] for each in variables})
    assert len({json.dumps(board["annotations"]) for board in BOARDS.values()}) == 1


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_has_title_description_unit_and_data_source(
    panel: dict[str, Any],
) -> None:
    assert panel["title"]
    assert len(panel["description"]) > 20
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == DATASOURCE
    assert panel["targets"]
    for target in panel["targets"]:
        assert target["datasource"] == DATASOURCE
        assert target["legendFormat"]


@pytest.mark.parametrize("panel", PANELS)
def test_panels_compute_rates_over_grafanas_rate_interval(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert set(re.findall(r"\[([^\]]+)\]", target["expr"])) <= {"$__rate_interval", "$__range"}
        assert set(re.findall(r"offset (\S+?)[ )]", target["expr"])) <= {"$__interval"}


@pytest.mark.parametrize("name", BOARDS)
def test_dashboard_panels_fill_every_row_without_overlaps(name: str) -> None:
    cells: set[tuple[int, int]] = set()
    for panel in BOARDS[name]["panels"]:
        place = panel["gridPos"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not covered & cells, panel["title"]
        cells |= covered
    height = max(y for _, y in cells) + 1
    assert len(cells) == 24 * height


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_reads_existing_metrics_of_the_selected_fleet(query: str) -> None:
    promql_parser.parse(query)
    selectors = re.findall(r"\b(rota_[a-z_]+|up|ALERTS)\{([^}]*)\}", query)
    known = series_names()
    assert selectors
    assert len(selectors) == len(re.findall(r"\brota_[a-z_]+|\bup\b|\bALERTS\b", query)), "a series without a selector"
    for series, matchers in selectors:
        labels = set(re.findall(r"(\w+)[=!]", matchers))
        assert labels <= set(known[series])
        assert {"job", "fleet"} & set(known[series]) <= labels


@pytest.mark.parametrize("panel", PANELS)
def test_the_legend_of_a_query_by_fleet_contains_the_job_and_the_fleet(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        if re.search(r"by \(job, fleet|topk\(", target["expr"]) and panel["type"] != "table":
            is_one_value = re.match(r"(sum|min|max|avg)\(", target["expr"])
            assert is_one_value or "{{job}}/{{fleet}}" in target["legendFormat"]


def test_every_metric_is_used_in_a_panel_or_rule_or_listed_as_unused() -> None:
    rules = (RULES / "recording.yml").read_text() + (RULES / "alerts.yml").read_text()
    asked = set(re.findall(r"\brota_[a-z_]+", rules + "".join(query.expr for query in all_queries())))
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} | asked
    assert set(BY_NAME) - shown == set(SHOWN_NOWHERE)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_each_problem_is_visible_on_the_first_screen_of_a_dashboard(trouble: str) -> None:
    shown = SHOWN[trouble]
    places = [panel["gridPos"] for panel in panels(BOARDS[f"{shown.board}.json"]) if panel["title"] == shown.panel]
    assert min(place["y"] + place["h"] for place in places) <= SCREEN


def test_boards_link_to_each_other_and_to_the_runbook() -> None:
    for name, board in BOARDS.items():
        others, runbook = board["links"]
        assert (others["type"], others["tags"], others["includeVars"], others["keepTime"]) == (
            "dashboards",
            ["rota"],
            True,
            True,
        )
        assert "rota" in board["tags"], name
        assert runbook["url"] == "${docs}/runbook.md"
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)


def test_every_alert_links_to_an_existing_board() -> None:
    led_to = set(re.findall(r"/d/([\w-]+)", (RULES / "alerts.yml").read_text()))
    assert led_to
    assert led_to <= {board["uid"] for board in BOARDS.values()}


@pytest.mark.parametrize("name", BOARDS)
def test_boards_and_alerts_link_to_the_same_docs(name: str) -> None:
    (docs,) = [variable for variable in BOARDS[name]["templating"]["list"] if variable["name"] == "docs"]
    scrape = yaml.safe_load((RULES / "prometheus.yml").read_text())
    assert docs["query"] == scrape["global"]["external_labels"]["rota_docs_url"]


def test_the_provisioned_data_source_has_a_fixed_uid_and_scrape_interval() -> None:
    provisioning = TOP / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    scrape = yaml.safe_load((RULES / "prometheus.yml").read_text())
    assert source["uid"] == "rota-prometheus"
    assert source["jsonData"]["timeInterval"] == scrape["global"]["scrape_interval"]
