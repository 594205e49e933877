"""Phrases of the early dialect, the unusual English in which the project was first written. This module finds them in
docstrings, comments and pages.

Each pattern has the plain wording beside it. The patterns are regular expressions that ignore case.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from support.prose import ROOT

PATTERNS: Final = {
    r"\b(?:is|are|was|were|be|been|being) told\b": "is notified, receives, learns",
    r"\btells? of\b": "reports",
    r"\b(?:that|(?<!, )which|what) (?:is|are|was|were) none\b": "not a valid ...",
    r"\bwhat (?:is|are|was|were) no\b": "anything that is not a ...",
    r"\b(?:time|limit|life|lease|deadline|minute|second|window)s? (?:is|are|was|were) over\b": "has expired, has ended",
    r"\bfor (?:ever|good)\b": "forever, permanently",
    r"\banew\b": "again",
    r"\b(?:goes|go|going|went) by\b": "is based on, uses",
    r"(?:^|[.;:] )Of (?:what|which|these|it|a|an)\b": "name the subject first",
    r"\b(?:whoever|who (?:asks?|claims?|reads?|waits?|runs|holds|serves|dies|lives|looks))\b": "the worker, the client",
    r"\b(?:for|by|in) so (?:many|long|often)\b": "give the number",
    r"\bin hand\b": "claimed, running",
    r"\bnow and then\b": "from time to time",
    r"\ball the same\b": "anyway, still",
    r"\bfor want of\b": "because ... is missing",
    r"\bfor its (?:own )?sake\b": "for no other reason",
    r"\b(?:is|are|was|were|be) (?:looked|waited) (?:at|for)\b": "is read, is checked; waits for",
    r"\b(?:comes?|came|coming) (?:upon|of|about|round)\b": "finds, results from, happens, recurs",
    r"\b(?:stands?|stood) (?:in|at|behind|before|first|under|beside|above)\b": "is in, is stored in",
}
HEADLESS: Final = re.compile(r"(?:What|Where|How|Of|As|By|The same|Those|It)\b")
_ANY: Final = re.compile("|".join(f"(?:{pattern})" for pattern in PATTERNS), re.IGNORECASE)
_LUA_COMMENT: Final = re.compile(r"--(?!\[)(.*)")
_SOURCES: Final = ("workers", "supervisor")


class Passage(NamedTuple):
    """A docstring, a comment or a page."""

    file: Path
    line: int
    text: str
    is_docstring: bool


class Count(NamedTuple):
    """The number of phrases of the early dialect, and the number of docstrings that begin with neither a subject nor a
    verb.
    """

    phrases: int
    headless_openings: int


def passages() -> Iterator[Passage]:
    """Yield each docstring and comment of the product, and each page except the changelog."""
    for folder in _SOURCES:
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield from _docstrings(file)
            yield from _comments(file)
        for file in sorted((ROOT / folder).rglob("*.lua")):
            yield from _lua_comments(file)
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        if page.name != "CHANGELOG.md":
            yield Passage(page, 1, page.read_text(encoding="utf-8"), is_docstring=False)


def phrases_in(text: str) -> list[str]:
    """Return the phrases of the dialect in a text, in order."""
    return [found.group() for found in _ANY.finditer(" ".join(text.split()))]


def is_headless(passage: Passage) -> bool:
    """Whether a docstring opens with neither a subject nor a verb."""
    return passage.is_docstring and HEADLESS.match(passage.text) is not None


def counted() -> Count:
    """Count the phrases and the headless docstrings of the whole product."""
    everything = list(passages())
    return Count(
        sum(len(phrases_in(each.text)) for each in everything),
        sum(is_headless(each) for each in everything),
    )


def _docstrings(file: Path) -> Iterator[Passage]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield Passage(file, getattr(node, "lineno", 1), text, is_docstring=True)


def _comments(file: Path) -> Iterator[Passage]:
    for token in tokenize.generate_tokens(io.StringIO(file.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield Passage(file, token.start[0], token.string.lstrip("# "), is_docstring=False)


def _lua_comments(file: Path) -> Iterator[Passage]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if found := _LUA_COMMENT.search(line):
            yield Passage(file, number, found[1].strip(), is_docstring=False)
