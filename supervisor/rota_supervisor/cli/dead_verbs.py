"""`rota dead`: the tasks that were set aside as dead after their last attempt."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from rota.protocol.body import BodyError, decode_body
from rota.protocol.entry import MICROSECONDS
from rota.protocol.keys import served_as
from rota.protocol.outcome import read_attempt_record
from rota.protocol.store import BATCH, Store
from rota.protocol.views import DeadTask
from rota.protocol.wire import shown
from rota.server.connection import Connection
from rota_supervisor.cli import command, output
from rota_supervisor.config.resolution import served_queues
from rota_supervisor.exits import ExitCode, Failure

SHOWN_REASON = 60
NO_QUEUE = "unknown"  # the queue under which the scripts count items that name no queue


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter that selects dead tasks. An empty field matches all tasks."""

    ids: tuple[str, ...] = ()
    queue: str = ""
    task: str = ""
    reason: str = ""  # why the task is dead

    def takes(self, dead: DeadTask) -> bool:
        """Whether a dead task matches the filter."""
        return (
            (not self.ids or dead.id in self.ids or shown(dead.id) in self.ids)
            and self.queue in ("", dead.queue)
            and self.task in ("", _name_of(dead))
            and self.reason in _reason_of(dead)
        )

    def find(self, store: Store, connection: Connection) -> Iterator[DeadTask]:
        """Yield the matching tasks, the latest first."""
        offset = 0
        while True:
            page = connection.run(store.dead_page(offset, BATCH))
            yield from filter(self.takes, page.tasks)
            offset += len(page.tasks)
            if not page.tasks or offset >= page.total:
                return


def _reason_of(dead: DeadTask) -> str:
    death = read_attempt_record(dead.death_record, "reason")
    return ": ".join(str(death[key]) for key in ("reason", "error") if death.get(key))


def _name_of(dead: DeadTask) -> str:
    try:
        return decode_body(dead.body).name
    except BodyError:
        return "?"


