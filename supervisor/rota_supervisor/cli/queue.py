"""`rota queue`: look at queues, pause, resume and purge them; `explain` is a module of its own."""

import dataclasses

import click

from rota.protocol.entry import MICROSECONDS
from rota.protocol.names import fault_in_queue_name
from rota.protocol.views import QueueState
from rota_supervisor.cli import command, output
from rota_supervisor.cli.queue_explain import explain
from rota_supervisor.cli.status import duration
from rota_supervisor.config.rules import served_queues
from rota_supervisor.exits import ExitCode, Failure

_COUNTS = ("ready", "scheduled", "overdue", "inflight", "dead", "accepted")
_QUEUES = click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")


@click.group(cls=command.Group)
def queue() -> None:
    """List, explain, pause, resume and purge queues."""


@queue.command("ls")
def list_queues() -> None:
    """List all queues: those of the configuration and those that were ever pushed to.

    Of a bare push to a queue that nobody serves the fleet learns within a minute.
    """
    state = command.current_state()
    with state.redis() as (config, store, connection):
        overview = connection.run(store.overview(served_queues(config)))
    header = ("QUEUE", *map(str.upper, _COUNTS), "OLDEST READY", "OLDEST OVERDUE", "")
    state.table([dataclasses.asdict(each) for each in overview.queues], header, map(_row, overview.queues))


def _row(state: QueueState) -> tuple[object, ...]:
    marks = [
        mark for mark, on in ((_closed(state), state.closed_by or state.paused), ("unserved", not state.served)) if on
    ]
    ages = (state.oldest_ready_age_us, state.oldest_overdue_age_us)
    shown_ages = (f"{age / MICROSECONDS:.1f} s" if age else "-" for age in ages)
    return (state.queue, *(getattr(state, name) for name in _COUNTS), *shown_ages, ", ".join(marks))


def _closed(state: QueueState) -> str:
    age = f" for {duration(state.closed_age_us / MICROSECONDS)}" if state.closed_age_us else ""
    fault = f": {state.condition_error}" if state.condition_error else ""
    return f"paused{age}" if state.paused else f"closed by {state.closed_by}{age}{fault}"


@queue.command("pause")
@_QUEUES
def pause(queues: tuple[str, ...]) -> None:
    """Stop claims from queues; what runs goes on."""
    _switch(queues, paused=True)


@queue.command("resume")
@_QUEUES
def resume(queues: tuple[str, ...]) -> None:
    """Let claims from queues go on."""
    _switch(queues, paused=False)


def _switch(queues: tuple[str, ...], *, paused: bool) -> None:
    _check_names(queues)
    word = "paused" if paused else "resumed"
    with command.current_state().redis() as (_, store, connection):
        for name in queues:
            changed = connection.run(store.pause(name) if paused else store.resume(name))
            output.say(f'queue "{name}" is {word}' if changed else f'queue "{name}" was {word} already')


@queue.command("purge")
@click.argument("name", metavar="QUEUE")
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge(name: str, yes: bool) -> None:
    """End the ready tasks of a queue without running them; delayed and dead ones stay."""
    _check_names((name,))
    state = command.current_state()
    with state.redis() as (_, store, connection):
        overview = connection.run(store.overview((name,)))
        ready = next(each.ready for each in overview.queues if each.queue == name)
        if ready:
            output.confirm(f'Purge {output.counted(ready, "ready task")} of queue "{name}"?', yes=yes)
        purged = 0
        more = bool(ready)
        while more:
            bounded = connection.run(store.purge(name))
            purged, more = purged + bounded.count, bounded.more
    state.answer({"queue": name, "purged": purged}, f'purged {output.counted(purged, "task")} of queue "{name}"')


def _check_names(queues: tuple[str, ...]) -> None:
    faults = [fault for fault in map(fault_in_queue_name, queues) if fault]
    if faults:
        raise Failure(ExitCode.USAGE, *faults)


queue.add_command(explain)
