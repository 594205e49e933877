"""Claims about the overview where there are more queues than one call looks at, and queues of patterns."""

from rota.protocol.new_tasks import NewTask
from rota.protocol.scans import complete_overview
from rota.protocol.scripts import follow
from rota.protocol.views import Overview, QueueState
from rota_supervisor.exporter.queue_reading import QueueScan
from support.protocol import Fleet, body_of
from support.waiting import until

QUEUES = 1200


def rows(overview: Overview) -> dict[str, QueueState]:
    return {row.queue: row for row in overview.queues}


def flood(fleet: Fleet, count: int) -> None:
    tasks = [NewTask(f"id-{number}", f"t-{number}", body_of(f"id-{number}")) for number in range(count)]
    for at in range(0, count, 500):
        fleet.enqueue(*tasks[at : at + 500])


def test_many_queues_come_in_portions_and_each_of_them_once(fleet: Fleet) -> None:
    flood(fleet, QUEUES)
    first = fleet.run(fleet.store.overview(["named", "t-3"]))
    assert first.more
    assert len(first.queues) < QUEUES / 2
    assert {"named", "t-3"} <= rows(first).keys()

    whole = follow(fleet.run, complete_overview(fleet.store, first))
    assert not whole.more
    assert len(whole.queues) == QUEUES + 1, "none twice"
    assert {row.ready for row in whole.queues if row.queue != "named"} == {1}


def test_a_look_goes_on_where_the_last_one_stopped_and_forgets_who_is_gone_after_a_whole_round(fleet: Fleet) -> None:
    flood(fleet, QUEUES)
    look = QueueScan(fleet.store, ("named",), seconds=-1)

    def looked() -> Overview:
        return look.read_more(fleet.run, look.read_first(fleet.run))

    first = looked()
    assert first.more
    assert len(first.queues) < QUEUES / 2
    until(lambda: not looked().more)
    whole = {f"t-{number}" for number in range(QUEUES)} | {"named"}
    assert rows(looked()).keys() == whole, "those of the round before, too"

    fleet.redis.srem(fleet.keys.queues, "t-1", "t-2")
    until(lambda: rows(looked()).keys() == whole - {"t-1", "t-2"})


def test_who_has_seen_enough_is_told_that_there_are_more(fleet: Fleet) -> None:
    flood(fleet, QUEUES)
    first = fleet.run(fleet.store.overview([]))
    assert follow(fleet.run, complete_overview(fleet.store, first, lambda: True)) == first


def test_what_other_languages_scheduled_is_told_once_however_many_portions_there_are(fleet: Fleet) -> None:
    flood(fleet, QUEUES)
    fleet.redis.zadd(fleet.keys.delayed, {'["work",[]]': 4_000_000_000})
    whole = follow(fleet.run, complete_overview(fleet.store, fleet.run(fleet.store.overview([]))))
    assert sum(row.scheduled for row in whole.queues) == 1


def test_a_queue_is_served_when_its_pattern_is(fleet: Fleet) -> None:
    fleet.push("a", queue="t-1")
    fleet.push("b", queue="other")
    fleet.run(fleet.store.announce("node", b"{}", 60_000, ["t-*"]))
    found = rows(fleet.run(fleet.store.overview([])))
    assert {name: row.served for name, row in found.items()} == {"t-1": True, "other": False}

    fleet.run(fleet.store.announce("node", b"{}", 0, ["t-*"]))
    assert not rows(fleet.run(fleet.store.overview([])))["t-1"].served


def test_a_pattern_has_a_row_of_what_its_forgotten_queues_accepted(fleet: Fleet) -> None:
    fleet.redis.hset(fleet.keys.totals, "accepted:t-*", 7)
    row = rows(fleet.run(fleet.store.overview(["t-*"])))["t-*"]
    assert (row.accepted, row.ready) == (7, 0)
