"""`rota demo`: run a fleet, kill a worker, and prove that no task was lost."""

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import psutil

import rota
from rota.display_text import printable
from rota_supervisor.cli import command, output
from rota_supervisor.demo.proof import FOLDER_VARIABLE, Check
from rota_supervisor.demo.scenario import NAMESPACE, SETTINGS, Demo, ended_by_itself
from rota_supervisor.embedded import embedded_server
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.master.shell.run import limit_faults
from rota_supervisor.testing import FleetFailed, FleetOfTest
from rota_supervisor.top.fleet_view import plain

SHORTEST_SECONDS: Final = 5.0
_SPACE_MB: Final = 8
_SPACE_MB_PER_SECOND: Final = 0.5  # for journals, the log and the append-only file; a demo of 30 s writes 8 MB
_GONE_SECONDS: Final = 3.0
_EXIT_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.5
_COLUMNS: Final = 110
_STAYS_UP: Final = """
The fleet stays up. Ctrl-C ends it.
  status page  http://{settings[http][listen]}/
  metrics      http://{settings[http][listen]}/metrics
  Redis        {settings[redis_url]}, namespace {settings[namespace]}
  inspect it   rota status -c {folder}/rota.toml"""


@click.command(cls=command.RotaCommand)
@click.option(
    "--seconds",
    type=command.DecimalNumber(min=SHORTEST_SECONDS, max=3600),
    default=30.0,
    show_default=True,
    help="Run the demo for about this many seconds.",
)
@click.option("--keep", is_flag=True, help="Keep the fleet running after the summary, until Ctrl-C.")
def demo(*, seconds: float, keep: bool) -> int:
    """Run a fleet, kill a worker, and check that no task is lost.

    The fleet has four workers and its own server. The demo also resizes its pool.
    """
    if not seconds < float("inf"):  # The range check of the option accepts NaN.
        raise click.BadParameter("--seconds must be a finite number")
    screen = Screen(command.current_state())
    _check_surroundings(seconds)
    with _folder() as folder:
        settings = {**SETTINGS, **_addresses()}
        screen.event(f"starting a Valkey server and a fleet of {settings['workers']}, in {folder}")
        with embedded_server(settings["redis_url"], folder), _fleet(folder, settings) as (fleet, ending):
            screen.event(f"ready; status page: http://{settings['http']['listen']}/")
            play = Demo(fleet, settings, seconds, screen.event, screen.watch)
            with screen.picture(folder):
                checks = play.run()
            screen.write(f"\n{plain(play.status, _COLUMNS)}\n")
            screen.show(checks)
            if keep:
                screen.write(_STAYS_UP.format(settings=settings, folder=folder))
                _wait_for_an_interrupt(fleet)
        screen.show(ending)
        screen.conclude(play, [*checks, *ending])
    return ExitCode.CLEAN


def _check_surroundings(seconds: float) -> None:
    """Raise Failure with code 73 if there is no folder for temporary files, or with code 78 if the folder or a limit of
    this process is too small."""
    try:
        folder = tempfile.gettempdir()
    except OSError as error:
        raise Failure(
            ExitCode.TAKEN, f"the demo needs a folder to write to: {error.strerror}: set TMPDIR to such a folder"
        ) from None
    faults = limit_faults()
    free_mb, needed_mb = shutil.disk_usage(folder).free >> 20, round(_SPACE_MB + _SPACE_MB_PER_SECOND * seconds)
    if free_mb < needed_mb:
        faults.append(f"{folder} has {free_mb} MB free, and the demo needs {needed_mb}: set TMPDIR to another folder")
    if faults:
        raise Failure(ExitCode.CONFIG, *faults)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Yield a temporary folder, and remove it at the end. If the demo fails, the folder is kept, because its journals
    and log show why.

    During the block, INT, TERM and HUP raise KeyboardInterrupt, except that HUP stays ignored under nohup. INT is
    handled even if the demo was started with `&`, which makes a shell's child ignore INT.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="rota-demo-"))
    os.environ[FOLDER_VARIABLE] = str(folder)  # The demo's tasks read this variable.
    try:
        yield folder
    except Exception:
        output.print_message(f"kept for inspection: {folder}, with the journals, rota.toml and fleet.log")
        raise
    except KeyboardInterrupt:
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


