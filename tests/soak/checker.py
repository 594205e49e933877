"""The checker of a soak's evidence: `python -m soak.checker FOLDER` prints the findings, and fails if there are any.

The checker reads the recorded requests, runs, faults and logs, and nothing that is stored in Redis. Some promises have
exceptions after a fault. The checker accepts an exception only if such a fault is recorded at that time for the process
or node in question.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from soak import counters, fates, orders, repeats, waits
from soak.case import Case
from soak.evidence import Evidence, RunEvent
from soak.findings import CheckResult, Finding
from soak.reading import read_evidence
from soak.timeline import timeline

Check = Callable[[Case], Iterator[Finding]]
CHECKS: Final[tuple[Check, ...]] = (
    fates.lost,
    fates.phantoms,
    repeats.repeats,
    orders.early,
    orders.ahead,
    orders.out_of_order,
    orders.unfair,
    orders.not_unique,
    waits.waited,
    waits.slow_recoveries,
    counters.deaths_without_cause,
    counters.leases_without_cause,
    counters.counters_off,
    counters.left_over,
)
_SHOWN: Final = 20


def judge(evidence: Evidence) -> CheckResult:
    """Run all checks. Return the findings, earliest first, and the measurements."""
    case = Case(evidence)
    found = [finding for check in CHECKS for finding in check(case)]
    return CheckResult(tuple(sorted(found, key=lambda each: each.boot)), numbers_of(case))


def numbers_of(case: Case) -> dict[str, float]:
    """Return the counts and measurements by name. `forgiven` counts the accepted tasks that never started, but for a
    permitted reason: the server was killed and may have forgotten them. A recovery is timed only if no other fault
    interfered with it.
    """
    histories = case.histories.values()
    again = [pair for history in histories for pair in pairwise(history.runs) if not pair[0].did(RunEvent.RAISED)]
    of_workers = [each.seconds for each in waits.recoveries(case, of_nodes=False)]
    of_nodes = [each.seconds for each in waits.recoveries(case, of_nodes=True)]
    gone = [h for h in histories if h.accepted and not h.runs and fates.is_gone_with_the_server(case.causes, h)]
    return {
        "sent": sum(history.request is not None for history in histories),
        "accepted": sum(history.accepted is not None for history in histories),
        "starts": sum(len(history.runs) for history in histories),
        "starts by an earlier version": sum(run.start.is_earlier for history in histories for run in history.runs),
        "ended": sum(bool(history.ends) for history in histories),
        "failures": sum(history.count(RunEvent.RAISED) for history in histories),
        "started again after a fault": len(again),
        "forgiven": len(gone),
        "faults": len(case.causes.spans),
        "recoveries of killed workers' tasks": len(of_workers),
        "recovery p50 seconds": round(waits.percentile(of_workers, 0.5), 3),
        "recovery p99 seconds": round(waits.percentile(of_workers, 0.99), 3),
        "recoveries of lost nodes' tasks": len(of_nodes),
        "node recovery worst seconds": round(max(of_nodes, default=0.0), 3),
    }


def report(evidence: Evidence, result: CheckResult) -> Iterator[str]:
    """Yield the lines of the report: the numbers, the findings, and the timeline of the first affected task."""
    setup = evidence.setup
    yield f"seed {setup.seed}, profile {setup.profile}"
    yield from (f"{value:>10g}  {name}" for name, value in result.numbers.items())
    counts = Counter(finding.wrong for finding in result.findings)
    for wrong, count in counts.items():
        yield f"{wrong.value.upper()}: {count}"
    for finding in result.findings[:_SHOWN]:
        yield f"  {finding.wrong}: {finding.task_id or '-'}: {finding.text}"
    first = next((finding.task_id for finding in result.findings if finding.task_id), "")
    if first:
        yield f"the task {first}:"
        yield from (f"  {line}" for line in timeline(Case(evidence), first))
    yield "nothing is wrong" if not result.findings else f"{len(result.findings)} findings"


def main(arguments: list[str]) -> int:
    """Check the evidence in a folder, print the report, and return the exit code."""
    evidence = read_evidence(Path(arguments[0]))
    result = judge(evidence)
    sys.stdout.writelines(f"{line}\n" for line in report(evidence, result))
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
