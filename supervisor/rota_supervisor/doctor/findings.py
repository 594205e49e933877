"""Findings, their order, and the exit code that follows from them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from rota_supervisor.doctor.finding_kinds import FINDINGS, FindingKind, Severity
from rota_supervisor.exits import ExitCode

_ORDER: Final = tuple(Severity)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of an examination."""

    id: str  # the id of the kind of finding
    seen: str  # what was found, with the values

    @property
    def kind(self) -> FindingKind:
        return FINDINGS[self.id]

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON, with the texts of its kind."""
        kind = self.kind
        return {
            "id": self.id,
            "severity": kind.severity.value,
            "seen": self.seen,
            "means": kind.means,
            "remedy": kind.remedy,
        }


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, the worst first. Findings of the same severity are in the order of the table."""
    places = {name: place for place, name in enumerate(FINDINGS)}
    return sorted(findings, key=lambda found: (_ORDER.index(found.kind.severity), places[found.id]))


def exit_code_of(findings: Iterable[Finding], *, strict: bool) -> ExitCode:
    """Return the exit code of an examination. If there are several errors, code 78 takes precedence over 69, and 69
    over 1. With `strict`, warnings count as errors."""
    found = list(findings)
    codes = {each.kind.code for each in found if each.kind.severity is Severity.ERROR}
    for code in (ExitCode.CONFIG, ExitCode.UNREACHABLE, ExitCode.NO):
        if code in codes:
            return code
    warned = any(each.kind.severity is Severity.WARNING for each in found)
    return ExitCode.NO if strict and warned else ExitCode.CLEAN
