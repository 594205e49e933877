"""The checker of the soak test finds every fault in the order and times of tasks, in counts, and in leftover data. It
finds no fault in a clean history.
"""

from typing import Any

import pytest

from soak.checker import judge, report
from soak.evidence import CallEvent, RunEvent
from soak.faults import Fault
from soak.findings import Wrong
from soak.planting import FAR, OTHER, OWNER_A, Plot, found, one_run

# Early


def test_the_checker_reports_a_start_before_the_due_time_as_early() -> None:
    due = 1_700_000_020.0
    assert found(Plot().accept("t", 10.0, due=due).run("t", 20.0, 20.1)) == []
    assert found(Plot().accept("t", 10.0, due=due).run("t", 19.95, 20.1)) == [Wrong.EARLY]


def test_the_checker_reports_a_retry_before_its_planned_time_as_early() -> None:
    plot = Plot().accept("t", 10.0, fails=1).run("t", 10.1, 10.2, RunEvent.RAISED)
    assert found(plot.run("t", 11.0, 11.1, attempt=2, due=1_700_000_011.05)) == [Wrong.EARLY]


# Order


def in_order(*numbers: int) -> Plot:
    plot = Plot(order_queue="order")
    for number in range(len(numbers)):
        plot.accept(f"o{number}", 10.0 + number / 100, queue="order", number=number)
    for place, number in enumerate(numbers):
        plot.run(f"o{number}", 11.0 + place / 10, 11.05 + place / 10, queue="order")
    return plot


def test_the_checker_reports_a_task_that_was_overtaken_in_its_lane() -> None:
    assert found(in_order(0, 1, 2, 3)) == []
    assert found(in_order(0, 2, 1, 3)) == [Wrong.ORDER]


def test_a_recovered_task_must_be_the_next_of_its_queue() -> None:
    def recovered_after(first: float) -> Plot:
        plot = Plot(order_queue="order").accept("o0", 10.0, queue="order", number=0)
        plot.accept("o1", 10.1, queue="order", number=1).run("o0", 11.0, queue="order")
        plot.strike(Fault.KILL_WORKER, "a", 11.1, pids=(101,)).run("o0", 11.3, 11.4, attempt=2, crashes=1, **OTHER)
        return plot.run("o1", first, first + 0.01, queue="order", **OTHER)

    assert found(recovered_after(11.5)) == []
    assert found(recovered_after(11.2)) == [Wrong.ORDER]


# Fairness


def served(queues: str) -> Plot:
    plot = Plot(fair=("east", "west"))
    for number in range(30):
        for queue in ("east", "west"):
            plot.accept(f"{queue}{number}", 10.0 + number / 1000, queue=queue)
    place = {"e": 0, "w": 0}
    for number, letter in enumerate(queues):
        queue = "east" if letter == "e" else "west"
        plot.run(f"{queue}{place[letter]}", 11.0 + number / 100, 11.005 + number / 100, queue=queue)
        place[letter] += 1
    return plot


def test_queues_that_take_turns_count_as_served_fairly() -> None:
    assert found(served("ew" * 30)) == []
    assert found(served("eeww" * 15)) == []


def test_the_checker_reports_a_queue_that_waits_while_another_is_served() -> None:
    assert found(served("ewewew" + "e" * 10 + "ew" * 10 + "e" * 7 + "w" * 17)) == [Wrong.FAIRNESS]


# Unique keys


def test_the_checker_reports_two_live_tasks_with_one_unique_key() -> None:
    def second_at(boot: float) -> Plot:
        plot = Plot().accept("t", 10.0, unique="k").run("t", 11.0, 12.0)
        return plot.accept("u", boot, unique="k").run("u", 13.0, 13.1)

    assert found(second_at(12.5)) == []
    assert found(second_at(11.5)) == [Wrong.UNIQUE]


