"""The overview of queues when there are more queues than one call reads, and when queues belong to patterns."""

from rota.protocol.new_tasks import NewTask
from rota.protocol.scans import complete_overview
from rota.protocol.scripts import follow
from rota.protocol.views import Overview, QueueState
from rota_supervisor.exporter.queue_watch import QueueScan
from support.protocol import Fleet, body_of
from support.waiting import until

QUEUES = 1200


def rows(overview: Overview) -> dict[str, QueueState]:
    return {row.queue: row for row in overview.queues}


def flood(fleet: Fleet, count: int) -> None:
    tasks = [NewTask(f"id-{number}", f"t-{number}", body_of(f"id-{number}")) for number in range(count)]
    for at in range(0, count, 500):
        fleet.enqueue(*tasks[at : at + 500])


def test_an_overview_of_many_queues_comes_in_batches_without_repeats(fleet: Fleet) -> None:
    flood(fleet, QUEUES)
    first = fleet.run(fleet.store.overview(["named", "t-3"]))
    assert first.more
    assert len(first.queues) < QUEUES / 2
    assert {"named", "t-3"} <= rows(first).keys()

    whole = follow(fleet.run, complete_overview(fleet.store, first))
    assert not whole.more
    assert len(whole.queues) == QUEUES + 1, "no queue twice"
    assert {row.ready for row in whole.queues if row.queue != "named"} == {1}


def test_a_queue_scan_goes_on_in_rounds_and_then_drops_deleted_queues(fleet: Fleet) -> None:
    flood(fleet, QUEUES)
    look = QueueScan(fleet.store, ("named",), seconds=-1)

    def scan() -> Overview:
        return look.read_more(fleet.run, look.read_first(fleet.run))

    first = scan()
    assert first.more
    assert len(first.queues) < QUEUES / 2
    until(lambda: not scan().more)
    whole = {f"t-{number}" for number in range(QUEUES)} | {"named"}
    assert rows(scan()).keys() == whole, "those of the round before, too"

    fleet.redis.srem(fleet.keys.queues, "t-1", "t-2")
    until(lambda: rows(scan()).keys() == whole - {"t-1", "t-2"})


def test_an_overview_that_is_stopped_early_returns_what_it_has_read(fleet: Fleet) -> None:
    flood(fleet, QUEUES)
    first = fleet.run(fleet.store.overview([]))
    assert follow(fleet.run, complete_overview(fleet.store, first, lambda: True)) == first


def test_bare_scheduled_items_are_counted_once_across_batches(fleet: Fleet) -> None:
    flood(fleet, QUEUES)
    fleet.redis.zadd(fleet.keys.delayed, {'["work",[]]': 4_000_000_000})
    whole = follow(fleet.run, complete_overview(fleet.store, fleet.run(fleet.store.overview([]))))
    assert sum(row.scheduled for row in whole.queues) == 1


def test_a_queue_counts_as_served_while_its_pattern_is_served(fleet: Fleet) -> None:
    fleet.push("a", queue="t-1")
    fleet.push("b", queue="other")
    fleet.run(fleet.store.announce("node", b"{}", 60_000, ["t-*"]))
    found = rows(fleet.run(fleet.store.overview([])))
    assert {name: row.served for name, row in found.items()} == {"t-1": True, "other": False}

    fleet.run(fleet.store.announce("node", b"{}", 0, ["t-*"]))
    assert not rows(fleet.run(fleet.store.overview([])))["t-1"].served


def test_the_totals_of_a_pattern_include_tasks_of_forgotten_queues(fleet: Fleet) -> None:
    fleet.redis.hset(fleet.keys.totals, "accepted:t-*", 7)
    row = rows(fleet.run(fleet.store.overview(["t-*"])))["t-*"]
    assert (row.accepted, row.ready) == (7, 0)
