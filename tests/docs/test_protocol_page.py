"""docs/protocol.md names every script, every key and every option of a body."""

import re

from rota.protocol.scripts import script_names
from rota.tasks.options import OPTIONS_OF_A_CALL
from support.prose import ROOT

PAGE = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")


def test_the_protocol_page_names_every_script() -> None:
    table = PAGE.split("\n## Transitions\n", 1)[1].split("\n### ", 1)[0]
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \| ", table, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row)]
    assert sorted(named) == script_names()


def test_the_protocol_page_names_every_option_of_a_task_body() -> None:
    (said,) = re.findall(r"`options`\s+\((.*?)\)", PAGE, re.DOTALL)
    assert tuple(re.findall(r"`(\w+)`", said)) == OPTIONS_OF_A_CALL
