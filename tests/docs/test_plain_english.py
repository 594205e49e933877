"""Docstrings, comments and pages are in plain English. The number of phrases from our early dialect may only
decrease.
"""

import json
from collections import Counter

import pytest

from support.plain_english import HEADLESS, Passage, counted, is_headless, passages, phrases_in
from support.prose import ROOT

CEILING = ROOT / "tests" / "docs" / "plain_english.json"
_SHOWN = 15


def _most_frequent() -> str:
    phrases = Counter(phrase.lower() for each in passages() for phrase in phrases_in(each.text))
    return ", ".join(f"{phrase} ({count})" for phrase, count in phrases.most_common(_SHOWN))


def test_the_number_of_phrases_of_our_early_dialect_never_increases() -> None:
    ceiling = json.loads(CEILING.read_text(encoding="utf-8"))
    count = counted()
    assert count.phrases <= ceiling["phrases"], f"rewrite the new ones; the most frequent: {_most_frequent()}"
    assert count.headless_openings <= ceiling["headless_openings"], "begin a docstring with a verb or a noun phrase"


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("The worker is told to leave", ["is told"]),
        ("a name that\nis none, and what is no number", ["that is none", "what is no"]),
        ("Returns. Of these the first is kept anew", [". Of these", "anew"]),
        ("The entry stands in the lane, and goes by its score", ["stands in", "goes by"]),
        ("Return the entries of a lane, which is none of the worker's concern", []),
    ],
)
def test_dialect_phrases_are_found_across_lines(text: str, phrases: list[str]) -> None:
    assert phrases_in(text) == phrases


@pytest.mark.parametrize("opening", ["What is held", "How long it lasts", "The same for groups", "It is closed"])
def test_a_docstring_without_subject_or_verb_is_found(opening: str) -> None:
    assert HEADLESS.match(opening)
    assert is_headless(Passage(CEILING, 1, opening, is_docstring=True))
    assert not is_headless(Passage(CEILING, 1, opening, is_docstring=False))