def _addresses() -> dict[str, Any]:
    """Return the settings of the demo's Redis server and exporter, with two ports that are currently free."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        redis_port = one.getsockname()[1]
        http_port = other.getsockname()[1]
    return {"redis_url": f"redis://127.0.0.1:{redis_port}/0", "http": {"listen": f"127.0.0.1:{http_port}"}}


@contextlib.contextmanager
def _fleet(folder: Path, settings: Mapping[str, Any]) -> Iterator[tuple[FleetOfTest, list[Check]]]:
    """Run the fleet in a separate session, and stop it at the end of the block. If this process dies, the fleet dies
    too. Yields the fleet, and a list to which the check of the fleet's exit is added at the end. Raises Failure if the
    fleet ends early or the producer cannot enqueue.
    """
    ending: list[Check] = []
    with rota.Client(settings["redis_url"], NAMESPACE) as client:
        fleet = FleetOfTest(client, folder, settings)
        try:
            fleet.start("-P", "-m", "rota_supervisor.process", str(os.getpid()), sys.executable, new_session=True)
            yield fleet, ending
        except FleetFailed:
            raise ended_by_itself(fleet) from None
        except rota.RotaError as error:
            deadline = time.monotonic() + _EXIT_SECONDS
            while fleet.exit_code is None and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            if fleet.exit_code is not None:
                raise ended_by_itself(fleet) from None
            raise Failure(ExitCode.NO, f"the producer could not enqueue: {error}") from None
        finally:
            ending.append(_end(fleet))


def _end(fleet: FleetOfTest) -> Check:
    has_ended = fleet.pid is None or fleet.exit_code is not None
    family = [] if has_ended else psutil.Process(fleet.pid).children(recursive=True)
    started_at = time.monotonic()
    code = fleet.stop()
    took = time.monotonic() - started_at
    left = [str(process.pid) for process in psutil.wait_procs(family, _GONE_SECONDS)[1]]
    seen = f"on TERM, in {took:.1f} s, exit code {code}, {', '.join(left) or 'nothing'} left running"
    return Check("the fleet left", code == 0 and not left, seen)


def _wait_for_an_interrupt(fleet: FleetOfTest) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        while fleet.exit_code is None:
            time.sleep(_POLL_SECONDS)
        raise ended_by_itself(fleet)


class Screen:
    """The output of the demo: lines of text, and also the view of `rota top` if the terminal can show it."""

    def __init__(self, state: command.CliState) -> None:
        self._state = state
        self._started_at = time.monotonic()
        self._top: subprocess.Popen[bytes] | None = None
        self._buffered: list[str] = []  # lines to write when the view is closed

    def write(self, line: str) -> None:
        """Write a line. While the view is open, the line is kept until the view is closed. With --json, lines go to
        standard error, because standard output contains only the document.
        """
        if self._top is not None:
            self._buffered.append(line)
        else:
            click.echo(line, err=self._state.json, color=False if self._state.no_color else None)

    def event(self, what: str) -> None:
        """Write an event, with the number of seconds since the demo began."""
        self.write(f"{time.monotonic() - self._started_at:5.1f} s  {printable(what)}")

    def watch(self) -> None:
        """Raise KeyboardInterrupt if the user has closed the view, or Failure if the view has failed."""
        code = None if self._top is None else self._top.poll()
        if code == 0:
            raise KeyboardInterrupt
        if code is not None:
            raise Failure(ExitCode.NO, "the display of the demo failed: set TERM=dumb to write plain lines instead")

    @contextlib.contextmanager
    def picture(self, folder: Path) -> Iterator[None]:
        """Show the view of `rota top` during the block, if the terminal can show it."""
        if not self._can_draw():
            yield
            return
        colors = ["--no-color"] * self._state.no_color
        command = [sys.executable, "-P", "-m", "rota_supervisor", "top", *colors, "-c", str(folder / "rota.toml")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
        self._top = subprocess.Popen(command, env=environment)  # noqa: S603 - our own interpreter and module
        try:
            yield
        finally:
            self._top.terminate()
            self._top.wait()
            self._top = None
            for line in self._buffered:
                self.write(line)

    def _can_draw(self) -> bool:
        is_dumb = self._state.json or os.environ.get("TERM") in ("dumb", "unknown")
        has_textual = importlib.util.find_spec("textual") is not None
        return has_textual and not is_dumb and sys.stdin.isatty() and sys.stdout.isatty()

    def show(self, checks: Sequence[Check]) -> None:
        """Write the results of the checks, one per line."""
        for check in checks:
            mark = click.style("ok    ", fg="green") if check.ok else click.style("FAILED", fg="red", bold=True)
            self.write(f"  {mark}  {check.name:<20} {printable(check.seen)}")

    def conclude(self, play: Demo, checks: Sequence[Check]) -> None:
        """Write the result, as one JSON document with --json. If checks failed, raises Failure with their names."""
        count = len(play.accepted)
        failed = [f"{check.name}: {check.seen}" for check in checks if not check.ok]
        if self._state.json:
            fields = {"checks": [check._asdict() for check in checks], "lag_seconds": play.lags()}
            output.put_json({"ok": not failed, "accepted": count, **fields})
        if failed:
            raise Failure(ExitCode.NO, *failed)
        self.write(f"\n{count:,} tasks, one worker killed, the pool resized twice: nothing was lost.")
