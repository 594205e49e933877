"""docs/troubles.md describes every trouble of the bench in order. For each trouble, the page has the alerts, the
pictures, and the first line of the status page and of `rota top`.
"""

import re

from support.prose import ROOT
from troubles.answers import ANSWERS
from troubles.catalogue import TROUBLES

TEXT = (ROOT / "docs" / "troubles.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| [A-Z].*$", TEXT, re.MULTILINE)


def test_the_troubles_page_names_the_alerts_of_every_trouble() -> None:
    told = [tuple(re.findall(r"\[(Rota\w+)\]\(runbook\.md#(?:rota\w+)\)", row)) for row in ROWS]
    assert told == [ANSWERS[name].right + ANSWERS[name].also for name in TROUBLES]


def test_the_troubles_page_quotes_the_headline_of_the_status_page() -> None:
    said = [row.split(" | ")[-1].replace("*", "") for row in ROWS]
    assert [
        name for name, line in zip(TROUBLES, said, strict=True) if not re.search(ANSWERS[name].headline, line)
    ] == []


def test_the_troubles_page_has_two_pictures_of_each_trouble() -> None:
    shown = re.findall(r"\(images/([\w-]+)\.png\)", TEXT)
    assert shown == [f"{kind}-{name}" for name in TROUBLES for kind in ("page", "trouble")]
    assert set(shown) <= {path.stem for path in (ROOT / "docs" / "images").iterdir()}
