"""docs/glossary.md has one term for each thing and one meaning for each term. It names the standard word for each
term.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import pytest

from support.prose import ROOT, markdown_files

PAGE: Final = ROOT / "docs" / "glossary.md"
MOST_TERMS: Final = 70
SAME: Final = "the same"  # the term is itself the standard word
_ROW: Final = re.compile(r"^\| \*\*(?P<term>[^*|]+)\*\* \|(?P<standard>[^|]*)\|(?P<meaning>[^|]*)\|$", re.MULTILINE)
_LINE: Final = re.compile(r"^\| (?!term |-).*$", re.MULTILINE)
_TWO_MEANINGS: Final = re.compile(r"(?:^|[.;] )(?:Also|also|Or|In another sense|1\.|\(1\))\b")
_CODE: Final = re.compile(r"`[^`]*`")
_TERM_IN_TEXT: Final = re.compile(r"(?<!\*)\*(?P<term>[^*]+)\*(?!\*)")
_LINK: Final = re.compile(r"glossary\.md#(?P<anchor>[\w-]+)")


class Term(NamedTuple):
    """A row of the glossary."""

    name: str
    standard: tuple[str, ...]  # the words of other systems, or an empty tuple if the term is itself the standard word
    meaning: str


def terms_in(text: str) -> list[Term]:
    """Return the rows of a glossary's tables, in order."""
    return [
        Term(found["term"], _words(found["standard"].strip()), found["meaning"].strip())
        for found in _ROW.finditer(text)
    ]


def _words(cell: str) -> tuple[str, ...]:
    return () if cell == SAME else tuple(cell.split(", "))


def _key(word: str) -> str:
    return word.strip().lower().removesuffix("s")


def homonyms(terms: Sequence[Term]) -> list[str]:
    """Return the words that have two meanings. These are terms that have two rows or two meanings, and standard words
    that are also terms for something else.
    """
    rows = Counter(_key(term.name) for term in terms)
    ambiguous = [term.name for term in terms if rows[_key(term.name)] > 1 or _TWO_MEANINGS.search(term.meaning)]
    return ambiguous + [word for term in terms for word in term.standard if _key(word) in rows]


def synonyms(terms: Sequence[Term]) -> list[str]:
    """Return the standard words that are listed for more than one term."""
    uses = Counter(_key(word) for term in terms for word in term.standard)
    return [word for term in terms for word in term.standard if uses[_key(word)] > 1]


def undefined(terms: Sequence[Term]) -> list[str]:
    """Return the words in italics that are not terms of the glossary."""
    known = {_key(term.name) for term in terms}
    italics = [found["term"] for term in terms for found in _TERM_IN_TEXT.finditer(_CODE.sub("", term.meaning))]
    return [word for word in italics if _key(word) not in known]


TERMS: Final = terms_in(PAGE.read_text(encoding="utf-8"))


def test_the_glossary_has_at_most_seventy_terms() -> None:
    assert 0 < len(TERMS) <= MOST_TERMS


def test_each_row_has_a_term_a_standard_word_and_a_meaning() -> None:
    assert len(_LINE.findall(PAGE.read_text(encoding="utf-8"))) == len(TERMS)
    assert [term.name for term in TERMS if "" in term.standard or not term.meaning] == []


def test_the_glossary_has_no_homonyms_and_no_synonyms() -> None:
    assert homonyms(TERMS) == []
    assert synonyms(TERMS) == []
    assert undefined(TERMS) == []


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("| **turn** | round trip | a call |\n| **Turns** | share | a queue's place |", ["turn", "Turns"]),
        ("| **claim** | fetch | to take tasks. Also the tasks of one call |", ["claim"]),
        ("| **claim** | lease | to take tasks |\n| **lease** | the same | a time |", ["lease"]),
        ("| **claim** | fetch, dequeue | to take tasks |\n| **lease** | the same | a time |", []),
    ],
)
def test_the_glossary_check_finds_words_with_two_meanings(rows: str, words: list[str]) -> None:
    assert homonyms(terms_in(rows)) == words


def test_the_glossary_check_finds_things_with_two_words() -> None:
    rows = "| **release** | requeue | to give back |\n| **return** | requeue, nack | to give back |"
    assert synonyms(terms_in(rows)) == ["requeue", "requeue"]


def test_links_to_the_glossary_lead_to_a_heading() -> None:
    headings = {
        heading.lower().replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", PAGE.read_text(), re.MULTILINE)
    }
    anchors = {anchor for page in markdown_files() for anchor in _LINK.findall(page.read_text(encoding="utf-8"))}
    assert anchors - headings == set()