def test_the_checker_reports_a_unique_key_that_outlives_its_task() -> None:
    def refused_at(boot: float) -> Plot:
        plot = Plot().accept("t", 10.0, unique="k").run("t", 11.0, 12.0)
        return plot.add(CallEvent.INTENDED, "u", boot, unique="k").add(CallEvent.HELD, "u", boot + 0.01, reply="t")

    assert found(refused_at(11.5)) == []
    assert found(refused_at(17.0)) == [Wrong.UNIQUE]


# Waiting


def test_the_checker_reports_a_task_that_waits_despite_idle_workers() -> None:
    assert found(Plot().accept("t", 10.0).run("t", 12.9, 13.0)) == []
    assert found(Plot().accept("t", 10.0).run("t", 13.2, 13.3)) == [Wrong.WAITED]


def test_a_task_may_wait_during_a_fault_or_for_busy_workers() -> None:
    busy = Plot(workers=1).accept("long", 9.0).run("long", 9.1, 14.0).accept("t", 10.0).run("t", 14.1, 14.2, **OTHER)
    assert found(busy) == []
    assert found(Plot().accept("t", 10.0).strike(Fault.REFUSE, "a", 9.0, 12.0).run("t", 15.0, 15.1)) == []


def test_a_task_may_wait_while_the_server_does_not_reply() -> None:
    plot = Plot().accept("t", 10.0).run("t", 13.2, 13.3)
    plot.add(CallEvent.INTENDED, "u", 10.5, queue="mail").add(CallEvent.ACCEPTED, "u", 11.5).run("u", 11.6, 11.7)
    assert found(plot) == []


def test_the_waiting_time_of_a_task_is_measured_from_its_due_time() -> None:
    due = 1_700_000_020.0
    assert found(Plot().accept("t", 10.0, due=due).run("t", 22.0, 22.1)) == []
    assert found(Plot().accept("t", 10.0, due=due).run("t", 23.5, 23.6)) == [Wrong.WAITED]


def test_the_checker_reports_a_slow_recovery_of_a_killed_workers_task() -> None:
    plot = Plot().accept("t", 10.0).run("t", 10.1).strike(Fault.KILL_WORKER, "a", 10.5, pids=(101,))
    assert found(plot.run("t", 11.8, 11.9, attempt=2, crashes=1, **OTHER)) == [Wrong.RECOVERY]


def test_a_fault_after_the_recovery_does_not_count_for_recovery_times() -> None:
    plot = Plot().accept("t", 10.0).run("t", 10.1).strike(Fault.KILL_WORKER, "a", 10.5, pids=(101,))
    plot.run("t", 10.6, 10.7, attempt=2, crashes=1, **FAR).strike(Fault.KILL_NODE, "a", 20.0, 22.0)
    assert judge(plot.evidence()).numbers["recoveries of lost nodes' tasks"] == 0


@pytest.mark.parametrize("fault", [Fault.KILL_NODE, Fault.LOSE_HOST])
def test_a_lost_nodes_task_recovers_within_lease_plus_two_seconds(fault: Fault) -> None:
    def back_at(boot: float) -> Plot:
        plot = Plot().accept("t", 10.0).run("t", 10.1).strike(fault, "a", 11.0, 11.5)
        return plot.run("t", boot, boot + 0.1, attempt=2, **FAR)

    assert found(back_at(17.9)) == []
    assert found(back_at(18.2)) == [Wrong.RECOVERY]


def test_a_task_recovered_in_time_may_wait_in_its_lane() -> None:
    plot = Plot().accept("t", 10.0).run("t", 10.1).strike(Fault.KILL_NODE, "a", 11.0, 11.5)
    plot.log(17.0, "b", "task.recovered", task_id="t", role="poller", owner=OWNER_A)
    assert found(plot.run("t", 19.0, 19.1, attempt=2, **FAR)) == []


def test_recovery_times_are_measured_from_the_kill() -> None:
    plot = Plot().accept("t", 10.0).run("t", 10.1).strike(Fault.KILL_WORKER, "a", 10.5, pids=(101,))
    numbers = judge(plot.run("t", 10.6, 10.7, attempt=2, crashes=1, **OTHER).evidence()).numbers
    assert numbers["recoveries of killed workers' tasks"] == 1
    assert 0.09 < numbers["recovery p99 seconds"] < 0.11


