"""The pages show the dashboards, and name the panel on which each trouble is visible."""

import re

from support.dashboards import TOP, boards
from support.trouble_panels import SHOWN
from troubles.catalogue import TROUBLES

PANEL = re.compile(r"\| ([\w ]+): \*(.+?)\* \|")
PICTURE = re.compile(r"\.\./docs/images/([\w-]+)\.png")


def test_troubles_page_names_the_panel_of_each_trouble() -> None:
    titles = {name: board["title"].removeprefix("Rota: ") for name, board in boards().items()}
    said = PANEL.findall((TOP / "docs" / "troubles.md").read_text())
    assert said == [(titles[f"{SHOWN[name].board}.json"], SHOWN[name].panel) for name in TROUBLES]


def test_dashboards_page_shows_each_board() -> None:
    shown = set(PICTURE.findall((TOP / "grafana" / "README.md").read_text()))
    assert shown == {name.removesuffix(".json") for name in boards()}
    assert shown <= {path.stem for path in (TOP / "docs" / "images").iterdir()}
