"""The explanation of the next claim: its queue, and the reasons why the other queues are not next."""

from datetime import UTC, datetime
from typing import Any

import pytest

from rota.client.explanation import (
    Outlook,
    PoolOutlook,
    about_queue,
    about_ready,
    about_scheduled,
    about_shut,
    outlook_of,
)
from rota.client.status import TaskStatus
from rota.durations import unix_microseconds
from rota.protocol.entry import parse_entry
from rota.protocol.task_states import State
from rota.protocol.tiers import VIRTUAL_UNIT
from rota.protocol.turns import ClaimOrder, EntryInOrder, QueueInOrder

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOW = unix_microseconds(AT, "now")
PLAIN: dict[str, Any] = {
    "tier": 1, "cost": VIRTUAL_UNIT, "cap": 0, "interval_us": 0, "entries": 5, "running": 0, "time": 1, "left": 5,
    "is_open": True, "wait_us": 0, "paused": False, "condition": "", "closed": False, "opens_us": 0, "fault": "",
}  # fmt: skip


def queue(name: str, **changes: Any) -> QueueInOrder:
    return QueueInOrder(queue=name, **(PLAIN | changes))


def expected(task_id: str, of_queue: str, kind: str = "i", crashes: int = 0) -> EntryInOrder:
    return EntryInOrder(parse_entry(f"{task_id} {of_queue} {kind} {NOW} {NOW} 0 {crashes} 0 0 -".encode()), "work")


def pool_outlook(queues: list[QueueInOrder], *claims: EntryInOrder) -> PoolOutlook:
    order = ClaimOrder(NOW, True, claims, tuple(queues))
    return outlook_of("mail", ["web-1"], order, {"since": AT})


@pytest.mark.parametrize(
    ("found", "outlook", "why"),
    [
        (
            queue("q"),
            Outlook.BEHIND,
            "other tasks come first: other queues of tier 1 have been served less for their weights",
        ),
        (queue("q", left=0), Outlook.EMPTY, "none of its tasks is ready"),
        (queue("q", paused=True, is_open=False), Outlook.PAUSED, "it is paused, until `rota queue resume q`"),
        (
            queue("since", paused=True, is_open=False),
            Outlook.PAUSED,
            "it is paused since 2026-01-02T03:04:05Z, until `rota queue resume since`",
        ),
        (
            queue("q", cap=2, running=2, is_open=False),
            Outlook.CAP,
            "its cap is reached until a task ends: 2 of 2 tasks are running",
        ),
        (
            queue("q", interval_us=1, wait_us=1_500_000, is_open=False),
            Outlook.RATE,
            "its rate permits the next start in 1.500 s",
        ),
        (
            queue("q", condition="office", closed=True, is_open=False, opens_us=NOW + 55_000_000),
            Outlook.CONDITION,
            "its condition office keeps it closed, until 2026-01-02T03:05:00Z",
        ),
        (
            queue("q", condition="office", closed=True, is_open=False, fault="it failed"),
            Outlook.CONDITION,
            "its condition office keeps it closed: it failed",
        ),
    ],
)
def test_each_reason_why_the_next_claim_skips_a_queue_is_explained(
    found: QueueInOrder, outlook: Outlook, why: str
) -> None:
    [queue] = pool_outlook([found]).queues
    assert (queue.outlook, queue.why) == (outlook, why)


def test_all_reasons_why_a_queue_is_closed_are_listed() -> None:
    shut = queue("q", paused=True, cap=1, running=1, wait_us=2_000_000, is_open=False)
    [found] = pool_outlook([shut]).queues
    assert found.why.count(";") == 2
    assert found.opens_at == datetime(2026, 1, 2, 3, 4, 7, tzinfo=UTC)


def test_each_predicted_claim_is_explained() -> None:
    shut = queue("high", is_open=False, paused=True)
    capped = queue("low", tier=2, cap=3, running=1, cost=VIRTUAL_UNIT // 3, interval_us=10, time=None)
    crashed = expected("b", "low", "d", crashes=1)
    first, second = pool_outlook([shut, capped, queue("other", tier=2)], expected("a", "low"), crashed).claims
    assert (first.number, first.id, first.lane, first.attempt) == (1, "a", "ready", 1)
    assert first.why == (
        "tier 2: all queues in the tiers above are closed (high), queue never served before, "
        "task 2 of at most 3 that run at once, its rate permits it"
    )
    assert (second.number, second.lane, second.attempt, second.running) == (2, "delayed", 2, 3)
    assert second.why == (
        "tier 2: all queues in the tiers above are closed (high), queue served least for its weight of 3, "
        "the delayed lane is served before the ready lane, task 3 of at most 3 that run at once, its rate permits it, "
        "claimed alone, because of a recorded crash or loss"
    )


def test_a_predicted_claim_of_an_item_that_is_not_yet_adopted_has_no_id() -> None:
    [claim] = pool_outlook([queue("q")], expected(f"adopted-{NOW}-1", "q")).claims
    assert claim.id == ""
    assert claim.why == "no other queue of its tier has a ready task"


def test_a_ready_task_shows_its_predicted_claim_or_the_tasks_before_it() -> None:
    pool = pool_outlook([queue("q", left=4)], expected("a", "q"))
    ready = TaskStatus("a", State.READY, "q")
    first = "it is claim 1 of pool mail: no other queue of its tier has a ready task"
    assert list(about_ready(ready, [pool], 0)) == [first]
    later = TaskStatus("b", State.READY, "q")
    assert list(about_ready(later, [pool], 3)) == [
        "it is ready, but is not among these claims: 3 tasks of its queue come before it",
        "queue q in pool mail: 1 of 5 ready tasks are among the next 1 claims; its other tasks come after these claims",
    ]


def test_the_explanation_says_if_a_pool_does_not_serve_a_queue() -> None:
    assert list(about_queue("q", [pool_outlook([])])) == ["queue q in pool mail: pool mail does not serve it"]


def test_a_closed_queue_is_explained_even_if_none_of_its_tasks_is_ready() -> None:
    paused = pool_outlook([queue("q", left=0, entries=0, paused=True)])
    assert list(about_shut("q", [paused])) == ["queue q in pool mail: it is paused, until `rota queue resume q`"]
    assert list(about_shut("q", [pool_outlook([queue("q", left=0, entries=0)])])) == []


def test_a_scheduled_task_is_explained_by_its_due_time() -> None:
    due = datetime(2026, 1, 2, 3, 5, 5, tzinfo=UTC)
    words = about_scheduled(TaskStatus("a", State.SCHEDULED, "q", due_at=due), AT)
    when = "2026-01-02T03:05:05Z, in 60.0 s"
    assert words == f"it is scheduled and becomes ready at {when}, ahead of the ready lane of queue q"
    assert "now: it is due" in about_scheduled(TaskStatus("a", State.SCHEDULED, "q", due_at=AT), AT)