# Leases, deaths, counts and leftovers


def test_the_checker_reports_a_lease_lost_after_an_outage_of_all_nodes() -> None:
    def lost_in(fault: Fault, target: str) -> Plot:
        plot = one_run().strike(fault, target, 20.0, 33.0)
        return plot.log(34.0, "b", "task.recovered", task_id="t", owner=OWNER_A, role="poller", losses=1)

    assert found(lost_in(Fault.STOP_NODE, "a")) == []
    assert found(lost_in(Fault.STOP_NODE, "a").log(60.0, "b", "worker.lost", owner=OWNER_A)) == [Wrong.LEASE]
    assert found(lost_in(Fault.LONG_OUTAGE, "server")) == [Wrong.LEASE]
    assert found(lost_in(Fault.STOP_NODE, "b")) == [Wrong.LEASE]


def test_a_lost_lease_is_reported_when_the_server_is_back() -> None:
    def stopped_before_an_outage(seconds: float) -> Plot:
        plot = (
            one_run().strike(Fault.STOP_NODE, "a", 20.0, 28.0).strike(Fault.LONG_OUTAGE, "server", 28.0, 28.0 + seconds)
        )
        return plot.log(28.5 + seconds, "a", "worker.lost", owner=OWNER_A)

    assert found(stopped_before_an_outage(14.0)) == []
    assert found(stopped_before_an_outage(14.0).log(60.0, "a", "worker.lost", owner=OWNER_A)) == [Wrong.LEASE]


def test_after_an_outage_a_node_has_one_lease_time_to_reconnect() -> None:
    def lost_after(seconds: float) -> Plot:
        plot = one_run().strike(Fault.LONG_OUTAGE, "server", 20.0, 30.0)
        plot.strike(Fault.REFUSE, "a", 29.0, 30.0 + seconds)
        return plot.log(30.0 + seconds, "b", "worker.lost", owner=OWNER_A)

    assert found(lost_after(6.0)) == []
    assert found(lost_after(2.0)) == [Wrong.LEASE]


def test_the_checker_reports_a_worker_death_without_a_cause() -> None:
    def dead_worker(**fields: Any) -> Plot:
        values: dict[str, Any] = {"child_pid": 101, "reason": "signal", "words": "killed by SIGSEGV"} | fields
        return one_run().log(12.0, "a", "worker.exited", **values)

    assert found(dead_worker()) == [Wrong.DIED]
    assert found(dead_worker(reason="drained")) == []
    assert found(dead_worker().strike(Fault.KILL_WORKER, "a", 11.99, pids=(101,))) == []
    assert found(dead_worker().strike(Fault.KILL_WORKER, "a", 11.99, pids=(102,))) == [Wrong.DIED]


@pytest.mark.parametrize("field", ["accepted", "done", "missing"])
def test_the_checker_reports_counters_that_disagree_with_the_evidence(field: str) -> None:
    assert found(one_run().quiet(**{field: 2})) == [Wrong.COUNTERS]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("in_lanes", 1),
        ("in_flight", 1),
        ("delayed", 1),
        ("zombies", 1),
        ("orphans", 1),
        ("workers_ready", 3),
        ("descriptors_grown", 50),
        ("memory_grown_mb", 100.0),
    ],
)
def test_the_checker_reports_anything_left_over_at_the_end(field: str, value: float) -> None:
    assert found(one_run().quiet(**{field: value})) == [Wrong.LEFT]


def test_the_soak_report_shows_the_history_of_the_first_faulty_task() -> None:
    evidence = one_run().strike(Fault.KILL_WORKER, "a", 10.25, pids=(105,)).run("t", 10.3, 10.4, **OTHER).evidence()
    text = "\n".join(report(evidence, judge(evidence)))
    assert "seed 1, profile planted" in text
    assert "DUPLICATED: 1" in text
    story = text[text.index("the task t:") :]
    order = ["intended", "accepted", "start attempt=1", "end attempt=1", "kill_worker", "pid=102"]
    assert sorted(order, key=story.index) == order
