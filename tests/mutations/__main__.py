"""Known bugs are put back one at a time, and each must be caught: `make mutation`.

Each is put into a copy of the product and run before what is to catch it, the soak with a narrow profile wherever
that can. It is caught when a finding of the expected kind is made within its budget. What catches is also run
without a bug, and must find nothing. A mutation names a function of the product, and says what it does instead. When
there is no such function any more that is a failure: the mutation has to follow the product.
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
    """Try them all; 1 when one was not caught, or a control failed."""
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
    sys.stdout.write(f"\n{len(outcomes) - len(failed)} of {len(outcomes)} as they should be\n")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutation", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], metavar="PART", help="those with one of these in their name")
    parser.add_argument(
        "--short", action="store_true", help="leave out the runs without a bug: a build has them elsewhere"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what came of it as JUnit does")
    parser.add_argument("--jobs", type=int, default=3, help="how many at once; default 3")
    return parser.parse_args()


def _performed(mutations: Sequence[Mutation], jobs: int, *, controls: bool) -> Iterator[Outcome]:
    """Perform, and print a row each as they end."""
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
