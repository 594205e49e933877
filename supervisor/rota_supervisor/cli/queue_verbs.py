"""`rota queue`: list, pause, resume and purge queues, and explain which tasks are claimed next."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import click

from rota.client.explanation import (
    NO_POOLS,
    ExpectedClaim,
    Explanation,
    Outlook,
    PoolOutlook,
    QueueOutlook,
    UnknownPool,
    WantedClaims,
)
from rota.client.explanation import explain as explaining
from rota.durations import MICROSECONDS, in_seconds, in_words
from rota.protocol.keys import STAR, fault_in_name, fault_in_pattern, fault_in_queue_name, is_pattern, served_as
from rota.protocol.scans import complete_overview
from rota.protocol.scripts import follow
from rota.protocol.store import Store
from rota.protocol.turns import DEFAULT_CLAIMS, MOST_CLAIMS
from rota.protocol.views import QueueState
from rota.server.connection import Connection
from rota_supervisor.cli import command, output
from rota_supervisor.cli.audit_verb import find_strays, warn_of_strays
from rota_supervisor.cli.command import require_known
from rota_supervisor.config.errors import suggestion
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import served_queues
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.exporter.queue_watch import Largest
from rota_supervisor.facts import facts_of

MOST_SCANS: Final = 200  # the maximum number of SCAN calls, each for 1,000 keys; all take tens of milliseconds together
_TRACES = ("served", "accepted", "ready", "scheduled", "inflight", "dead")
_COUNTS = ("ready", "scheduled", "overdue", "inflight", "dead", "accepted")
_QUEUES = click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")
_CLAIM_COLUMNS: Final = ("#", "QUEUE", "TASK", "ID", "TIER", "LANE", "ATTEMPT", "WHY")
_QUEUE_COLUMNS: Final = ("QUEUE", "TIER", "READY", "OF THESE", "WHY NO MORE")


@click.group(cls=command.RotaGroup)
def queue() -> None:
    """List, explain, pause, resume and purge queues."""


@queue.command("ls")
@click.argument("queues", nargs=-1, metavar="[QUEUE...]")
def list_queues(queues: tuple[str, ...]) -> None:
    """List the queues of the configuration and all others that have tasks.

    With arguments, list only the queues with these names or patterns. Without arguments, only the largest queues of
    each configured pattern are listed, up to metrics.top_queues, and the others are merged as _other. To list all of
    them, pass the pattern: `rota queue ls 'tenant-*'`.

    If a program pushes items directly to a queue that no fleet serves, the queue is shown within a minute. Warnings
    name lists that look like queues of this fleet but are not. This command checks the first 200,000 keys of the
    server, and `rota audit` checks all keys.
    """
    command.check_usage(*(fault_in_pattern(name) if STAR in name else fault_in_queue_name(name) for name in queues))
    state = command.current_state()
    with state.redis() as (config, store, connection):
        largest = Largest(queues or served_queues(config), config.metrics.top_queues)
        overview = follow(connection.run, complete_overview(store, connection.run(store.overview(largest.served))))
        warn_of_unknown(queues, config, store, connection)
        strays = [] if queues else find_strays(config, connection, MOST_SCANS)
    warn_of_strays(strays)
    if queues:
        shown = [each for each in overview.queues if served_as(each.queue, queues) and not is_pattern(each.queue)]
    else:
        shown = list(largest.choose(overview.queues, all_seen=True).queues)
    header = ("QUEUE", *map(str.upper, _COUNTS), "OLDEST READY", "OLDEST OVERDUE", "")
    state.table([in_seconds(dataclasses.asdict(each)) for each in shown], header, map(_row, shown))


def _row(state: QueueState) -> tuple[object, ...]:
    marks = [
        mark for mark, on in ((_closed(state), state.closed_by or state.paused), ("unserved", not state.served)) if on
    ]
    ages = (state.oldest_ready_age_us, state.oldest_overdue_age_us)
    shown_ages = (f"{age / MICROSECONDS:.1f} s" if age else "-" for age in ages)
    return (state.queue, *(getattr(state, name) for name in _COUNTS), *shown_ages, ", ".join(marks))


def _closed(state: QueueState) -> str:
    age = f" for {in_words(state.closed_age_us / MICROSECONDS)}" if state.closed_age_us else ""
    fault = f": {state.condition_error}" if state.condition_error else ""
    return f"paused{age}" if state.paused else f"closed by {state.closed_by}{age}{fault}"


@queue.command("pause")
@_QUEUES
def pause(queues: tuple[str, ...]) -> None:
    """Stop claims from queues. Running tasks continue."""
    _switch(queues, paused=True)


@queue.command("resume")
@_QUEUES
def resume(queues: tuple[str, ...]) -> None:
    """Allow claims from queues again."""
    _switch(queues, paused=False)


def _switch(queues: tuple[str, ...], *, paused: bool) -> None:
    command.check_usage(*map(fault_in_queue_name, queues))
    participle = "paused" if paused else "resumed"
    state = command.current_state()
    rows = []
    with state.redis() as (config, store, connection):
        warn_of_unknown(queues, config, store, connection)
        for name in queues:
            changed = connection.run(store.pause(name) if paused else store.resume(name))
            rows.append({"queue": name, "paused": paused, "changed": changed})
            output.print_message(
                f'queue "{name}" is {participle}' if changed else f'queue "{name}" was {participle} already'
            )
    if state.json:
        output.put_json(rows)


@queue.command("purge")
@click.argument("name", metavar="QUEUE")
@click.option("--yes", is_flag=True, help="Do not prompt.")
def purge(*, name: str, yes: bool) -> None:
    """End the ready tasks of a queue without running them. Delayed and dead tasks stay."""
    command.check_usage(fault_in_queue_name(name))
    state = command.current_state()
    with state.redis() as (config, store, connection):
        warn_of_unknown((name,), config, store, connection)
        overview = connection.run(store.overview((name,)))
        ready = next(each.ready for each in overview.queues if each.queue == name)
        if ready:
            output.confirm(f'purge {output.counted(ready, "ready task")} of queue "{name}"', yes=yes)
        purged = 0
        more = bool(ready)
        while more:
            bounded = connection.run(store.purge(name))
            purged = purged + bounded.count
            more = bounded.more
    state.report({"queue": name, "purged": purged}, f'purged {output.counted(purged, "task")} of queue "{name}"')


# Warnings about unknown queue names, most of which are misspelt


def warn_of_unknown(names: Iterable[str], config: Config, store: Store, connection: Connection) -> None:
    """Warn of each queue that is in no tier, is served by no fleet, and has never had a task."""
    tiers = served_queues(config)
    unsure = [name for name in names if not is_pattern(name) and served_as(name, tiers) is None]
    if not unsure:
        return
    seen = {each.queue: each for each in connection.run(store.overview(tuple(unsure))).queues}
    unknown = [name for name in unsure if not _is_known(seen.get(name))]
    known = [*tiers, *_known_queues(store, connection)] if unknown else []
    for name in unknown:
        near = suggestion(name, (each for each in known if each != name and not is_pattern(each))) or ":"
        output.print_warning(
            f'the queue "{name}" is not known{near} no tier contains this queue, and no task was ever enqueued into it'
        )


def _known_queues(store: Store, connection: Connection) -> Iterator[str]:
    overview = follow(connection.run, complete_overview(store, connection.run(store.overview(()))))
    return (each.queue for each in overview.queues if _is_known(each))


def _is_known(state: QueueState | None) -> bool:
    return state is not None and any(getattr(state, trace) for trace in _TRACES)


# The explanation of which tasks are claimed next


@queue.command("explain")
@click.argument("queue", required=False)
@click.option("--id", "task_id", default="", metavar="ID", help="Show when this task could be claimed.")
@click.option(
    "-n",
    "count",
    default=DEFAULT_CLAIMS,
    show_default=True,
    type=command.WholeNumber(1, MOST_CLAIMS),
    help="Show this many claims.",
)
@click.option("--pool", default="", metavar="POOL", help="Show only the claims of the workers in this pool.")
def explain(*, queue: str | None, task_id: str, count: int, pool: str) -> None:
    """Show the next claims in order, with the reason for each.

    With QUEUE, or with --id for a task, show when the queue or task could be claimed. The claims shown for a pool are
    the claims that its workers would make if no other pool claimed tasks and no task were enqueued, became due or
    ended.
    """
    _check_wanted(queue, task_id)
    state = command.current_state()
    with state.redis() as (config, store, connection), command.failing({UnknownPool: ExitCode.NO}):
        if queue:
            warn_of_unknown((queue,), config, store, connection)
        found = follow(connection.run, explaining(store, WantedClaims(count, queue or "", task_id, pool)))
    if found.task:
        require_known(found.task)
    if state.json:
        output.put_json(facts_of(found))
        return
    _put_explanation(found, no_color=state.no_color)


def _check_wanted(queue: str | None, task_id: str) -> None:
    if queue and task_id:
        raise Failure(ExitCode.USAGE, "name a queue or use --id, not both: --id also explains the queue of the task")
    command.check_usage(queue and fault_in_queue_name(queue), task_id and fault_in_name("id", task_id))


def _put_explanation(found: Explanation, *, no_color: bool) -> None:
    """Write when the named queue or task could be claimed, if one was named. Then write the next claims and the queues
    of each pool.
    """
    if found.about:
        output.put(f"{found.about}\n")
    if not found.pools and not found.about:
        output.put(f"pools: {NO_POOLS}")
    for pool in _pools_of(found):
        output.put(_heading(pool))
        if pool.claims:
            output.put_table(_CLAIM_COLUMNS, map(_claim_row, pool.claims), no_color=no_color)
        queues = [each for each in pool.queues if each.queue == found.queue or not found.queue]
        if queues:
            output.put("")
            output.put_table(_QUEUE_COLUMNS, map(_queue_row, queues), no_color=no_color)
        output.put("")
    if found.unserved:
        output.put(f"served by no fleet: {', '.join(found.unserved)}")


def _pools_of(found: Explanation) -> Sequence[PoolOutlook]:
    """Return the pools to show. If the query is about a queue that no pool serves, no pools are shown."""
    is_served = any(pool.of_queue(found.queue).outlook is not Outlook.UNSERVED for pool in found.pools)
    return found.pools if is_served or not found.queue else ()


def _heading(pool: PoolOutlook) -> str:
    claims = output.counted(len(pool.claims), "claim")
    more = "" if pool.is_whole else ", because a longer search would block the server"
    return f"pool {pool.pool} on {', '.join(pool.nodes)}: the next {claims}{more}"


def _claim_row(claim: ExpectedClaim) -> tuple[object, ...]:
    name = claim.name or "-"
    task_id = claim.id or "-"
    return claim.number, claim.queue, name, task_id, claim.tier, claim.lane, claim.attempt, claim.why


def _queue_row(queue: QueueOutlook) -> tuple[object, ...]:
    return queue.queue, queue.tier, queue.ready, queue.claims, queue.why
