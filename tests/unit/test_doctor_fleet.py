"""The findings of `rota doctor` about a namespace whose nodes are not one fleet, according to their heartbeats."""

import pytest

from rota.protocol.tiers import QueueShare
from rota_supervisor.config.model import Config
from support.examinations import foreign_node, ids_in, node, seen_in, with_fleet, with_nodes

WEB, MAIL = ["resize", "crop"], ["send", "bounce"]
Tiers = list[list[str | QueueShare]]


def test_nodes_with_equal_settings_are_one_fleet() -> None:
    assert ids_in(with_nodes(*(node(f"web-{number}.aa", WEB) for number in range(5)))) == []


def test_doctor_reports_two_applications_that_share_a_queue() -> None:
    found = with_nodes(
        node("web-1.aa", WEB, [["images"], ["default"]]), node("mail-1.bb", MAIL, [["mail"], ["default"]])
    )
    assert seen_in(found, "namespace-shared") == (
        "web-1.aa and mail-1.bb have no task in common, and both serve default"
    )


def test_a_shared_pattern_counts_as_a_shared_queue() -> None:
    tenants = node("web-1.aa", WEB, [["tenant-*"]])
    assert "namespace-shared" in ids_in(with_nodes(tenants, node("mail-1.bb", MAIL, [["tenant-7"]])))
    assert "namespace-shared" in ids_in(with_nodes(tenants, node("mail-1.bb", MAIL, [["tenant-vip-*"]])))
    assert "namespace-two-fleets" in ids_in(with_nodes(tenants, node("mail-1.bb", MAIL, [["tenants"]])))


def test_nodes_connected_by_a_third_node_are_one_fleet() -> None:
    chain = [node("a.1", ["resize"]), node("b.2", ["send"]), node("c.3", ["resize", "send"])]
    assert set(ids_in(with_nodes(*chain))) == {"nodes-code-differs"}


def test_local_code_that_shares_no_task_with_any_node_is_another_fleet() -> None:
    found = with_nodes(node("web-1.aa", WEB), code=frozenset(MAIL))
    assert seen_in(found, "namespace-shared") == (
        "web-1.aa and the modules here have no task in common, and both serve default"
    )
    assert Config().tiers == (("default",),)
    assert ids_in(with_nodes(node("web-1.aa", WEB), code=frozenset(WEB))) == []


@pytest.mark.parametrize("state", ["starting", "draining"])
def test_doctor_does_not_compare_nodes_that_are_starting_or_draining(state: str) -> None:
    assert ids_in(with_nodes(node("web-1.aa", WEB), node("web-1.bb", MAIL, state=state))) == []


def test_a_recently_killed_node_is_not_reported_as_a_different_node() -> None:
    killed = node("web-1.aa", WEB, left_seconds=8.0)
    assert ids_in(with_nodes(killed, node("web-1.bb", WEB))) == []


def test_doctor_reports_lost_nodes_but_not_stopped_ones() -> None:
    lost, stopped = node("web-1.aa", left_seconds=-60), node("web-2.bb", left_seconds=-60, state="draining")
    assert seen_in(with_nodes(lost, stopped), "node-lost") == "web-1.aa has been silent for 1 m 20 s"


def test_doctor_reports_nodes_with_different_options_for_a_queue() -> None:
    capped: Tiers = [[QueueShare("images", cap=5)], ["default"]]
    found = with_nodes(node("web-1.aa"), node("web-2.bb", tiers=capped))
    assert seen_in(found, "nodes-settings-differ") == "web-1.aa and web-2.bb: the options of images"
    assert ids_in(with_nodes(node("web-1.aa", tiers=capped), node("web-2.bb", tiers=capped))) == []


def test_options_of_a_pattern_with_a_condition_are_compared() -> None:
    tiers: Tiers = [[QueueShare("tenant-*", weight=2.0, condition="night"), QueueShare("images")], ["tenant-vip"]]
    same = with_nodes(node("web-1.aa", tiers=tiers), node("web-2.bb", tiers=tiers))
    assert ids_in(same) == []
    other: Tiers = [[QueueShare("tenant-*", weight=3.0, condition="night"), QueueShare("images")], ["tenant-vip"]]
    found = with_nodes(node("web-1.aa", tiers=tiers), node("web-2.bb", tiers=other))
    assert seen_in(found, "nodes-settings-differ") == "web-1.aa and web-2.bb: the options of tenant-*"


def test_nodes_may_serve_different_queues_of_one_fleet() -> None:
    found = with_nodes(
        node("web-1.aa", tiers=[["images"], ["default"]]), node("web-2.bb", tiers=[["mail"], ["default"]])
    )
    assert ids_in(found) == []


def test_doctor_reports_nodes_with_different_leases() -> None:
    found = with_nodes(node("web-1.aa"), node("web-2.bb", lease_seconds=60.0, left_seconds=58.0))
    assert seen_in(found, "nodes-settings-differ") == "web-1.aa and web-2.bb: lease.seconds is 20 and 60"


def test_a_host_name_with_dots_is_shown_whole() -> None:
    assert ids_in(with_nodes(node("web.example.aa"), node("web.other.bb"))) == []
    assert seen_in(with_nodes(node("web.example.aa"), node("web.example.bb")), "nodes-one-host") == (
        "web.example.aa, web.example.bb are on web.example"
    )


def test_malformed_heartbeats_of_other_nodes_cause_no_findings() -> None:
    garbage = [
        foreign_node("a.1", pools={"default": [1, "x", " a=b c", 1, "a"]}, tasks=["resize"], lease_seconds=20),
        foreign_node("b.2", pools={"default": "x"}, tasks="x", report=7),
        foreign_node("c.3"),
    ]
    assert ids_in(with_nodes(*garbage, node("web-1.aa"))) == []


def test_doctor_reports_more_ended_tasks_than_accepted_ones() -> None:
    assert seen_in(with_fleet(missing_tasks=-2), "tasks-missing") == "more tasks have ended than were accepted: 2"
    assert ids_in(with_fleet(missing_tasks=None)) == []
