"""`rota queue`: look at queues, pause, resume and purge them."""

import dataclasses

import click

from rota.protocol.names import fault_in_queue_name
from rota.protocol.store import Store
from rota.protocol.views import QueueState
from rota_supervisor.cli.confirm import confirm, counted
from rota_supervisor.cli.output import put_json, put_table, say
from rota_supervisor.cli.state import HELP_NAMES, common_options, current_state
from rota_supervisor.config.rules import served_queues
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.server import connected

MICROSECONDS = 1_000_000
HEADER = (
    "QUEUE",
    "READY",
    "SCHEDULED",
    "OVERDUE",
    "INFLIGHT",
    "DEAD",
    "ACCEPTED",
    "OLDEST READY",
    "OLDEST OVERDUE",
    "",
)
QUEUES = click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")


@click.group(context_settings=HELP_NAMES)
@common_options
def queue() -> None:
    """List, pause, resume and purge queues."""


@queue.command("ls", context_settings=HELP_NAMES)
@common_options
def list_queues() -> None:
    """List all queues: those of the configuration and those that were ever pushed to."""
    state = current_state()
    config = state.load().config
    with connected(config) as connection:
        overview = connection.run(Store(config.namespace).overview(served_queues(config)))
    if state.json:
        put_json([dataclasses.asdict(each) for each in overview.queues])
    else:
        put_table(HEADER, [_row(each) for each in overview.queues], no_color=state.no_color)


def _row(state: QueueState) -> tuple[object, ...]:
    marks = [mark for mark, on in (("paused", state.paused), ("unserved", not state.served)) if on]
    return (
        state.queue,
        state.ready,
        state.scheduled,
        state.overdue,
        state.inflight,
        state.dead,
        state.accepted,
        _age(state.oldest_ready_age_us),
        _age(state.oldest_overdue_age_us),
        ", ".join(marks),
    )


def _age(microseconds: int) -> str:
    return f"{microseconds / MICROSECONDS:.1f} s" if microseconds else "-"


@queue.command("pause", context_settings=HELP_NAMES)
@QUEUES
@common_options
def pause(queues: tuple[str, ...]) -> None:
    """Stop claims from queues; what runs goes on."""
    _switch(queues, paused=True)


@queue.command("resume", context_settings=HELP_NAMES)
@QUEUES
@common_options
def resume(queues: tuple[str, ...]) -> None:
    """Let claims from queues go on."""
    _switch(queues, paused=False)


def _switch(queues: tuple[str, ...], *, paused: bool) -> None:
    _check_names(queues)
    config = current_state().load().config
    store = Store(config.namespace)
    word = "paused" if paused else "resumed"
    with connected(config) as connection:
        for name in queues:
            changed = connection.run(store.pause(name) if paused else store.resume(name))
            say(f'queue "{name}" is {word}' if changed else f'queue "{name}" was {word} already')


@queue.command("purge", context_settings=HELP_NAMES)
@click.argument("name", metavar="QUEUE")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
def purge(name: str, yes: bool) -> None:
    """End the ready tasks of a queue without running them; delayed and dead ones stay."""
    _check_names((name,))
    state = current_state()
    config = state.load().config
    store = Store(config.namespace)
    with connected(config) as connection:
        overview = connection.run(store.overview((name,)))
        ready = next(each.ready for each in overview.queues if each.queue == name)
        if ready:
            confirm(f'Purge {counted(ready, "ready task")} of queue "{name}"?', yes=yes)
        purged = 0
        more = bool(ready)
        while more:
            bounded = connection.run(store.purge(name))
            purged, more = purged + bounded.count, bounded.more
    if state.json:
        put_json({"queue": name, "purged": purged})
    else:
        say(f'purged {counted(purged, "task")} of queue "{name}"')


def _check_names(queues: tuple[str, ...]) -> None:
    faults = [fault for fault in map(fault_in_queue_name, queues) if fault]
    if faults:
        raise Failure(ExitCode.USAGE, *faults)
