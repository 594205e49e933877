"""The layout of the site's tables on a phone, under the style sheet of the theme and that of this project."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from support.browser import TabOpener

OURS = Path(__file__).parents[2] / "docs" / "site" / "static" / "site.css"
FURO = find_spec("furo")
assert FURO is not None, "make installs it"
assert FURO.origin is not None
THEME = Path(FURO.origin).parent / "theme" / "furo" / "static" / "styles" / "furo.css"
ROW = "<tr><td><code>{}</code></td><td><code>{}</code></td><td>what <code>{}</code> means, in some more words</td></tr>"


def _page(words: str) -> str:
    styles = "".join(f'<link rel="stylesheet" href="{style.as_uri()}">' for style in (THEME, OURS))
    row = ROW.format(words, words, words)
    return (
        f'<!doctype html><meta name="viewport" content="width=device-width">{styles}<article>'
        f'<div class="table-wrapper docutils container"><table class="docutils">{row}</table></div></article>'
    )


LONG = "metrics.lag_objective_seconds_and_more_of_it"
WRAPPER = "document.querySelector('.table-wrapper')"


@pytest.mark.parametrize(("words", "scrolls"), [("workers", False), (LONG, True), ("x" * 200, True)])
def test_wide_tables_scroll_on_a_phone(words: str, scrolls: bool, tmp_path: Path, open_tab: TabOpener) -> None:
    page = tmp_path / "page.html"
    page.write_text(_page(words))
    tab = open_tab(page.as_uri(), width=390, height=844, has_touch=True, is_mobile=True)
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.page.evaluate(f"{WRAPPER}.scrollWidth > {WRAPPER}.clientWidth") is scrolls
    assert tab.page.evaluate(f"getComputedStyle({WRAPPER}).overflowX") == "auto"
    lines = "[...document.querySelectorAll('td:not(:last-child) code')].map(code => code.getClientRects().length)"
    assert tab.page.evaluate(lines) == [1, 1], "no name breaks inside"
