"""`rota dead`: the tasks set aside after their last attempt."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from rota.protocol.body import BodyError, decode_body
from rota.protocol.replies import DeadTask
from rota.protocol.store import BATCH, Store
from rota.server.connection import Connection
from rota_supervisor.cli.confirm import confirm, counted
from rota_supervisor.cli.exits import ExitCode, Failure
from rota_supervisor.cli.output import printable, put, put_json, put_table, say
from rota_supervisor.cli.server import connected
from rota_supervisor.cli.state import HELP_NAMES, common_options, current_state

MICROSECONDS = 1_000_000
SHOWN_REASON = 60


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which dead tasks a command is about; empty fields take all."""

    ids: tuple[str, ...] = ()
    queue: str = ""
    task: str = ""
    reason: str = ""

    def takes(self, dead: DeadTask) -> bool:
        """Whether a dead task is among them."""
        return (
            (not self.ids or dead.id in self.ids)
            and self.queue in ("", dead.queue)
            and self.task in ("", name_of(dead))
            and self.reason in reason_of(dead)
        )


def epitaph_of(dead: DeadTask) -> dict[str, Any]:
    """Why it died, as it was written; a text that is no JSON object stands under "reason"."""
    return epitaph_from(dead.epitaph)


def epitaph_from(raw: bytes) -> dict[str, Any]:
    """An epitaph's fields."""
    try:
        epitaph = json.loads(raw)
    except ValueError:
        epitaph = None
    return epitaph if isinstance(epitaph, dict) else {"reason": raw.decode(errors="replace")}


def reason_of(dead: DeadTask) -> str:
    """The reason in words."""
    epitaph = epitaph_of(dead)
    said = [str(epitaph[key]) for key in ("reason", "error") if epitaph.get(key)]
    return ": ".join(said)


def name_of(dead: DeadTask) -> str:
    """The task's name, "?" for garbage."""
    try:
        return decode_body(dead.body).name
    except BodyError:
        return "?"


def filters(command: Any) -> Any:
    """Add the options that choose dead tasks."""
    command = click.option("--reason", default="", help="Only those whose reason contains this.")(command)
    command = click.option("--task", "task_name", default="", help="Only those of this task.")(command)
    return click.option("--queue", "queue_name", default="", help="Only those of this queue.")(command)


@click.group(context_settings=HELP_NAMES)
@common_options
def dead() -> None:
    """List, show, revive and purge dead tasks."""


@dead.command("ls", context_settings=HELP_NAMES)
@click.option("--limit", default=100, show_default=True, type=click.IntRange(min=1), help="At most this many.")
@filters
@common_options
def list_dead(*, limit: int, queue_name: str, task_name: str, reason: str) -> None:
    """List dead tasks, latest first."""
    state = current_state()
    config = state.load().config
    wanted = Wanted((), queue_name, task_name, reason)
    with connected(config) as connection:
        found = [each for each, _ in zip(_matching(connection, config.namespace, wanted), range(limit), strict=False)]
    if state.json:
        put_json([as_values(each) for each in found])
        return
    rows = [(each.id, each.queue, name_of(each), when(each.died_us), _short(reason_of(each))) for each in found]
    put_table(("ID", "QUEUE", "TASK", "DIED", "REASON"), rows, no_color=state.no_color)


def _matching(connection: Connection, namespace: str, wanted: Wanted) -> Iterator[DeadTask]:
    store = Store(namespace)
    offset = 0
    while True:
        page = connection.run(store.dead_page(offset, BATCH))
        yield from filter(wanted.takes, page.tasks)
        offset += len(page.tasks)
        if not page.tasks or offset >= page.total:
            return


def as_values(task: DeadTask) -> dict[str, Any]:
    """A dead task as plain values."""
    return {
        "id": task.id,
        "queue": task.queue,
        "task": name_of(task),
        "died_at": when(task.died_us),
        "epitaph": epitaph_of(task),
        "body": task.body.decode(errors="backslashreplace"),
    }


