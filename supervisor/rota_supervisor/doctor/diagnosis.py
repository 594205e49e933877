"""The diagnosis: all findings that follow from the facts of an examination."""

from collections.abc import Callable, Iterator
from typing import Final

from rota_supervisor.doctor import fleet_rules, machine_rules, server_rules
from rota_supervisor.doctor.findings import Finding
from rota_supervisor.doctor.readings import Examination

Rule = Callable[[Examination], Iterator[Finding]]

RULES: Final[tuple[Rule, ...]] = (*machine_rules.RULES, *server_rules.RULES, *fleet_rules.RULES)


def diagnose(found: Examination) -> list[Finding]:
    """Return the findings of all rules, in the order of the rules."""
    return [finding for rule in RULES for finding in rule(found)]
