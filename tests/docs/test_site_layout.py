"""How the site's tables look on a phone, by the theme's own style and ours."""

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


@pytest.mark.parametrize("words", ["metrics.lag_objective_seconds, alerts.forgotten_seconds", "x" * 200])
def test_a_table_of_options_fits_on_a_phone(words: str, tmp_path: Path, open_tab: TabOpener) -> None:
    page = tmp_path / "page.html"
    page.write_text(_page(words))
    tab = open_tab(page.as_uri(), width=390, height=844, has_touch=True, is_mobile=True)
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.page.evaluate("document.querySelector('table').getBoundingClientRect().right <= innerWidth")
    wrapper = "getComputedStyle(document.querySelector('.table-wrapper'))"
    assert tab.page.evaluate(f"{wrapper}.overflowX") == "auto"
