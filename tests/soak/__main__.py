"""The soak, `make soak`: run a fleet under faults for a given time, and prove that nothing was lost.

The seed determines which faults happen and when. A second run with the same seed repeats the faults but not every step,
because the effects of the faults depend on the machine.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from soak.checker import judge, report
from soak.evidence import Edge, Evidence
from soak.faults import PROFILES, has_hosts
from soak.idle import ROLES
from soak.plan import plan_from, plan_of
from soak.reading import read_evidence
from soak.run import Ran, Wanted, soak
from support.earlier_version import NoEarlierVersion
from support.hosts import obstacle
from support.servers import server_binaries


def _arguments() -> argparse.Namespace:
    servers = sorted(server_binaries())
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--profile", choices=sorted(PROFILES), default="everything")
    parser.add_argument("--seconds", type=float, default=120.0, help="for how long faults are done; default 120")
    parser.add_argument("--seed", type=int, help="which faults come when; default: another one each time")
    parser.add_argument("--server", choices=servers, default="redis" if "redis" in servers else "valkey")
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar='"NAME TARGET AT SECONDS"',
        help="do exactly this, and what else is given so, instead of what is drawn; as in --fault 'stop_node a 1 8'",
    )
    parser.add_argument("--folder", type=Path, help="where the evidence goes; default: a new folder")
    parser.add_argument("--keep", action="store_true", help="keep the evidence, whatever was found")
    return parser.parse_args()


def main() -> None:
    """Run a soak, check its evidence, and print the result. The exit code is 1 if there are findings."""
    given = _arguments()
    seed = int(time.time()) % 1_000_000 if given.seed is None else given.seed
    plan = plan_from(given.fault) if given.fault else plan_of(given.profile, given.seconds, seed)
    wanted = Wanted(given.profile, given.seconds, seed, given.server, plan)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="rota-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    if has_hosts(wanted.profile) and (reason := obstacle()):
        sys.exit(reason)
    print_line(f"profile {wanted.profile}, {wanted.seconds:g} s, seed {seed}, {wanted.server}: {folder}")
    try:
        ran = soak(wanted, folder)
    except NoEarlierVersion as error:
        sys.exit(str(error))
    is_well = print_result(read_evidence(folder), ran)
    print_line(f"again: {_again(wanted, given.fault)}")
    if is_well and not given.keep:
        shutil.rmtree(folder)
    else:
        print_line(f"the evidence: {folder}; to judge it again: PYTHONPATH=tests python -m soak.checker {folder}")
    sys.exit(not is_well)


def print_result(evidence: Evidence, ran: Ran) -> bool:
    """Check the evidence, print the verdict, and return whether the run passed."""
    result = judge(evidence)
    odd = [f"ODD: {each}" for each in ran.oddities]
    for line in (*faults_by_kind(evidence), *held(ran), *report(evidence, result), *odd):
        print_line(line)
    return not (odd or result.findings)


def _again(wanted: Wanted, faults: list[str]) -> str:
    given = " ".join(f"--fault '{each}'" for each in faults)
    command = f"make soak SECONDS={wanted.seconds:g} PROFILE={wanted.profile} SEED={wanted.seed} SERVER={wanted.server}"
    return f'{command} SOAK_ARGS="{given}"' if given else command


def print_line(line: str) -> None:
    """Print a line and flush it."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def faults_by_kind(evidence: Evidence) -> list[str]:
    """Return a line for each kind of fault, with the number of times that it occurred."""
    counts = Counter(strike.fault for strike in evidence.strikes if strike.what is Edge.BEGIN)
    return [f"{count:>10}  {fault}" for fault, count in sorted(counts.items())]


def held(ran: Ran) -> Iterator[str]:
    """Yield a line for each role, which compares two moments: before the first task, and in the quiet window. For each
    moment, it has the largest number of descriptors and the largest memory of any process of the role.
    """
    for role in ROLES:
        then = ran.at_start.most(role)
        today = ran.at_end.most(role)
        descriptors = f"{then.descriptors} -> {today.descriptors} descriptors"
        yield f"{role:>10}  {descriptors}, {then.memory_mb:.1f} -> {today.memory_mb:.1f} MB"


if __name__ == "__main__":
    main()
