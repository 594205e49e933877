"""`Client.explain`, which predicts the next claims of the pools that masters have announced, and explains the state of
a queue or task.
"""

from collections.abc import Sequence

import pytest

import rota
from rota.client.blocking.client import Client
from rota.client.explanation import Outlook, UnknownPool
from rota.protocol.nodes import heartbeat_of
from rota.protocol.outcome import DeadOutcome
from rota.protocol.tiers import Domain, QueueShare, domain_of, pack_tiers
from support.protocol import Fleet

HIGH, LOW = domain_of([QueueShare("high")]), domain_of([QueueShare("low", cap=1), QueueShare("free", weight=3)])
MAIL = domain_of([QueueShare("mail")])
TTL_MS = 600_000


@pytest.fixture(autouse=True)
def two_nodes(fleet: Fleet) -> None:
    """Announce two nodes. Each node has a pool that serves all tiers, and one of the nodes has another pool only for
    `mail`.
    """
    announce(fleet, "web-1", {"all": [HIGH, LOW]})
    announce(fleet, "web-2", {"all": [HIGH, LOW], "mail": [MAIL]})


def announce(fleet: Fleet, node: str, pools: dict[str, Sequence[Domain]]) -> None:
    served = [share.name for domains in pools.values() for domain in domains for share in domain.queues]
    fleet.run(fleet.store.announce(node, heartbeat_of(7, pools), TTL_MS, served))


def test_the_next_claims_of_each_pool_are_listed_with_reasons(client: Client, fleet: Fleet) -> None:
    fleet.push("l1", "l2", queue="low")
    fleet.push("h1", queue="high")
    fleet.push("m1", queue="mail")
    fleet.push("x1", queue="nobodys")
    found = client.explain(5)
    assert isinstance(found, rota.Explanation)
    everything, mail = found.pools
    assert (everything.pool, everything.nodes, mail.nodes) == ("all", ("web-1", "web-2"), ("web-2",))
    assert [(each.number, each.id, each.tier, each.name) for each in everything.claims] == [
        (1, "h1", 1, "work"),
        (2, "l1", 2, "work"),
    ]
    assert everything.claims[1].why.startswith("tier 2: no queue above has a ready task")
    assert everything.of_queue("low").outlook is Outlook.CAP
    assert [each.id for each in mail.claims] == ["m1"]
    assert found.unserved == ("nobodys",)
    assert found.about == ""


def test_a_pool_can_be_chosen_and_an_unknown_one_is_refused(client: Client, fleet: Fleet) -> None:
    fleet.push("m1", queue="mail")
    [mail] = client.explain(pool="mail").pools
    assert [each.id for each in mail.claims] == ["m1"]
    with pytest.raises(UnknownPool, match='no running master has a pool "male": the pools are all, mail'):
        client.explain(pool="male")


def test_the_explanation_of_a_queue_says_why_its_tasks_wait(client: Client, fleet: Fleet) -> None:
    fleet.push("f1", queue="free")
    fleet.run(fleet.store.pause("free"))
    fleet.push("late", queue="high", due="+60000000")
    assert (
        "in pool all: 0 of 1 ready tasks are among the next 0 claims; it is paused"
        in client.explain(queue="free").about
    )
    assert "pool mail does not serve it" in client.explain(queue="free").about
    scheduled = client.explain(queue="high").about
    assert "none of its tasks is ready" in scheduled
    assert "scheduled tasks: 1; the next one becomes ready at" in scheduled
    unserved = "queue nobodys: no pool of a running fleet serves it; add it to `tiers` in rota.toml"
    assert client.explain(queue="nobodys").about == unserved


def test_the_explanation_of_a_task_says_when_it_will_be_claimed(client: Client, fleet: Fleet) -> None:
    fleet.push("dies", "runs", *(f"w{number}" for number in range(4)), queue="high")
    fleet.push("late", queue="high", due="+60000000")
    owner = fleet.register()
    serving = pack_tiers([HIGH])
    [claim] = fleet.turn(owner, serving).claims
    [runs] = fleet.turn(owner, serving, (claim, DeadOutcome(b'{"reason":"retries"}'))).claims
    assert client.explain(2, task_id="w1").about.startswith("it is claim 2 of pool all: ")
    behind = client.explain(2, task_id="w3").about
    assert "it is ready, but is not among these claims: 3 tasks of its queue come before it" in behind
    assert "2 of 4 ready tasks are among the next 2 claims; its other tasks come after these claims" in behind
    assert client.explain(task_id=runs.entry.id).about == f"it has already been claimed by {owner}"
    assert client.explain(task_id="late").about.startswith("it is scheduled and becomes ready at ")
    assert "it is dead and will not be claimed: `rota dead revive dies`" in client.explain(task_id="dies").about
    assert client.explain(task_id="unheard").about.startswith(
        "the server knows nothing about it: it was never enqueued"
    )


def test_without_a_master_no_claims_are_expected(client: Client, fleet: Fleet) -> None:
    fleet.push("m1", queue="mail")
    fleet.redis.delete(fleet.keys.nodes)
    found = client.explain(queue="mail")
    assert found.pools == ()
    assert "no running master has a pool, so no worker claims tasks" in found.about
    with pytest.raises(UnknownPool, match="no running master has a pool, so"):
        client.explain(pool="mail")


@pytest.mark.parametrize(
    ("number", "error"),
    [(0, ValueError), (1001, ValueError), ("5", TypeError), (True, TypeError), (2.5, TypeError)],
)
def test_an_invalid_number_of_claims_is_refused(client: Client, number: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="the number of claims must be"):
        client.explain(number)


def test_a_queue_and_a_task_together_are_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="name either a queue or a task"):
        client.explain(queue="mail", task_id="m1")
    with pytest.raises(rota.InvalidName):
        client.explain(queue="a b")
    with pytest.raises(rota.InvalidName):
        client.explain(task_id="a b")
