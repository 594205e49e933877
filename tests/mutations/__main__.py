"""Reintroduce known bugs one at a time, and check that each is caught: `make mutation`.

Each bug is put into a copy of the product, and a catcher runs on this copy. The catcher is a short soak with chosen
faults if such a soak finds the bug, and a test otherwise. The bug is caught if the catcher reports a finding of the
expected kind in time. Each catcher also runs without a bug, and must then find nothing. A mutation names a function of
the product and replaces its behavior. If the product no longer has that function, the run fails, and the mutation must
be adapted.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from mutations.catalogue import MUTATIONS, Mutation
from mutations.report import as_junit
from mutations.trial import Outcome, perform, trials_of

_WIDTH: Final = 90


def main() -> int:
    """Try the chosen mutations. Return 1 if a mutation was not caught or a control found something, and 0 otherwise."""
    given = _arguments()
    chosen = [each for each in MUTATIONS if any(part in each.name for part in given.only)]
    if not chosen:
        sys.stdout.write(f"no mutation has any of {given.only} in its name\n")
        return 2
    outcomes = list(_performed(chosen, given.jobs, controls=not given.short))
    failed = [outcome for outcome in outcomes if not outcome.is_well]
    if given.report:
        given.report.write_bytes(as_junit(outcomes))
    for outcome in failed:
        sys.stdout.write(f"\n{outcome.trial.name} ({outcome.trial.catcher.name}): {outcome.words}\n{outcome.said}\n")
    sys.stdout.write(f"\n{len(outcomes) - len(failed)} of {len(outcomes)} as expected\n")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutation", description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        metavar="PART",
        help="try only mutations with one of these texts in their name",
    )
    parser.add_argument(
        "--short", action="store_true", help="leave out the runs without a bug, which a build makes elsewhere"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the results as a JUnit report")
    parser.add_argument("--jobs", type=int, default=3, help="number of mutations to try at once; default 3")
    return parser.parse_args()


def _performed(mutations: Sequence[Mutation], jobs: int, *, controls: bool) -> Iterator[Outcome]:
    """Run the trials, and print a row for each trial as soon as it has ended."""
    sys.stdout.write("| mutation | caught by | finding | seconds |\n|---|---|---|---:|\n")
    trials = [trial for trial in trials_of(mutations) if controls or not trial.is_control]
    with ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(perform, trials):
            sys.stdout.write(f"{_row(outcome)}\n")
            sys.stdout.flush()
            yield outcome


def _row(outcome: Outcome) -> str:
    trial, mark = outcome.trial, "" if outcome.is_well else "**FAILURE** "
    words = outcome.words if len(outcome.words) <= _WIDTH else f"{outcome.words[: _WIDTH - 3]}..."
    return f"| {trial.name} | {trial.catcher.name} | {mark}{words} | {outcome.seconds:.0f} |".replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
