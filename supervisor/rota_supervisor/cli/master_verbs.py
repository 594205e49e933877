"""The commands that control this node's master over its control socket: `rota scale`, `rota reload` and others."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any, Final

import click

from rota_supervisor.cli import command, output
from rota_supervisor.cli.control_client import ControlClient, master_of
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure

STOP_MARGIN_SECONDS = 15.0  # how long it may take after the drain to kill workers, report to Redis and end processes
RELOAD_MARGIN_SECONDS = 15.0
_BOOTS: Final = 3  # a reload imports the code once and starts the first workers at most twice
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)  # Python rejects numbers with very many digits
_AUTO: Final = "auto"


# The commands


@contextlib.contextmanager
def _reach() -> Iterator[tuple[Config, ControlClient]]:
    """Yield the configuration and a connection to its master. If the file has faults, only the master that was started
    with this file is accepted, because the namespace in a faulty file may belong to another fleet.
    """
    state = command.current_state()
    config, faults, found = state.load_usable()
    if faults and found is None:
        raise Failure(ExitCode.CONFIG, *faults)
    with contextlib.ExitStack() as stack:
        try:
            master = stack.enter_context(master_of(config))
        except Failure as failure:
            raise Failure(failure.code, *failure.messages, *state.hints_of_folder()) from None
        yield config, master


def request(verb: str, **fields: Any) -> dict[str, Any]:
    """Send a request to the master, and return its reply."""
    with _reach() as (_, master):
        reply: dict[str, Any] = master.request(verb, **fields)[verb]
    return reply


# Without `ignore_unknown_options`, a negative number would be read as an option.
@click.command(cls=command.RotaCommand, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", metavar="[POOL] N|+N|-N|auto", nargs=-1)
def scale(arguments: tuple[str, ...]) -> None:
    """Set or change the number of workers of a pool.

    For example, 8 sets the total, +2 adds two workers, and -2 removes two. The number is kept until the configured
    number changes or until `auto`, which returns to the configured number or to scaling within the configured range.
    """
    pool, number = _pool_and_number(arguments)
    reply = request("scale", pool=pool, **_order_of(number))
    text = f"pool {reply['pool']}: from {reply['from']} to {output.counted(reply['to'], 'worker')}"
    if reply["origin"] == "automatic":
        text = f"pool {reply['pool']}: scaled automatically, starting with {output.counted(reply['to'], 'worker')}"
    command.current_state().report(reply, text)


def _order_of(number: str) -> dict[str, int | bool]:
    if number == _AUTO:
        return {"auto": True}
    return {"more" if number[0] in "+-" else "workers": int(number)}


def _pool_and_number(arguments: tuple[str, ...]) -> tuple[str | None, str]:
    """Return the pool (None if none was named) and the number. Raises click.UsageError."""
    for argument in arguments:
        if argument.startswith("-") and not _NUMBER.fullmatch(argument):
            raise click.NoSuchOption(argument)
    match arguments:
        case (number,) if number == _AUTO or _NUMBER.fullmatch(number):
            return None, number
        case (pool, number) if number == _AUTO or _NUMBER.fullmatch(number):
            return pool, number
        case ():
            raise click.UsageError("name the number of workers: `rota scale 8`, `rota scale +2` or `rota scale POOL 8`")
        case (argument,) | (_, argument):
            raise click.UsageError(f"expected a number of workers, as in 8, +2, -2 or auto, got {argument!r}")
    raise click.UsageError("expected at most one pool and one number")


@click.command(cls=command.RotaCommand)
@click.option("--dry-run", is_flag=True, help="Only show what the reload would do.")
def reload(*, dry_run: bool) -> None:
    """Reload the configuration of the master, as SIGHUP does. Exit with 78 if the master refuses the new one."""
    if dry_run:
        _show_plan(request("reload", dry_run=True))
    else:
        _replace("reload", "reloaded")


@click.command(cls=command.RotaCommand)
def restart() -> None:
    """Replace all workers, one at a time, to run freshly imported code.

    Exit with 78 if the code cannot be loaded.
    """
    _replace("restart", "restarted")


def _replace(verb: str, done: str) -> None:
    state = command.current_state()
    with _reach() as (config, master):
        seconds = _BOOTS * config.limits.boot_seconds + RELOAD_MARGIN_SECONDS
        outcome = master.request(verb, seconds=seconds)[verb]
    if state.json:
        output.put_json(outcome)
    if outcome["result"] != "success":
        raise Failure(ExitCode.CONFIG, *outcome["faults"], "the fleet keeps its old configuration and code")
    if not state.json:
        output.print_message(f"{done}: {'; '.join(outcome['changes']) or 'nothing changed'}")
        for line in outcome.get("differences", ()):  # Masters of older versions report no differences.
            output.print_message(line)


def _show_plan(preview: dict[str, Any]) -> None:
    if command.current_state().json:
        output.put_json(preview)
    else:
        for line in preview["plan"]:
            output.put(line)
        for warning in preview["warnings"]:
            output.print_warning(warning)
    if preview["result"] != "success":
        raise Failure(ExitCode.CONFIG, *preview["faults"])


@click.command(cls=command.RotaCommand)
def quiet() -> None:
    """Let the workers claim no more tasks. They finish running tasks and stay."""
    reply = request("quiet")
    text = "quiet: no more tasks are claimed until `rota resume`" if reply["changed"] else "it is already quiet"
    command.current_state().report(reply, text)


@click.command(cls=command.RotaCommand)
def resume() -> None:
    """Let the workers claim tasks again."""
    reply = request("resume")
    text = "resumed" if reply["changed"] else "the fleet was not quiet, so nothing changed"
    command.current_state().report(reply, text)


@click.command(cls=command.RotaCommand)
@click.option(
    "--now", is_flag=True, help="Do not wait for running tasks, but kill them and return them to their queues."
)
def stop(*, now: bool) -> None:
    """Drain and stop the fleet, and wait until it has ended."""
    with _reach() as (config, master):
        pid = master.master_pid
        reply = master.request("stop", now=now)["stop"]
        if not master.wait_for_exit(config.limits.drain_seconds + STOP_MARGIN_SECONDS):
            raise Failure(
                ExitCode.NO, f"the master, pid {pid}, was requested to stop, but is still running: see its log"
            )
    command.current_state().report({**reply, "pid": pid, "stopped": True}, "stopped")
