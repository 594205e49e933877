"""The results of the mutations as a JUnit report, which any tool for pytest's JUnit reports can read."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from mutations.trial import Outcome


def as_junit(outcomes: Sequence[Outcome]) -> bytes:
    """Return a JUnit report with a test case for each trial."""
    failed = sum(not outcome.is_well for outcome in outcomes)
    suite = Element("testsuite", name="mutations", tests=str(len(outcomes)), failures=str(failed))
    for outcome in outcomes:
        name = f"{outcome.trial.name} ({outcome.trial.catcher.name})"
        case = SubElement(suite, "testcase", classname="mutations", name=name, time=f"{outcome.seconds:.1f}")
        if not outcome.is_well:
            SubElement(case, "failure").text = _legible(f"{outcome.words}\n{outcome.said}")
    return tostring(suite)


def _legible(text: str) -> str:
    """Return a program's output without the characters that XML does not permit."""
    return "".join(letter for letter in text if letter.isprintable() or letter == "\n")
