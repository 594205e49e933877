"""`rota dead`: the tasks set aside after their last attempt."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from rota.protocol.body import BodyError, decode_body
from rota.protocol.epitaph import read_epitaph
from rota.protocol.store import BATCH, Store
from rota.protocol.views import DeadTask
from rota.protocol.wire import shown
from rota.server.connection import Connection
from rota_supervisor.cli.confirm import confirm, counted
from rota_supervisor.cli.output import put, put_json, put_table, say
from rota_supervisor.cli.state import HELP_NAMES, common_options, current_state
from rota_supervisor.config.rules import served_queues
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.server import connected

MICROSECONDS = 1_000_000
SHOWN_REASON = 60
NO_QUEUE = "unknown"  # where the protocol sets aside what no queue could be read from


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
            (not self.ids or dead.id in self.ids or shown(dead.id) in self.ids)
            and self.queue in ("", dead.queue)
            and self.task in ("", name_of(dead))
            and self.reason in reason_of(dead)
        )


def epitaph_of(dead: DeadTask) -> dict[str, Any]:
    """Why it died, as it was written; a text that is no JSON object stands under "reason"."""
    return read_epitaph(dead.epitaph, "reason")


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
    rows = [(shown(each.id), each.queue, name_of(each), when(each.died_us), _short(reason_of(each))) for each in found]
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
        "id": shown(task.id),
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
    epitaph = values.pop("epitaph")
    for key, value in {**values, **epitaph}.items():
        put_field(key, value)


def put_field(key: str, value: object) -> None:
    """Write one field of a thing shown; further lines of a long text are set in."""
    first, *more = str(value).split("\n")
    put(f"{key + ':':<18} {first}".rstrip())
    for line in more:
        put(f"{'':<18} {line}".rstrip())


@dead.command(context_settings=HELP_NAMES)
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--all", "everything", is_flag=True, help="All, or all that the options choose.")
@filters
@common_options
def revive(*, ids: tuple[str, ...], everything: bool, queue_name: str, task_name: str, reason: str) -> None:
    """Put dead tasks back in their lanes, their failures forgiven. Exit 1 when some must stay."""
    state = current_state()
    config = state.load().config
    wanted = _wanted(Wanted(ids, queue_name, task_name, reason), everything=everything)
    store = Store(config.namespace)
    with connected(config) as connection:
        chosen = _choose(connection, config.namespace, wanted)
        nowhere = set() if NO_QUEUE in served_queues(config) else {NO_QUEUE}
        going = [each.id for each in chosen if each.queue not in nowhere]
        revived = sum(connection.run(store.revive(batch)) for batch in _batches(going))
    _report(revived, "revived", as_json=state.json)
    garbage = [shown(each.id) for each in chosen if each.queue in nowhere]
    faults = [*_faults_of_ids(chosen, wanted), *_faults_of_garbage(garbage, wanted)]
    if faults:
        raise Failure(ExitCode.NO, *faults)


def _faults_of_garbage(ids: Sequence[str], wanted: Wanted) -> Iterator[str]:
    if ids:
        who = ", ".join(ids) if wanted.ids else counted(len(ids), "dead task")
        yield (
            f"not revived: {who}: garbage that names no queue, so that nobody would ever run it: look at it with "
            f"`rota dead show ID`, enqueue what was meant, then `rota dead purge ID` (all of it: `--queue {NO_QUEUE}`)"
        )


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
        purged = sum(connection.run(store.purge_dead(batch)) for batch in _batches([each.id for each in chosen]))
    _report(purged, "purged", as_json=state.json)
    if faults := _faults_of_ids(chosen, wanted):
        raise Failure(ExitCode.NO, *faults)


def _wanted(wanted: Wanted, *, everything: bool) -> Wanted:
    chosen_by_option = wanted.queue or wanted.task or wanted.reason
    if wanted.ids and (everything or chosen_by_option):
        raise Failure(ExitCode.USAGE, "give ids, or --all with options that choose, not both")
    if not wanted.ids and not everything:
        raise Failure(ExitCode.USAGE, "name the ids, or say --all (with --queue, --task, --reason to choose)")
    return wanted


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A dead task without its body: a million of them must fit."""

    id: str
    queue: str


def _choose(connection: Connection, namespace: str, wanted: Wanted) -> list[_Chosen]:
    # Chosen in whole before the first is touched, since the pages move while tasks leave them.
    return [_Chosen(task.id, task.queue) for task in _matching(connection, namespace, wanted)]


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]


def _report(count: int, word: str, *, as_json: bool) -> None:
    if as_json:
        put_json({word: count})
    else:
        say(f"{word} {counted(count, 'task')}")


def _faults_of_ids(chosen: Sequence[_Chosen], wanted: Wanted) -> list[str]:
    found = {name for each in chosen for name in (each.id, shown(each.id))}
    return [f'no dead task has the id "{task_id}"' for task_id in wanted.ids if task_id not in found]
