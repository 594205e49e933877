"""Markdown as the tests read it: pages, code blocks, and what a block asks a test to do with it.

A comment before a block, unseen by readers, says what to do: `<!-- test: file NAME -->` write it to a file,
`<!-- test: append NAME -->` add it to that file, `<!-- test: run -->` run it in a shell, `<!-- test: output -->`
compare it with what that wrote, where `...` stands for anything, `<!-- test: start -->` start it and go on once the
fleet is ready, `<!-- test: install -->` run it where Rota is not installed yet.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(
    r"(?:^<!-- test: (?P<verb>\w+) ?(?P<argument>\S*) -->\n)?^```(?P<language>\w*)[^`\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `verb` says what to do with it, "" when it is only to be read."""

    page: Path
    line: int
    language: str
    text: str
    verb: str
    argument: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def markdown_files() -> list[Path]:
    """Every page of the project: at the top, and in the folders that hold prose."""
    folders = ("docs", "examples", "benchmarks", "deploy", "grafana")
    pages = [page for folder in folders for page in (ROOT / folder).rglob("*.md") if "node_modules" not in page.parts]
    return sorted([*ROOT.glob("*.md"), *pages])


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            found["text"],
            found["verb"] or "",
            found["argument"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def verbs(page: Path) -> set[str]:
    """What a page asks tests to do."""
    return {block.verb for block in blocks(page)} - {""}
