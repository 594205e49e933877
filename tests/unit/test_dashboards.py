"""The dashboards are what `grafana/` builds, are complete, and ask for metrics that exist."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import FOLDER, TOP, boards, panels, queries
from rota.telemetry.definition import HistogramDefinition
from rota.telemetry.metrics import BY_NAME

BOARDS = boards()
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}") for name, board in BOARDS.items() for panel in panels(board)
]
QUERIES = [
    pytest.param(query.filled_in(job=".+", queue=".+", window="1m", time_range="1h"), id=f"{name}: {query.panel}")
    for name, board in BOARDS.items()
    for query in queries(board)
]
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def series_names() -> dict[str, tuple[str, ...]]:
    """Every series a scrape may hold, with its labels."""
    names: dict[str, tuple[str, ...]] = {}
    for definition in BY_NAME.values():
        if isinstance(definition, HistogramDefinition):
            for suffix in ("_bucket", "_sum", "_count"):
                names[definition.name + suffix] = (*definition.labels, "le")
        else:
            names[definition.name] = definition.labels
    return names


def test_the_committed_dashboards_are_what_the_code_builds(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "grafana.build", str(tmp_path)], cwd=TOP, check=True)
    built = {path.name: path.read_text() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert built == committed, "run `make dashboards` and commit what it writes"


@pytest.mark.parametrize("name", BOARDS)
def test_the_sdk_reads_a_dashboard_back_with_nothing_lost(name: str) -> None:
    model = Dashboard.from_json(BOARDS[name])
    assert [panel.title for panel in model.panels or ()] == [panel["title"] for panel in BOARDS[name]["panels"]]
    assert model.uid == BOARDS[name]["uid"]


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_says_what_it_shows_in_which_unit_and_takes_its_source_from_the_variable(
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
def test_a_panel_rates_over_the_interval_that_fits_the_scrape(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        windows = re.findall(r"\[([^\]]+)\]", target["expr"])
        assert set(windows) <= {"$__rate_interval", "$__range"}


@pytest.mark.parametrize("name", BOARDS)
def test_panels_stand_beside_each_other_and_fill_their_rows(name: str) -> None:
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
def test_a_query_parses_asks_for_metrics_that_exist_and_keeps_to_the_selected_job(query: str) -> None:
    promql_parser.parse(query)
    selectors = re.findall(r"\b(rota_[a-z_]+)\{([^}]*)\}", query)
    known = series_names()
    assert selectors
    assert len(selectors) == len(re.findall(r"\brota_[a-z_]+", query)), "a series without a selector"
    for series, matchers in selectors:
        labels = set(re.findall(r"(\w+)[=!]", matchers))
        assert series in known
        assert labels <= {"job", *known[series]}
        assert "job" in labels
        assert "le" not in labels


def test_the_provisioned_source_has_a_fixed_uid_and_the_interval_of_the_scrape() -> None:
    provisioning = TOP / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    scrape = yaml.safe_load((TOP / "deploy" / "prometheus" / "prometheus.yml").read_text())
    assert source["uid"] == "rota-prometheus"
    assert source["jsonData"]["timeInterval"] == scrape["global"]["scrape_interval"]
