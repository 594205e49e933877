"""`rota queue explain`: which tasks are claimed next, and why."""

from typing import Final

import click

from rota.client.explain import Explanation, UnknownPool, WantedClaims
from rota.client.explain import explain as explaining
from rota.client.outlook import NOBODY, ExpectedClaim, PoolOutlook, QueueOutlook
from rota.protocol.command import follow
from rota.protocol.names import fault_in_name, fault_in_queue_name
from rota.protocol.turns import DEFAULT_CLAIMS, MOST_CLAIMS
from rota_supervisor.cli import command, output
from rota_supervisor.cli.task_show import require_known
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.facts import facts_of

_CLAIMS: Final = ("#", "QUEUE", "TASK", "ID", "TIER", "LANE", "ATTEMPT", "WHY")
_QUEUES: Final = ("QUEUE", "TIER", "READY", "OF THESE", "WHY NO MORE")


@click.command("explain", cls=command.RotaCommand)
@click.argument("queue", required=False)
@click.option("--id", "task_id", default="", metavar="ID", help="Say when this task could be claimed.")
@click.option(
    "-n",
    "count",
    default=DEFAULT_CLAIMS,
    show_default=True,
    type=click.IntRange(1, MOST_CLAIMS),
    help="How many claims.",
)
@click.option("--pool", default="", metavar="POOL", help="Only what the workers of this pool claim.")
def explain(*, queue: str | None, task_id: str, count: int, pool: str) -> None:
    """Show the next claims in order, and why it is these; of QUEUE or a task when it could be claimed.

    They are those of the workers of each pool by itself, as if nothing else were enqueued, became due or ended.
    """
    _check(queue, task_id)
    state = command.current_state()
    with state.redis() as (_, store, connection):
        try:
            found = follow(connection.run, explaining(store, WantedClaims(count, queue or "", task_id, pool)))
        except UnknownPool as error:
            raise Failure(ExitCode.NO, str(error)) from None
    if found.task:
        require_known(found.task)
    if state.json:
        output.put_json(facts_of(found))
        return
    _put(found, no_color=state.no_color)


def _check(queue: str | None, task_id: str) -> None:
    if queue and task_id:
        raise Failure(ExitCode.USAGE, "name a queue or --id, not both: a task stands in its queue")
    if queue and (fault := fault_in_queue_name(queue)):
        raise Failure(ExitCode.USAGE, fault)
    if task_id and (fault := fault_in_name("id", task_id)):
        raise Failure(ExitCode.USAGE, fault)


def _put(found: Explanation, *, no_color: bool) -> None:
    """The answer to what was asked, then the claims and the queues of each pool."""
    if found.about:
        output.put(f"{found.about}\n")
    if not found.pools and not found.about:
        output.put(f"pools: {NOBODY}")
    for pool in found.pools:
        output.put(_heading(pool))
        if pool.claims:
            output.put_table(_CLAIMS, map(_claim_row, pool.claims), no_color=no_color)
        queues = [each for each in pool.queues if each.queue == found.queue or not found.queue]
        if queues:
            output.put("")
            output.put_table(_QUEUES, map(_queue_row, queues), no_color=no_color)
        output.put("")
    if found.unserved:
        output.put(f"served by nobody: {', '.join(found.unserved)}")


def _heading(pool: PoolOutlook) -> str:
    claims = output.counted(len(pool.claims), "claim")
    more = "" if pool.is_whole else ": looking further would keep the server too long"
    return f"pool {pool.pool} on {', '.join(pool.nodes)}: the next {claims}{more}"


def _claim_row(claim: ExpectedClaim) -> tuple[object, ...]:
    name, task_id = claim.name or "-", claim.id or "-"
    return claim.place, claim.queue, name, task_id, claim.tier, claim.lane, claim.attempt, claim.why


def _queue_row(queue: QueueOutlook) -> tuple[object, ...]:
    return queue.queue, queue.tier, queue.ready, queue.claims, queue.why
