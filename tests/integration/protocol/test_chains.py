"""Chains. The transition that ends a task as done also enqueues the next task."""

from typing import Any

import pytest

from rota.protocol.groups import Into
from rota.protocol.new_tasks import NewMember, NewTask, follow_text
from rota.protocol.nodes import Announced
from rota.protocol.outcome import CancelledOutcome, DeadOutcome, Done, Expired, Outcome, Release, RetryOutcome
from rota.protocol.tiers import QueueCondition, QueueShare, domain_of, pack_tiers
from support.grouping import Grouping
from support.protocol import body_of, one_tier

Q = one_tier("q")
DEAD = DeadOutcome(b'{"reason":"raised"}')


def test_each_task_done_enqueues_the_next_of_its_chain(groups: Grouping) -> None:
    groups.chain("a", "b", "c")
    assert groups.run_one(Done()) == "a"
    assert groups.fleet.lane() == ["b"]
    assert groups.run_one(Done()) == "b"
    assert groups.run_one(Done()) == "c"
    assert groups.kept() == []


@pytest.mark.parametrize("outcome", [DEAD, CancelledOutcome(), Expired()])
def test_a_chain_ends_with_a_task_that_is_not_done(groups: Grouping, outcome: Outcome) -> None:
    groups.chain("a", "b", "c")
    assert groups.run_one(outcome) == "a"
    assert groups.fleet.lane() == []
    assert groups.kept() == []


@pytest.mark.parametrize("outcome", [Release(), RetryOutcome(0)])
def test_a_chain_waits_until_a_released_or_retried_task_is_done(groups: Grouping, outcome: Outcome) -> None:
    groups.chain("a", "b")
    assert groups.run_one(outcome) == "a"
    groups.fleet.promote()
    assert groups.run_one(Done()) == "a"
    assert groups.run_one(Done()) == "b"


def test_a_worker_can_finish_a_task_and_claim_the_next_of_its_chain_in_one_call(groups: Grouping) -> None:
    groups.chain("a", "b")
    claim = groups.claim()
    groups.fleet.silence()
    reply = groups.fleet.turn(groups.owner, Q, (claim, Done()), limit=1)
    assert [one.entry.id for one in reply.claims] == ["b"]
    assert groups.fleet.bell() == 0


def test_the_next_task_of_a_chain_wakes_a_worker_of_its_own_queue(groups: Grouping) -> None:
    groups.add([NewMember(groups.task("a"), follow_text([NewTask("b", "other", body_of("b", "other"))]))], Into())
    groups.run_one(Done())
    assert groups.fleet.lane("other") == ["b"]
    assert groups.fleet.bell("other") == 1


@pytest.mark.parametrize("name", ["t-1", "t-*"])
@pytest.mark.parametrize("bounds", [{}, {"cap": 1}, {"interval_us": 1, "burst": 1}, {"condition": "open"}], ids=str)
def test_chains_continue_in_limited_queues_and_in_queues_of_a_pattern(
    groups: Grouping, name: str, bounds: dict[str, Any]
) -> None:
    fleet, domain = groups.fleet, domain_of([QueueShare(name, **bounds)])
    domains = (domain,) if domain.has_patterns else ()
    fleet.run(fleet.store.announce("node", b"{}", 60_000, [name], Announced(domains=domains)))
    fleet.run(fleet.store.check_conditions(60_000, [QueueCondition("open", "lua", "return running == 0")]))
    first, *rest = (NewTask(one, "t-1", body_of(one, "t-1")) for one in "abc")
    groups.add([NewMember(first, follow_text(rest))], Into())
    serving = pack_tiers((domain,))
    [a] = fleet.turn(groups.owner, serving).claims
    fleet.silence(name)
    assert fleet.turn(groups.owner, serving, (a, Done()), limit=0).claims == ()
    assert fleet.bell(name) == 1
    [b] = fleet.turn(groups.owner, serving, tokens=[name]).claims
    [c] = fleet.turn(groups.owner, serving, (b, Done())).claims
    assert (b.entry.id, c.entry.id) == ("b", "c")


def test_a_delay_counts_from_the_end_of_the_previous_task(groups: Grouping) -> None:
    groups.add([NewMember(groups.task("a"), follow_text([groups.task("b", "+60000000^")]))], Into())
    groups.run_one(Done())
    fleet = groups.fleet
    assert fleet.score(fleet.keys.delayed, "b") == pytest.approx(fleet.now_us() / 1e6 + 60, abs=5)
    assert fleet.redis.hget(fleet.keys.tickets, "b") == "q d 0 0 0 0 - ^"
