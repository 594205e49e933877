"""Every link inside the repository leads somewhere."""

import re
from pathlib import Path

import pytest

from prose import ROOT, markdown_files

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
_ELSEWHERE = ("http://", "https://", "mailto:")


def _text(path: Path) -> str:
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def _anchors(path: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them from its headings."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(_text(path)))
    return {word.strip().replace(" ", "-") for word in words}


def _fault(page: Path, target: str) -> str | None:
    file, _, anchor = target.partition("#")
    path = (page.parent / file).resolve() if file else page
    if not path.is_relative_to(ROOT) or not path.exists():
        return f"{target}: no such file"
    if anchor and path.suffix == ".md" and anchor not in _anchors(path):
        return f"{target}: no such heading"
    return None


@pytest.mark.parametrize("page", markdown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target in _LINK.findall(_text(page)) if not target.startswith(_ELSEWHERE)]
    assert [fault for target in targets if (fault := _fault(page, target))] == []
