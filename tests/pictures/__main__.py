"""Draw the dashboards from real fleets and a real Prometheus: `make pictures` writes docs/images/.

Each dashboard is drawn as a whole for an eventful fleet. For each trouble, two more pictures show a first screen: that
of the dashboard on which the trouble is visible, and that of a status page that was opened before the trouble began.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from playwright.sync_api import sync_playwright

from support.browser import binary
from support.dashboards import SCREEN, STEP_SECONDS, PanelQuery, boards, run_query
from support.eventful import beside, eventful
from support.prometheus import Prometheus
from support.trouble_panels import SHOWN
from troubles.bench import Bench
from troubles.catalogue import TROUBLES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HERE: Final = Path(__file__).parent
FILES: Final = ("page.html", "style.css", "units.js", "draw.js")
WELL_SECONDS: Final = 45
TROUBLED_SECONDS: Final = 60
SHOWN_SECONDS: Final = 120
SCALE: Final = 0.75
SCALE_OF_WHOLE_BOARDS: Final = 0.55  # the scale for pictures of whole dashboards, which keeps each picture below 300 kB
SCALE_OF_PAGES: Final = 0.75
AT_ONCE: Final = 5  # the number of fleets that a small machine can run at the same time


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a dashboard that is to be drawn."""

    name: str
    board: str  # the file of the dashboard
    job: str  # the Prometheus job whose data is shown
    note: str
    rows: int = 0  # the number of rows of the dashboard's grid to draw, or 0 for all


def pictures(troubles: Iterable[str]) -> Iterator[Picture]:
    """Yield the pictures to draw: each whole dashboard, and one picture for each of these troubles."""
    for board in boards():
        yield Picture(board.removesuffix(".json"), board, eventful.name, "a fleet in which much happens")
    for name in troubles:
        yield Picture(f"trouble-{name}", f"{SHOWN[name].board}.json", name, TROUBLES[name].summary, SCREEN)


class Onlooker:
    """A browser that keeps the status page of each trouble open."""

    def __init__(self, troubles: Iterable[str]) -> None:
        self._troubles = troubles
        self._pages: dict[str, Page] = {}

    def look(self, bench: Bench) -> None:
        """Open the status pages."""
        self._playwright = sync_playwright().start()
        chromium = self._playwright.chromium.launch(executable_path=binary())
        for name in self._troubles:
            page = chromium.new_page(viewport={"width": 1280, "height": 860}, device_scale_factor=SCALE_OF_PAGES)
            page.goto(f"http://{bench.scenes[name].fleet.target()}/")
            self._pages[name] = page

    def take(self, images: Path) -> None:
        """Take a picture of each page, and close the browser. This comes before the troubles end, because their ends
        make blocking calls, which must not run beside the browser's event loop.
        """
        for name, page in self._pages.items():
            page.screenshot(path=images / f"page-{name}.png")
        self._playwright.stop()


def gathered(troubles: Iterable[str], images: Path) -> dict[str, dict[str, Any]]:
    """Return the data for each dashboard picture, by name. This function already writes the pictures of status
    pages.
    """
    onlooker = Onlooker(troubles)
    with tempfile.TemporaryDirectory() as folder, beside(Path(folder), troubles, WELL_SECONDS, onlooker.look) as bench:
        time.sleep(TROUBLED_SECONDS)
        onlooker.take(images)
        return {picture.name: answered(bench.prometheus, picture) for picture in pictures(troubles)}


def answered(prometheus: Prometheus, picture: Picture) -> dict[str, Any]:
    """Return the data that the page draws: the part of the dashboard that is shown, and the results of its queries."""
    board = boards()[picture.board]
    if picture.rows:
        board["panels"] = [panel for panel in board["panels"] if panel["gridPos"]["y"] < picture.rows]
    now = time.time() // STEP_SECONDS * STEP_SECONDS
    answers = {panel["id"]: _answers(prometheus, panel, picture.job) for panel in board["panels"]}
    times = {"from": now - SHOWN_SECONDS, "to": now, "step": STEP_SECONDS}
    return {"board": board, "answers": answers, "note": picture.note, "rows": picture.rows, **times}


def _answers(prometheus: Prometheus, panel: dict[str, Any], job: str) -> list[list[dict[str, Any]]]:
    queries = (
        PanelQuery("", panel["title"], target["expr"], target["legendFormat"], target.get("instant", False))
        for target in panel.get("targets", ())
    )
    return [run_query(prometheus, query, job, SHOWN_SECONDS).result for query in queries]


def draw(chromium: "Browser", site: Path, data: dict[str, Any], file: Path) -> None:
    """Write one picture."""
    scale = SCALE if data["rows"] else SCALE_OF_WHOLE_BOARDS
    with closing(chromium.new_page(viewport={"width": 1600, "height": 200}, device_scale_factor=scale)) as page:
        page.goto((site / "page.html").as_uri())
        page.evaluate("data => show(data)", data)
        page.screenshot(path=file, full_page=True)


def set_up(site: Path, node: Path) -> None:
    """Put the page that draws the pictures and the files that it needs into one folder."""
    site.mkdir(exist_ok=True)
    uplot = node / "node_modules" / "uplot" / "dist"
    for file in (*(HERE / name for name in FILES), uplot / "uPlot.min.css", uplot / "uPlot.iife.min.js"):
        shutil.copy(file, site)


def main() -> None:
    """Cause the troubles, run the queries, and draw the pictures."""
    arguments = _arguments()
    site = arguments.node.resolve() / "site"
    set_up(site, arguments.node)
    arguments.folder.mkdir(exist_ok=True)
    data: dict[str, dict[str, Any]] = {}
    for start in range(0, len(TROUBLES), AT_ONCE):
        data |= gathered([*TROUBLES][start : start + AT_ONCE], arguments.folder)
    with sync_playwright() as playwright, closing(playwright.chromium.launch(executable_path=binary())) as chromium:
        for name, each in data.items():
            draw(chromium, site, each, arguments.folder / f"{name}.png")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make pictures", description=__doc__)
    parser.add_argument("--node", type=Path, required=True, help="where npm has installed package.json")
    parser.add_argument("--folder", type=Path, required=True, help="where the pictures go")
    return parser.parse_args()


if __name__ == "__main__":
    main()