def when(microseconds: int) -> str:
    """A Redis time for people, in UTC."""
    return datetime.fromtimestamp(microseconds / MICROSECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_REASON else text[: SHOWN_REASON - 3] + "..."


@dead.command(context_settings=HELP_NAMES)
@click.argument("task_id", metavar="ID")
@common_options
def show(task_id: str) -> None:
    """Show a dead task with why it died."""
    state = current_state()
    config = state.load().config
    with connected(config) as connection:
        found = next(_matching(connection, config.namespace, Wanted((task_id,))), None)
    if found is None:
        raise Failure(ExitCode.NO, f'no dead task has the id "{task_id}"')
    values = as_values(found)
    if state.json:
        put_json(values)
        return
    for key, value in {**values, **values.pop("epitaph")}.items():
        put_field(key, value)


def put_field(key: str, value: object) -> None:
    """Write one field of a thing shown; further lines of a long text are set in."""
    first, *more = str(value).splitlines() or [""]
    put(f"{key + ':':<18} {printable(first)}".rstrip())
    for line in more:
        put(f"{'':<18} {printable(line)}".rstrip())


@dead.command(context_settings=HELP_NAMES)
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--all", "everything", is_flag=True, help="All, or all that the options choose.")
@filters
@common_options
def revive(*, ids: tuple[str, ...], everything: bool, queue_name: str, task_name: str, reason: str) -> None:
    """Put dead tasks back in their lanes, their failures forgiven."""
    state = current_state()
    config = state.load().config
    wanted = _wanted(Wanted(ids, queue_name, task_name, reason), everything=everything)
    store = Store(config.namespace)
    with connected(config) as connection:
        chosen = _choose(connection, config.namespace, wanted)
        revived = sum(connection.run(store.revive(batch)) for batch in _batches(chosen))
    _report(revived, chosen, wanted, "revived", as_json=state.json)


@dead.command(context_settings=HELP_NAMES)
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--all", "everything", is_flag=True, help="All, or all that the options choose.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@filters
@common_options
def purge(*, ids: tuple[str, ...], everything: bool, yes: bool, queue_name: str, task_name: str, reason: str) -> None:
    """Forget dead tasks for good."""
    state = current_state()
    config = state.load().config
    wanted = _wanted(Wanted(ids, queue_name, task_name, reason), everything=everything)
    store = Store(config.namespace)
    with connected(config) as connection:
        chosen = _choose(connection, config.namespace, wanted)
        if chosen:
            confirm(f"Forget {counted(len(chosen), 'dead task')} for good?", yes=yes)
        purged = sum(connection.run(store.purge_dead(batch)) for batch in _batches(chosen))
    _report(purged, chosen, wanted, "purged", as_json=state.json)


def _wanted(wanted: Wanted, *, everything: bool) -> Wanted:
    chosen_by_option = wanted.queue or wanted.task or wanted.reason
    if wanted.ids and (everything or chosen_by_option):
        raise Failure(ExitCode.USAGE, "give ids, or --all with options that choose, not both")
    if not wanted.ids and not everything:
        raise Failure(ExitCode.USAGE, "name the ids, or say --all (with --queue, --task, --reason to choose)")
    return wanted


def _choose(connection: Connection, namespace: str, wanted: Wanted) -> list[str]:
    # Chosen in whole before the first is touched, since the pages move while tasks leave them.
    return [task.id for task in _matching(connection, namespace, wanted)]


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]


def _report(count: int, chosen: Sequence[str], wanted: Wanted, word: str, *, as_json: bool) -> None:
    if as_json:
        put_json({word: count})
    else:
        say(f"{word} {counted(count, 'task')}")
    unknown = [task_id for task_id in wanted.ids if task_id not in chosen]
    if unknown:
        raise Failure(ExitCode.NO, *(f'no dead task has the id "{task_id}"' for task_id in unknown))
