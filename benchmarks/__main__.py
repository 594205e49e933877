"""`make bench`: measures Rota, the classic loop, the limits of redis-py and well-known systems on one private server.

Each round measures every contender once, in rotated order. Compare only the ratios between contenders in a round,
because the rates depend on the machine.
"""

import argparse
import dataclasses
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import growth, limits, page, targets
from benchmarks.contender import ROOT, Contender
from benchmarks.contenders import CONTENDERS, OWN, PEERS, rivals
from benchmarks.contenders.python import PEERS_PYTHON
from benchmarks.contenders.raw import RAW
from benchmarks.contenders.rota import ROTA
from benchmarks.effort import FULL, QUICK, Effort
from benchmarks.measures import MEASURES
from benchmarks.numbers import Result
from benchmarks.processes import adopt_orphans
from benchmarks.record import record
from benchmarks.report import table
from benchmarks.rounds import Failure, run_rounds, say
from benchmarks.testbed import Testbed
from support.servers import Server, server_binaries

RESULTS = ROOT / "benchmarks" / "results"
ALL_MEASURES = [limits.NAME, *MEASURES, growth.NAME]


def names(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a parser for an argument of the command line that lists some of the `known` names, separated by commas."""

    def parse(text: str) -> list[str]:
        given = [one.strip() for one in text.split(",")]
        unknown = [one for one in given if one not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
        return given

    return parse


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one round with rota, classic and raw: two minutes at most"
    )
    parser.add_argument("--only", type=names(list(CONTENDERS)), help="contenders, separated by commas")
    parser.add_argument("--measure", type=names(ALL_MEASURES), help="measurements, separated by commas")
    parser.add_argument("--rounds", type=int, help="rounds of fast measurements; slow ones have a third of them")
    parser.add_argument("--server", choices=sorted(server_binaries()), help="default: redis if it is on the PATH")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="store the numbers in benchmarks/results/reference.json, and the tables and plots in docs",
    )
    return parser.parse_args()


def main() -> None:
    """Run the measurements, print the results, and store them."""
    wanted = _arguments()
    effort = QUICK if wanted.quick else FULL
    if wanted.rounds:
        effort = dataclasses.replace(effort, rounds=wanted.rounds)
    chosen = wanted.only or [one.name for one in OWN if wanted.quick] or list(CONTENDERS)
    contenders = list(_installed(CONTENDERS[name] for name in chosen))
    binaries = server_binaries()
    kind = wanted.server or ("redis" if "redis" in binaries else "valkey")
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as name:
        server = Server(binaries[kind], Path(name)).start()
        try:
            recorded = _run(Testbed(server, Path(name)), contenders, wanted.measure or ALL_MEASURES, effort, kind)
        finally:
            server.stop()
    stamp = f"{datetime.now().astimezone():%Y-%m-%d-%H%M%S}"
    if wanted.publish:
        _keep(recorded, page.REFERENCE, ROOT / "docs" / "performance")
        page.write(page.REFERENCE)
    else:
        _keep(recorded, RESULTS / f"{stamp}.json", RESULTS / stamp)


def _installed(chosen: Iterable[Contender]) -> Iterator[Contender]:
    for one in chosen:
        if one in PEERS and one.package not in one.versions():
            say(f"{one.name}: left out, because it is not installed; benchmarks/README.md explains how to install it")
        else:
            yield one


def _run(
    testbed: Testbed, contenders: list[Contender], measures: list[str], effort: Effort, kind: str
) -> dict[str, Any]:
    results: list[Result] = []
    failures: list[Failure] = []
    for name in measures:
        say(name)
        for outcome in _outcomes(name, contenders, testbed, effort):
            if isinstance(outcome, Result):
                results.append(outcome)
            else:
                failures.append(outcome)
        print(_table(name, contenders, results, effort), end="\n\n", flush=True)
    for one in failures:
        print(f"failed: {one.measure}, round {one.round + 1}, {one.contender}: {one.why.splitlines()[0]}")
    print(targets.table(results, rivals([one.name for one in contenders])), flush=True)
    return record(results, failures, contenders, effort, _server_version(testbed, kind))


def _outcomes(name: str, contenders: list[Contender], testbed: Testbed, effort: Effort) -> Iterator[Result | Failure]:
    if name == growth.NAME:
        return growth.run_growth(testbed, effort) if ROTA in contenders else iter(())
    if name == limits.NAME:
        return limits.run_limits(testbed, effort) if RAW in contenders else iter(())
    return run_rounds(MEASURES[name], contenders, testbed, effort)


def _table(name: str, contenders: list[Contender], results: list[Result], effort: Effort) -> str:
    if name == growth.NAME:
        return growth.table(results, effort)
    if name == limits.NAME:
        return limits.table(results)
    return table(MEASURES[name], [one.name for one in contenders], results)


def _server_version(testbed: Testbed, kind: str) -> str:
    info = testbed.client.info("server")
    return f"{kind} {info.get('valkey_version', info['redis_version'])}"


def _keep(recorded: dict[str, Any], path: Path, plots: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(recorded) + "\n")
    say(f"raw numbers: {path.relative_to(ROOT)}")
    if not PEERS_PYTHON.exists():
        say("plots: none, because matplotlib is not installed; `make bench` installs it")
        return
    drawn = subprocess.run([str(PEERS_PYTHON), "-m", "benchmarks.plot", str(path), str(plots)], cwd=ROOT, check=False)
    say(f"plots: {plots.relative_to(ROOT)}" if drawn.returncode == 0 else "plots: they could not be drawn")


if __name__ == "__main__":
    main()
