"""Groups and chains in real fleets. The follow-up task starts once, after the last member has ended, whatever the
outcome of the members.
"""

import json
from collections.abc import Iterator

import pytest
import redis

import rota
from rota import Call
from support.fleets import Measure, RunningFleet, running_fleet
from support.following import after, check_followed_once, notes, wait_until_nothing_is_left
from support.servers import Server
from support.waiting import seconds_until, until

LARGE = 10_000


@pytest.fixture(scope="module", name="running")
def _running(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFleet]:
    folder = tmp_path_factory.mktemp("groups")
    with running_fleet(
        server.url, folder.name, folder, tiers=[["default", "late"]], log={"tasks": "failures"}
    ) as fleet:
        yield fleet


@pytest.fixture
def fleet(running: RunningFleet, redis_client: redis.Redis) -> Iterator[RunningFleet]:
    """Yield the fleet that all tests share. After each test, check that Redis has no data of the test's groups left."""
    yield running
    wait_until_nothing_is_left(redis_client, running.namespace)
    assert running.books_balance()


@pytest.mark.parametrize("size", [1, 10, LARGE])
def test_the_follow_up_of_a_group_starts_once_after_the_last_member_ended(
    fleet: RunningFleet, measured: Measure, size: int
) -> None:
    label = f"one of {size}"
    handle = fleet.client.enqueue(rota.group(notes(label, size), then=after(label)))
    measured(f"seconds of a group of {size}", seconds_until(lambda: handle.status().state == "ended"))
    ended = handle.status()
    assert (ended.total, ended.done, ended.left) == (size, size, 0)
    [started] = fleet.wait_for("start", label=f"after {label}")
    assert started.id == ended.followed_by
    check_followed_once(fleet.journal(), label)


def _members_with_all_ends(label: str) -> list[Call[None]]:
    """Return calls for group members that will end in every possible way. The last two members are in the queue `late`,
    which the test pauses, so that one of them can be cancelled and the other one expires.
    """
    cancelled: Call[None] = Call("note", [label], queue="late", id=f"cancelled {label}".replace(" ", "-"))
    expired: Call[None] = Call("note", [label], queue="late", expires=0.001)
    return [*notes(label, 3), Call("give_up", [label], queue="default"), cancelled, expired]


@pytest.mark.parametrize("has_on_dead", [False, True])
def test_exactly_one_follow_up_starts_however_the_members_end(fleet: RunningFleet, has_on_dead: bool) -> None:
    label = f"mixed {has_on_dead}"
    sorry: Call[None] = Call("note", [f"sorry {label}"], queue="default")
    fleet.client.pause("late")
    members = _members_with_all_ends(label)
    handle = fleet.client.enqueue(rota.group(members, then=after(label), on_dead=sorry if has_on_dead else None))
    until(lambda: handle.status().left == 2, "the end of all tasks outside of the paused queue")
    assert fleet.client.cancel(str(members[-2].id)) == "cancelled"
    fleet.client.resume("late")
    ended = handle.wait(30)
    assert (ended.done, ended.dead, ended.cancelled, ended.expired) == (3, 1, 1, 1)
    [started] = fleet.wait_for("start", label=f"{'sorry' if has_on_dead else 'after'} {label}")
    assert started.id == ended.followed_by
    assert len([line for line in fleet.journal("start") if line.label.endswith(f" {label}")]) == 1


def test_a_group_ends_after_members_added_while_it_ran(fleet: RunningFleet) -> None:
    handle = fleet.client.enqueue(rota.group([Call("hold", ["added"], queue="default")], then=after("added")))
    fleet.wait_for("start", label="added")
    for _ in range(3):
        assert len(handle.add(notes("added", 10))) == 10
    fleet.wait_for("end", 30, label="added")
    assert (handle.status().state, handle.status().left) == ("closed", 1)
    fleet.release("added")
    assert handle.wait(30).done == 31
    fleet.wait_for("start", label="after added")
    check_followed_once(fleet.journal(), "added")
    with pytest.raises(rota.GroupEnded):
        handle.add(notes("added", 1))


def test_cancelling_a_group_cancels_all_members_and_its_follow_up(fleet: RunningFleet) -> None:
    fleet.client.pause("late")
    running: list[Call[None]] = [Call("linger", ["cancelled"], queue="default")]
    handle = fleet.client.enqueue(rota.group([*running, *notes("waits", 20, "late")], then=after("cancelled")))
    fleet.wait_for("start", label="cancelled")
    assert handle.cancel()
    ended = handle.wait(30)
    fleet.client.resume("late")
    assert (ended.cancelled, ended.is_cancelled, ended.followed_by) == (21, True, "")
    assert not fleet.journal("start", label="waits")
    assert not fleet.journal("start", label="after cancelled")


def test_a_chain_in_a_group_is_one_member_and_runs_in_order(fleet: RunningFleet) -> None:
    chain = rota.chain(*(Call("note", [f"step {number}"], queue="default") for number in range(5)))
    handle = fleet.client.enqueue(rota.group([chain, chain], then=rota.chain(after("chains"), after("that"))))
    assert handle.wait(30).total == 2
    fleet.wait_for("end", label="after that")
    steps = [line for line in fleet.journal() if line.label.startswith("step ")]
    starts = [line.label for line in steps if line.event == "start"]
    assert starts.count("step 4") == 2
    for number in range(1, 5):
        ended = min(line.at for line in steps if (line.event, line.label) == ("end", f"step {number - 1}"))
        assert all(line.at > ended for line in steps if (line.event, line.label) == ("start", f"step {number}"))
    [first], [second] = (fleet.journal("start", label=f"after {label}") for label in ("chains", "that"))
    assert max(line.at for line in steps) < first.at < second.at


def test_the_progress_of_a_group_is_shown_while_it_runs(fleet: RunningFleet) -> None:
    held: Call[None] = Call("hold", ["shown"], queue="default")
    handle = fleet.client.enqueue(rota.group([held, *notes("quick", 3)], then=after("shown"), id="shown"))
    until(lambda: handle.status().left == 1, "the end of the others")
    shown = fleet.rota_json("group", "show", "shown")
    assert (shown["state"], shown["total"], shown["left"], shown["done"]) == ("closed", 4, 1, 3)
    assert [row["id"] for row in fleet.rota_json("group", "ls")] == ["shown"]
    until(lambda: fleet.metrics().total("rota_groups_open") == 1, "a scrape shows the group")
    [row] = until(lambda: json.loads(fleet.get("/status.json")[1])["groups"], "the status shows the group")
    assert (row["id"], row["left"], row["then"]) == ("shown", 1, shown["then"])
    ended = fleet.metrics().total("rota_groups_ended_total", outcome="then")
    fleet.release("shown")
    until(lambda: fleet.metrics().total("rota_groups_ended_total", outcome="then") == ended + 1, "the group is counted")
    assert fleet.rota_json("group", "show", "shown")["followed_by"] == shown["then"]
    assert fleet.metrics().total("rota_groups_open") == 0
