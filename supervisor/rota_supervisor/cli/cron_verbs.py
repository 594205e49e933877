"""`rota cron`: the schedules of the fleet, whether declared in the code or in the configuration."""

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

import click

from rota.client.schedule_steps import all_schedules, require_schedule, run_schedule_now, unknown_schedule
from rota.errors import Unavailable, UnknownSchedule
from rota.protocol.schedule_store import PauseStatus, ScheduleStore
from rota.protocol.scripts import follow
from rota.protocol.signatures import SignatureError
from rota.schedules.schedule import fault_in_schedule_name
from rota.schedules.schedule_status import FoundSchedule, ScheduleStatus
from rota.server.connection import Connection
from rota.tasks.keyring import keyring_of
from rota_supervisor.cli import command, output
from rota_supervisor.config import resolution
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.facts import facts_of

_SHOWN_TIMES: Final = 5
_MAX_TIMES: Final = 1000
_HEADER: Final = ("NAME", "TASK", "QUEUE", "WHEN", "NEXT", "LAST", "SOURCE")
_FAILURES: Final = {
    UnknownSchedule: ExitCode.NO,
    SignatureError: ExitCode.NO,
    Unavailable: ExitCode.UNREACHABLE,
}
_NAME: Final = click.argument("name")
_NAMES: Final = click.argument("names", nargs=-1, required=True, metavar="NAME...")


@click.group(cls=command.RotaGroup)
def cron() -> None:
    """List, show, run, pause and resume schedules."""


@cron.command("ls")
@click.option(
    "--next",
    "times",
    default=1,
    show_default=True,
    type=command.WholeNumber(1, _MAX_TIMES),
    metavar="N",
    help="Show the next N times of each schedule.",
)
def list_schedules(times: int) -> None:
    """List all schedules, sorted by their next due time."""
    state = command.current_state()
    with state.redis() as (config, _, connection):
        found = follow(connection.run, all_schedules(ScheduleStore(config.namespace)))
    rows = [row for each in found for row in _rows(each, times)]
    state.table([_facts(each, times) for each in found], _HEADER, rows)


def _facts(found: FoundSchedule | ScheduleStatus, times: int) -> dict[str, Any]:
    if isinstance(found, ScheduleStatus):
        return facts_of(found)
    following = [] if found.record.paused_us else [each.isoformat() for each in found.upcoming(times)]
    shown = found.status()
    return facts_of(shown) | {"args": list(shown.args), "next": following}


def _rows(found: FoundSchedule | ScheduleStatus, times: int) -> Iterator[tuple[str, ...]]:
    if isinstance(found, ScheduleStatus):
        yield (found.name, "-", "-", found.error, "-", "-", "-")
        return
    shown = found.status()
    zone = _zone(shown)
    first, *rest = _following(found, times)
    last = _local(shown.last_at, zone)
    yield (shown.name, shown.task, shown.queue, shown.when, first, last, shown.source or "-")
    for each in rest:
        yield ("", "", "", "", each, "", "")


def _following(found: FoundSchedule, times: int) -> list[str]:
    if found.record.paused_us:
        return ["paused"]
    zone = _zone(found.status())
    return [_local(each, zone) for each in found.upcoming(times)] or ["over"]


def _zone(shown: ScheduleStatus) -> tzinfo:
    return ZoneInfo(shown.timezone) if shown.timezone else UTC


def _local(when: datetime | None, zone: tzinfo) -> str:
    return "-" if when is None else f"{when.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"


@cron.command()
@_NAME
def show(name: str) -> None:
    """Show a schedule and its next times. Exit with 1 if no schedule has this name."""
    state = command.current_state()
    _check_names((name,))
    with state.redis() as (config, _, connection):
        found = _found(connection, ScheduleStore(config.namespace), name)
    facts = _facts(found, _SHOWN_TIMES)
    state.fields(facts, facts | {"next": "\n".join(_following(found, _SHOWN_TIMES))})


def _found(connection: Connection, store: ScheduleStore, name: str) -> FoundSchedule:
    with command.failing(_FAILURES):
        return follow(connection.run, require_schedule(store, name))


@cron.command()
@_NAME
def run(name: str) -> None:
    """Enqueue an extra occurrence of a schedule, due now.

    Write the id of its task. Exit with 1 if an occurrence has not ended and occurrences may not overlap.
    """
    state = command.current_state()
    _check_names((name,))
    with state.redis() as (config, _, connection), command.failing(_FAILURES):
        keyring = keyring_of(resolution.signing_settings(config))
        steps = run_schedule_now(ScheduleStore(config.namespace), name, keyring)
        task_id, overlaps = follow(connection.run, steps)
    if state.json:
        output.put_json({"id": task_id, "overlaps": overlaps})
    if overlaps:
        raise Failure(
            ExitCode.NO, f'{task_id} has not ended, and the schedule has overlap = "skip", so nothing was enqueued'
        )
    if not state.json:
        output.put(task_id)


@cron.command()
@_NAMES
def pause(names: tuple[str, ...]) -> None:
    """Enqueue no more occurrences of schedules. Waiting and running tasks continue."""
    _switch(names, paused=True)


@cron.command()
@_NAMES
def resume(names: tuple[str, ...]) -> None:
    """Continue schedules with their next occurrence. Occurrences during the pause do not count as missed."""
    _switch(names, paused=False)


def _switch(names: tuple[str, ...], *, paused: bool) -> None:
    _check_names(names)
    participle = "paused" if paused else "resumed"
    unknown = []
    with command.current_state().redis() as (config, _, connection):
        store = ScheduleStore(config.namespace)
        for name in names:
            status = connection.run(store.pause(name) if paused else store.resume(name))
            if status is PauseStatus.UNKNOWN:
                unknown.append(str(follow(connection.run, unknown_schedule(store, name))))
            else:
                already = " already" * (status is PauseStatus.SAME)
                output.print_message(f'schedule "{name}" {"was" if already else "is"} {participle}{already}')
    if unknown:
        raise Failure(ExitCode.NO, *unknown)


def _check_names(names: tuple[str, ...]) -> None:
    command.check_usage(*map(fault_in_schedule_name, names))
