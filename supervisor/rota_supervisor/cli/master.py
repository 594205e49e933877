"""`rota status`, `rota reload`, `rota stop`: this node's master, by its control socket."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from rota_supervisor.cli.control_client import ControlClient, master_of, wait_for_exit
from rota_supervisor.cli.output import put, put_json, put_table, say
from rota_supervisor.cli.state import HELP_NAMES, State, common_options, current_state
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure

STOP_MARGIN_SECONDS = 15.0  # beyond the drain: killing what is left, telling Redis, ending pollers and exporter
RELOAD_MARGIN_SECONDS = 15.0


@contextlib.contextmanager
def _reach(state: State) -> Iterator[tuple[Config, ControlClient]]:
    """The master, also while its file has faults; they are the answer only when no master is found by it."""
    config, faults = state.load_what_can_be()
    with contextlib.ExitStack() as stack:
        try:
            master = stack.enter_context(master_of(config))
        except Failure as failure:
            raise (Failure(ExitCode.CONFIG, *faults) if faults else failure) from None
        yield config, master


@click.command(context_settings=HELP_NAMES)
@common_options
def status() -> None:
    """Show what this node's master supervises."""
    state = current_state()
    with _reach(state) as (_, master):
        found: dict[str, Any] = master.ask("status")["status"]
    if state.json:
        put_json(found)
        return
    for key, value in found.items():
        if not _is_table(value):
            put(f"{key:<24} {_plain(value)}".rstrip())
    for key, value in found.items():
        if _is_table(value):
            put(f"\n{key}")
            _put_rows(value, no_color=state.no_color)


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return "  ".join(f"{key}={_plain(each)}" for key, each in value.items())
    return value if isinstance(value, str) else json.dumps(value)


def _put_rows(rows: list[dict[str, Any]], *, no_color: bool) -> None:
    header = list(dict.fromkeys(key for row in rows for key in row))
    cells = [["-" if row.get(key) in (None, "") else row[key] for key in header] for row in rows]
    put_table([key.upper().replace("_", " ") for key in header], cells, no_color=no_color)


@click.command(context_settings=HELP_NAMES)
@common_options
def reload() -> None:
    """Have the master load its configuration again, as HUP does. Exit 78 when it refuses the new one."""
    state = current_state()
    with _reach(state) as (config, master):
        outcome = master.ask("reload", seconds=config.limits.boot_seconds + RELOAD_MARGIN_SECONDS)["reload"]
    if state.json:
        put_json(outcome)
    if outcome.get("result") != "success":
        raise Failure(ExitCode.CONFIG, *_lines(outcome.get("faults")), "the fleet keeps its old configuration")
    if not state.json:
        say(f"reloaded: {'; '.join(_lines(outcome.get('changes'))) or 'nothing changed'}")


def _lines(said: object) -> list[str]:
    if isinstance(said, Mapping):
        return [f"{key} {_plain(value)}" for key, value in said.items()]
    if isinstance(said, list):
        return [_plain(each) for each in said]
    return [str(said)] if said else []


@click.command(context_settings=HELP_NAMES)
@click.option("--now", is_flag=True, help="Do not wait for what runs: it is killed and goes back to its queue.")
@common_options
def stop(now: bool) -> None:
    """Drain the fleet and stop it, and wait until it is gone."""
    with _reach(current_state()) as (config, master):
        pid = master.master_pid
        master.ask("stop", now=now)
    if not wait_for_exit(pid, config.limits.drain_seconds + STOP_MARGIN_SECONDS):
        raise Failure(ExitCode.NO, f"the master, pid {pid}, is asked to stop and still runs: see its log")
    say("stopped")
