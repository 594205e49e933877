"""The project's Markdown pages, for tests: the code blocks, and the test instructions in comments.

A comment before a block tells the tests what to do with the block. Readers of the page do not see the comment:

* `<!-- test: file NAME -->`: write the block to a file;
* `<!-- test: append NAME -->`: append it to that file;
* `<!-- test: run -->`: run it in a shell;
* `<!-- test: output -->`: compare it with the output of that run, where `...` matches anything;
* `<!-- test: start -->`: start it, and continue when the fleet is ready;
* `<!-- test: serve -->`: start a server with the options of this command, and continue when the server is ready;
* `<!-- test: install -->`: run it in an environment without Rota.
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
    """A fenced block. `verb` is the block's test instruction, or "" if there is none."""

    page: Path
    line: int
    language: str
    text: str
    verb: str
    argument: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def markdown_files() -> list[Path]:
    """Return every page of the project, from the top folder and the folders with pages."""
    folders = ("docs", "examples", "benchmarks", "deploy", "grafana")
    pages = [page for folder in folders for page in (ROOT / folder).rglob("*.md") if "node_modules" not in page.parts]
    return sorted([*ROOT.glob("*.md"), *pages])


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
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


def table(page: Path, name: str) -> list[list[str]]:
    """Return the cells of the table between `<!-- table: NAME -->` and `<!-- table: end -->`, including its header."""
    text = page.read_text(encoding="utf-8").partition(f"<!-- table: {name} -->")[2].partition("<!-- table: end -->")[0]
    head, _, *rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in (head, *rows)]


def verbs(page: Path) -> set[str]:
    """Return the test instructions of a page."""
    return {block.verb for block in blocks(page)} - {""}