def _died_at(dead: DeadTask) -> str:
    return datetime.fromtimestamp(dead.died_us / MICROSECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _values_of(dead: DeadTask) -> dict[str, Any]:
    return {
        "id": shown(dead.id),
        "queue": dead.queue,
        "task": _name_of(dead),
        "died_at": _died_at(dead),
        "death": read_attempt_record(dead.death_record, "reason"),
        "body": dead.body.decode(errors="backslashreplace"),
    }


def _filters(function: Any) -> Any:
    """Add the options that select dead tasks, named like the fields of `Wanted`."""
    function = click.option("--reason", default="", help="Select only tasks whose reason contains this text.")(function)
    function = click.option("--task", default="", help="Select only tasks with this name.")(function)
    return click.option("--queue", default="", help="Select only tasks of this queue.")(function)


_IDS = click.argument("ids", nargs=-1, metavar="[ID...]")
_ALL = click.option(
    "--all", "everything", is_flag=True, help="Select all dead tasks, or all dead tasks that match the other options."
)


@click.group(cls=command.RotaGroup)
def dead() -> None:
    """List, show, revive and purge dead tasks."""


@dead.command("ls")
@click.option(
    "--limit", default=100, show_default=True, type=command.WholeNumber(min=1), help="Show at most this many tasks."
)
@_filters
def list_dead(*, limit: int, **filters: str) -> None:
    """List dead tasks, the latest first."""
    state = command.current_state()
    with state.redis() as (_, store, connection):
        found = list(itertools.islice(Wanted((), **filters).find(store, connection), limit))
    state.table(list(map(_values_of, found)), ("ID", "QUEUE", "TASK", "DIED", "REASON"), map(_row, found))


def _row(dead: DeadTask) -> tuple[str, ...]:
    return (shown(dead.id), dead.queue, _name_of(dead), _died_at(dead), output.cut(_reason_of(dead), SHOWN_REASON))


def _unknown(task_id: str) -> str:
    return f'no dead task has the id "{task_id}": `rota dead ls` lists the dead tasks'


@dead.command()
@click.argument("task_id", metavar="ID")
def show(task_id: str) -> None:
    """Show a dead task, and why it died."""
    state = command.current_state()
    with state.redis() as (_, store, connection):
        found = next(Wanted((task_id,)).find(store, connection), None)
    if found is None:
        raise Failure(ExitCode.NO, _unknown(task_id))
    values = _values_of(found)
    plain = {key: value for key, value in values.items() if key != "death"}
    state.fields(values, plain | values["death"])


@dead.command()
@_IDS
@_ALL
@_filters
def revive(*, ids: tuple[str, ...], everything: bool, **filters: str) -> None:
    """Put dead tasks back in their lanes and reset their failures. Exit with 1 if some of them cannot be revived.

    A revived task no longer belongs to its group or chain. The group has counted it as dead and does not wait for it,
    and the next task of the chain does not follow.
    """
    state = command.current_state()
    config = state.load_to_reach()
    wanted = _wanted(Wanted(ids, **filters), everything=everything)
    with state.redis(config) as (_, store, connection):
        chosen = _choose(wanted, store, connection)
        garbage_queue = None if served_as(NO_QUEUE, served_queues(config)) else NO_QUEUE
        going = [task_id for task_id, queue in chosen if queue != garbage_queue]
        revived = sum(connection.run(store.revive(batch)) for batch in _batches(going))
    state.report({"revived": revived}, f"revived {output.counted(revived, 'task')}")
    garbage = [shown(task_id) for task_id, queue in chosen if queue == garbage_queue]
    _raise_for_rest(wanted, chosen, garbage)


@dead.command()
@_IDS
@_ALL
@click.option("--yes", is_flag=True, help="Do not prompt.")
@_filters
def purge(*, ids: tuple[str, ...], everything: bool, yes: bool, **filters: str) -> None:
    """Delete dead tasks permanently."""
    state = command.current_state()
    config = state.load_to_reach()
    wanted = _wanted(Wanted(ids, **filters), everything=everything)
    with state.redis(config) as (_, store, connection):
        chosen = _choose(wanted, store, connection)
        if chosen:
            output.confirm(f"permanently delete {output.counted(len(chosen), 'dead task')}", yes=yes)
        batches = _batches([task_id for task_id, _ in chosen])
        purged = sum(connection.run(store.purge_dead(batch)) for batch in batches)
    state.report({"purged": purged}, f"purged {output.counted(purged, 'task')}")
    _raise_for_rest(wanted, chosen, [])


def _wanted(wanted: Wanted, *, everything: bool) -> Wanted:
    """Return the filter unchanged. Raises Failure with code 2 if the command line selects no tasks, or both ids and a
    filter.
    """
    if wanted.ids and (everything or wanted.queue or wanted.task or wanted.reason):
        raise Failure(ExitCode.USAGE, "pass either ids, or --all with filter options")
    if not wanted.ids and not everything:
        raise Failure(ExitCode.USAGE, "pass ids, or use --all, with --queue, --task or --reason to select tasks")
    return wanted


def _choose(wanted: Wanted, store: Store, connection: Connection) -> list[tuple[str, str]]:
    """Return the ids and queues of the chosen tasks. The bodies of tasks are not kept, so that a million tasks fit into
    memory.
    """
    # Choose all tasks before the first one is changed, because the list is read in pages, which shift when tasks are
    # removed from the list.
    return [(task.id, task.queue) for task in wanted.find(store, connection)]


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]


def _raise_for_rest(wanted: Wanted, chosen: Sequence[tuple[str, str]], garbage: Sequence[str]) -> None:
    """Raise Failure with code 1 if an id on the command line belongs to no dead task, or if some items (`garbage`) were
    not revived because they name no queue.
    """
    found = {name for task_id, _ in chosen for name in (task_id, shown(task_id))}
    faults = [_unknown(task_id) for task_id in wanted.ids if task_id not in found]
    if garbage:
        items = ", ".join(garbage) if wanted.ids else output.counted(len(garbage), "dead task")
        faults.append(
            f"not revived: {items}: the item names no queue, so no worker would ever run it: inspect it with "
            f"`rota dead show ID`, enqueue the intended task, then `rota dead purge ID` (all: `--queue {NO_QUEUE}`)"
        )
    if faults:
        raise Failure(ExitCode.NO, *faults)
