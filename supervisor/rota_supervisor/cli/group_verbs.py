"""`rota group`: groups of tasks, their progress, and their end."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import click

from rota.client.inquiries import cancel_group_steps, group_status_steps
from rota.client.status import GroupStanding, GroupStatus, group_status_of
from rota.protocol.progress import progress_summary
from rota.protocol.scripts import follow
from rota.protocol.store import BATCH, Store
from rota.protocol.task_states import ENDS
from rota.server.connection import Connection
from rota_supervisor.cli import command, output
from rota_supervisor.cli.command import check_id
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.facts import facts_of

_ID: Final = click.argument("group_id", metavar="ID")
_HEADER: Final = ("ID", "STATE", "ENDED", "LEFT", *map(str.upper, ENDS), "OPEN SINCE")
# The text that `close` writes, by the state in which the command found the group.
_CLOSED: Final = {
    GroupStanding.OPEN: "is closed",
    GroupStanding.CLOSED: "was already closed",
    GroupStanding.CANCELLED: "was already cancelled",
}


@click.group(cls=command.RotaGroup)
def group() -> None:
    """List, show, close and cancel groups."""


# List and show


@group.command("ls")
@click.option(
    "--limit", default=100, show_default=True, type=command.WholeNumber(min=1), help="Show at most this many groups."
)
def list_groups(limit: int) -> None:
    """List the groups that have not ended, the oldest first."""
    state = command.current_state()
    with state.redis() as (_, store, connection):
        found = list(islice(_all_groups(store, connection), limit))
    state.table(list(map(facts_of, found)), _HEADER, map(_row, found))


def _all_groups(store: Store, connection: Connection) -> Iterator[GroupStatus]:
    passed = 0
    total = 1
    while passed < total:
        total, page, _ = connection.run(store.groups(passed, BATCH))
        yield from (group_status_of(each.id, each) for each in page)
        passed += BATCH


def _row(found: GroupStatus) -> tuple[object, ...]:
    facts = facts_of(found)
    return (found.id, found.state, _progress(found), found.left, *(facts[how] for how in ENDS), _opened(found))


def _progress(found: GroupStatus) -> str:
    return progress_summary({"done": found.total - found.left, "total": found.total, "note": ""})


def _opened(found: GroupStatus) -> str:
    return found.opened_at.isoformat(timespec="seconds") if found.opened_at else ""


@group.command()
@_ID
def show(group_id: str) -> None:
    """Show the progress of a group, and the task that follows it.

    Exit with 1 if the group ended at least 50 s ago, or never existed.
    """
    check_id(group_id)
    state = command.current_state()
    with state.redis() as (_, store, connection):
        found = _known(follow(connection.run, group_status_steps(store, group_id)))
    facts = facts_of(found)
    state.fields(facts, facts | {"ended": _progress(found)})


def _known(found: GroupStatus) -> GroupStatus:
    """Return the group unchanged if it is known. Raises Failure with code 1 if the group is not known."""
    if found.state is GroupStanding.UNKNOWN:
        why = "it ended at least 50 s ago, or never existed: `rota group ls` lists the groups that have not ended"
        raise Failure(ExitCode.NO, f'there is no group "{found.id}": {why}')
    return found


# Cancel and close


@group.command()
@_ID
def cancel(group_id: str) -> None:
    """Cancel all members of a group that have not ended.

    Running members are cancelled too, and the task that follows the group is not enqueued. Exit with 1 if the group has
    already ended.
    """
    check_id(group_id)
    state = command.current_state()
    with state.redis() as (_, store, connection):
        _require_open(group_id, store, connection)
        follow(connection.run, cancel_group_steps(store, group_id))
        found = follow(connection.run, group_status_steps(store, group_id))
    running = f"; requested {output.counted(found.left, 'running member')} to end" if found.left else ""
    state.report(facts_of(found), f"cancelled group {group_id}{running}")


@group.command()
@_ID
def close(group_id: str) -> None:
    """Close a group for new members, so that it ends with its last member.

    Exit with 1 if the group has already ended.
    """
    check_id(group_id)
    state = command.current_state()
    with state.redis() as (_, store, connection):
        before = _require_open(group_id, store, connection)
        connection.run(store.close_group(group_id))
        found = follow(connection.run, group_status_steps(store, group_id))
    state.report(facts_of(found), f"group {group_id} {_CLOSED[before.state]}: {_progress(found)} ended")


def _require_open(group_id: str, store: Store, connection: Connection) -> GroupStatus:
    """Return the state of a group. Raises Failure with code 1 if the group has ended or is not known."""
    found = _known(follow(connection.run, group_status_steps(store, group_id)))
    if found.state is GroupStanding.ENDED:
        raise Failure(ExitCode.NO, f"group {group_id} has already ended: see `rota group show {group_id}`")
    return found
