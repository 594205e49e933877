"""docs/doctor.md agrees with the code."""

import re

from rota_supervisor.cli.doctor_verb import doctor
from rota_supervisor.doctor.bundle import README
from rota_supervisor.doctor.finding_kinds import FINDINGS
from support.prose import ROOT

PAGE = (ROOT / "docs/doctor.md").read_text(encoding="utf-8")


def test_the_doctor_page_lists_every_finding_with_its_remedy() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (error|warning|note) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
    expected = [(kind.id, kind.severity.value, kind.means, kind.remedy) for kind in FINDINGS.values()]
    assert rows == expected


def test_the_doctor_page_lists_every_option() -> None:
    rows = set(re.findall(r"^\| `(--[a-z-]+)", PAGE, re.MULTILINE))
    assert rows == {option for each in doctor.params for option in each.opts} - {
        "-c",
        "--config",
        "--json",
        "--no-color",
    }


def test_the_doctor_page_lists_every_file_of_the_archive() -> None:
    files = set(re.findall(r"^(\S+\.(?:json|txt)) ", README, re.MULTILINE))
    rows = re.findall(r"^\| ((?:`[a-z]+\.(?:json|txt)` ?)+)\|", PAGE, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([a-z.]+)`", row)} == files
