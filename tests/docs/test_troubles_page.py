"""docs/troubles.md tells of every trouble of the bench, in its order, and of the alerts that it raises."""

import re

from prose import ROOT
from troubles.answers import ANSWERS
from troubles.catalogue import TROUBLES


def test_the_page_names_the_alerts_of_every_trouble() -> None:
    text = (ROOT / "docs" / "troubles.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [A-Z].*$", text, re.MULTILINE)
    told = [tuple(re.findall(r"\[(Rota\w+)\]\(runbook\.md#(?:rota\w+)\)", row)) for row in rows]
    assert told == [ANSWERS[name].right + ANSWERS[name].also for name in TROUBLES]
