"""`rota group` on a real server: its output, its effects and its exit codes."""

import json
from functools import partial
from pathlib import Path

import pytest

from rota.protocol.groups import Into
from rota.protocol.new_tasks import NewMember
from rota.protocol.outcome import DeadOutcome, Done
from support.command_line import Rota, rota_in, write_configuration
from support.grouping import Grouping
from support.protocol import Fleet
from support.servers import Server


@pytest.fixture
def groups(fleet: Fleet) -> Grouping:
    return Grouping(fleet)


@pytest.fixture
def group(
    server: Server,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Rota:
    """Return a function that runs `rota group` in this process."""
    write_configuration(tmp_path, server, namespace)
    return partial(rota_in(tmp_path, monkeypatch, capsys), "group")


def test_groups_that_have_not_ended_are_listed_oldest_first(group: Rota, groups: Grouping) -> None:
    groups.open("nightly", "a", "b", "c", then="end")
    groups.run_one(Done())
    groups.run_one(DeadOutcome(b"{}"))
    groups.open("later", "d")

    header, first, second = group("ls").out.splitlines()
    assert header.split()[:4] == ["ID", "STATE", "ENDED", "LEFT"]
    assert first.split()[:9] == ["nightly", "closed", "2/3", "(67", "%)", "1", "1", "1", "0"]
    assert second.startswith("later")
    assert len(group("ls", "--limit", "1").out.splitlines()) == 2
    assert [each["id"] for each in json.loads(group("ls", "--json").out)] == ["nightly", "later"]


def test_show_prints_the_progress_and_the_following_task(group: Rota, groups: Grouping) -> None:
    groups.open("nightly", "a", "b", then="end", on_dead="sorry")
    groups.run_one(Done())

    shown = group("show", "nightly").out
    for line in ("state:             closed", "left:              1", "ended:             1/2 (50 %)"):
        assert line in shown
    before = group("show", "nightly", "--json").json
    assert (before["then"], before["on_dead"], "followed_by" in before) == ("end", "sorry", False)

    groups.run_one(DeadOutcome(b"{}"))
    after = group("show", "nightly", "--json").json
    assert (after["state"], after["left"], after["dead"], after["followed_by"]) == ("ended", 0, 1, "sorry")
    assert not {"then", "on_dead"} & after.keys()


def test_group_cancel_ends_waiting_members_and_enqueues_no_follow_up(group: Rota, groups: Grouping) -> None:
    groups.open("nightly", "a", "b", "c", then="end", on_dead="sorry")
    groups.claim()

    done = group("cancel", "nightly")
    assert (done.code, done.err) == (
        0,
        "rota: cancelled group nightly; requested 1 running member to end\n",
    )
    assert "then" not in group("show", "nightly", "--json").json
    assert group("close", "nightly").err == "rota: group nightly was already cancelled: 2/3 (67 %) ended\n"
    assert group("cancel", "nightly", "--json").json["cancelled"] == 2


def test_group_close_lets_a_group_end_whose_enqueue_was_interrupted(group: Rota, groups: Grouping) -> None:
    groups.add([NewMember(groups.task("a"))], Into("cut-short", groups.opening(then="end")))
    groups.run_one(Done())
    assert group("show", "cut-short", "--json").json["state"] == "open"

    assert group("close", "cut-short").err == "rota: group cut-short is closed: 1/1 (100 %) ended\n"
    assert group("show", "cut-short", "--json").json["followed_by"] == "end"


@pytest.mark.parametrize("verb", ["show", "cancel", "close"])
def test_unknown_groups_and_invalid_ids_are_errors(group: Rota, verb: str) -> None:
    unknown = group(verb, "nope")
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err.startswith(
        'rota: error: there is no group "nope": it ended at least 50 s ago, or never existed: '
    )
    assert group(verb, "two words").code == 2


@pytest.mark.parametrize("verb", ["cancel", "close"])
def test_an_ended_group_cannot_be_cancelled_or_closed(group: Rota, groups: Grouping, verb: str) -> None:
    groups.open("nightly", "a")
    groups.run_one(Done())

    ended = group(verb, "nightly")
    assert ended.code == 1
    assert ended.err == "rota: error: group nightly has already ended: see `rota group show nightly`\n"
