"""The checker of the soak test finds every fault in the fate of a task, and finds no fault in a clean history."""

from typing import Any

import pytest

from soak.evidence import ALWAYS, CallEvent, RunEvent
from soak.faults import Fault
from soak.findings import Wrong
from soak.planting import FAR, OTHER, OWNER_A, Plot, found, one_run


def killed_during_run(**fields: Any) -> Plot:
    """Return a history in which a task's worker was killed during the run and another worker ran the task again."""
    plot = Plot().accept("t", 10.0).run("t", 10.1).strike(Fault.KILL_WORKER, "a", 10.5, pids=(101,))
    return plot.run("t", 10.6, 10.7, **({"attempt": 2, "crashes": 1} | OTHER | fields))


# Lost


def test_the_checker_has_no_findings_in_a_clean_history() -> None:
    assert found(one_run()) == []


def test_an_accepted_task_that_never_ran_is_lost() -> None:
    assert found(Plot().accept("t", 10.0)) == [Wrong.LOST]


def test_a_started_task_that_never_ended_is_lost_even_without_confirmation() -> None:
    plot = Plot().add(CallEvent.INTENDED, "t", 10.0).add(CallEvent.UNKNOWN, "t", 10.1).run("t", 10.2)
    assert found(plot) == [Wrong.LOST]


@pytest.mark.parametrize("reply", [CallEvent.REFUSED, CallEvent.UNKNOWN, CallEvent.HELD])
def test_a_call_that_was_not_accepted_is_not_lost(reply: CallEvent) -> None:
    assert found(Plot().add(CallEvent.INTENDED, "t", 10.0).add(reply, "t", 10.1)) == []


def test_a_call_without_a_reply_may_have_been_accepted_or_not() -> None:
    assert found(Plot().add(CallEvent.INTENDED, "t", 10.0)) == []
    assert found(Plot().add(CallEvent.INTENDED, "t", 10.0).run("t", 10.1, 10.2).quiet(accepted=1)) == []


def test_a_task_that_used_up_its_attempts_may_be_dead() -> None:
    plot = Plot().accept("t", 10.0, retries=1, fails=ALWAYS).run("t", 10.1, 10.2, RunEvent.RAISED)
    plot.run("t", 11.1, 11.2, RunEvent.RAISED, attempt=2).quiet(dead=1, dead_ids=("t",))
    assert found(plot) == []


def test_a_task_dead_before_its_last_attempt_is_lost() -> None:
    plot = Plot().accept("t", 10.0, retries=2, fails=ALWAYS).run("t", 10.1, 10.2, RunEvent.RAISED)
    plot.run("t", 11.1, 11.2, RunEvent.RAISED, attempt=2).quiet(dead=1, dead_ids=("t",))
    assert set(found(plot)) == {Wrong.LOST}


def test_three_crashes_explain_a_dead_task_but_two_do_not() -> None:
    def crashed(times: int) -> Plot:
        plot = Plot().accept("t", 10.0)
        for number in range(times):
            plot.run(
                "t", 11.0 + number, 11.1 + number, RunEvent.DIES, attempt=number + 1, crashes=number, pid=110 + number
            )
        return plot.log(20.0, "a", "task.dead", task_id="t", owner=OWNER_A, reason="crashed", role="master")

    assert found(crashed(3)) == []
    assert found(crashed(2)) == [Wrong.LOST]


def test_a_cancelled_task_need_not_run() -> None:
    plot = Plot().accept("t", 10.0).add(CallEvent.CANCEL, "t", 10.1).add(CallEvent.CANCELLED, "t", 10.2)
    assert found(plot) == []


def test_a_killed_server_may_lose_only_recently_accepted_tasks() -> None:
    def dead_server_at(boot: float) -> Plot:
        return Plot().accept("t", 10.0).strike(Fault.KILL_SERVER, "server", boot, boot + 3, lost_seconds=2.0)

    assert found(dead_server_at(11.0)) == []
    assert found(dead_server_at(14.0)) == [Wrong.LOST]
    assert found(dead_server_at(8.0)) == [Wrong.LOST]


# Duplicated


def test_the_checker_reports_a_second_start_without_a_cause() -> None:
    assert found(one_run().run("t", 10.3, 10.4, **OTHER)) == [Wrong.DUPLICATED]


def test_a_task_of_a_killed_worker_may_start_again() -> None:
    assert found(killed_during_run()) == []


def test_a_kill_of_another_process_does_not_explain_a_second_start() -> None:
    plot = Plot().accept("t", 10.0).run("t", 10.1).strike(Fault.KILL_WORKER, "a", 10.5, pids=(105,))
    assert found(plot.run("t", 10.6, 10.7, **OTHER)) == [Wrong.DUPLICATED]


def test_a_kill_does_not_explain_a_second_start_before_it() -> None:
    plot = Plot().accept("t", 10.0).run("t", 10.1).run("t", 10.4, 10.45, **OTHER)
    assert found(plot.strike(Fault.KILL_WORKER, "a", 10.5, pids=(101,))) == [Wrong.DUPLICATED]


def test_a_later_kill_does_not_explain_a_second_start_during_the_run() -> None:
    plot = Plot().accept("t", 10.0).mark(RunEvent.START, "t", 10.1).run("t", 10.4, 10.45, **OTHER)
    plot.mark(RunEvent.END, "t", 10.5).strike(Fault.KILL_WORKER, "a", 10.6, pids=(101,))
    assert found(plot) == [Wrong.DUPLICATED]


def test_a_finished_task_must_not_run_again_after_a_later_kill() -> None:
    plot = one_run().run("other", 10.21, 10.22).accept("other", 10.0)
    plot.strike(Fault.KILL_WORKER, "a", 10.25, pids=(101,)).run("t", 10.4, 10.5, **OTHER)
    assert found(plot) == [Wrong.DUPLICATED]


def test_a_task_whose_outcome_is_in_the_slot_must_not_run_again() -> None:
    plot = one_run().log(10.2, "a", "task.done", task_id="t", pid=101)
    plot.strike(Fault.KILL_WORKER, "a", 10.21, pids=(101,)).run("t", 10.4, 10.5, **OTHER)
    assert found(plot) == [Wrong.DUPLICATED]


def test_a_kill_before_the_outcome_was_recorded_explains_a_second_run() -> None:
    assert found(one_run().strike(Fault.KILL_WORKER, "a", 10.2, pids=(101,)).run("t", 10.4, 10.5, **OTHER)) == []


def test_each_failure_of_a_task_explains_one_more_start() -> None:
    plot = Plot().accept("t", 10.0, fails=1).run("t", 10.1, 10.2, RunEvent.RAISED).run("t", 11.0, 11.1, attempt=2)
    assert found(plot) == []
    assert found(plot.run("t", 12.0, 12.1, attempt=3)) == [Wrong.DUPLICATED]


@pytest.mark.parametrize("fault", [Fault.STOP_NODE, Fault.PARTITION])
def test_only_an_interruption_longer_than_the_lease_explains_a_second_start(fault: Fault) -> None:
    def silent(seconds: float) -> Plot:
        plot = Plot().accept("t", 10.0).mark(RunEvent.START, "t", 10.1)
        plot.strike(fault, "a", 11.0, 11.0 + seconds).mark(RunEvent.END, "t", 11.0 + seconds + 0.1)
        return plot.run("t", 11.0 + seconds, 11.2 + seconds, attempt=2, **FAR)

    assert found(silent(8.0)) == []
    assert found(silent(1.0)) == [Wrong.DUPLICATED]


def test_an_interruption_of_another_node_does_not_explain_a_second_start() -> None:
    plot = Plot().accept("t", 10.0).mark(RunEvent.START, "t", 10.1).strike(Fault.REFUSE, "b", 11.0, 19.0)
    assert found(plot.mark(RunEvent.END, "t", 20.0).run("t", 18.0, 18.1, **FAR)) == [Wrong.DUPLICATED]


def test_an_interruption_after_the_end_does_not_explain_a_second_start() -> None:
    plot = one_run().strike(Fault.REFUSE, "a", 20.0, 29.0).run("t", 28.0, 28.1, attempt=2, **FAR)
    assert found(plot) == [Wrong.DUPLICATED]


def test_an_outage_of_all_nodes_does_not_explain_a_second_start() -> None:
    plot = Plot().accept("t", 10.0).mark(RunEvent.START, "t", 10.1).strike(Fault.LONG_OUTAGE, "server", 11.0, 26.0)
    assert found(plot.mark(RunEvent.END, "t", 14.0).run("t", 27.0, 27.1, attempt=2, **FAR)) == [Wrong.DUPLICATED]


@pytest.mark.parametrize("fault", [Fault.KILL_NODE, Fault.LOSE_HOST])
def test_a_lost_node_explains_a_second_start_only_of_its_own_tasks(fault: Fault) -> None:
    def after_loss_of(target: str) -> Plot:
        plot = Plot().accept("t", 10.0).run("t", 10.1).strike(fault, target, 11.0, 14.0)
        return plot.run("t", 17.0, 17.1, attempt=2, **FAR)

    assert found(after_loss_of("a")) == []
    assert found(after_loss_of("b")) == [Wrong.DUPLICATED]


def test_a_task_may_run_again_if_its_node_was_lost_before_reporting_its_end() -> None:
    def node_lost_at(boot: float) -> Plot:
        plot = one_run().strike(Fault.KILL_SERVER, "server", 10.15, 15.0).strike(Fault.KILL_NODE, "a", boot, boot + 2)
        return plot.run("t", boot + 6.0, boot + 6.1, attempt=2, **FAR)

    assert found(node_lost_at(14.0)) == []
    assert found(node_lost_at(20.0)) == [Wrong.DUPLICATED]


def test_a_long_task_delays_earlier_outcomes_only_if_the_master_is_stopped() -> None:
    def killed_during_the_next() -> Plot:
        plot = one_run().accept("next", 10.0).run("next", 10.201).strike(Fault.KILL_NODE, "a", 15.0, 15.1, pids=(101,))
        plot.run("t", 20.5, 20.6, attempt=2, **FAR)
        return plot.run("next", 15.5, 15.6, attempt=2, **FAR)

    assert found(killed_during_the_next()) == [Wrong.DUPLICATED]
    assert found(killed_during_the_next().strike(Fault.STOP_MASTER, "a", 10.1, 14.9)) == []


def test_a_task_that_starts_right_after_an_interruption_may_lose_its_lease() -> None:
    def began_after(seconds: float) -> Plot:
        plot = Plot().accept("t", 10.0).strike(Fault.SILENCE, "a", 11.0, 15.2).mark(RunEvent.START, "t", 15.2 + seconds)
        return plot.mark(RunEvent.END, "t", 30.0).run("t", 15.6 + seconds, 15.7 + seconds, attempt=2, **FAR)

    assert found(began_after(0.1)) == []
    assert found(began_after(6.0)) == [Wrong.DUPLICATED]


# Phantom


def test_the_start_of_a_task_that_was_never_enqueued_is_a_phantom() -> None:
    assert found(Plot().run("t", 10.0, 10.1)) == [Wrong.PHANTOM]


@pytest.mark.parametrize("reply", [CallEvent.REFUSED, CallEvent.HELD])
def test_the_start_of_a_task_whose_enqueue_was_refused_is_a_phantom(reply: CallEvent) -> None:
    plot = Plot().add(CallEvent.INTENDED, "t", 10.0).add(reply, "t", 10.1).run("t", 10.2, 10.3)
    assert found(plot) == [Wrong.PHANTOM]


def test_a_start_after_the_last_permitted_failure_is_a_phantom() -> None:
    plot = Plot().accept("t", 10.0, retries=0, fails=ALWAYS).run("t", 10.1, 10.2, RunEvent.RAISED)
    assert found(plot.run("t", 11.0, 11.1, attempt=2)) == [Wrong.PHANTOM]


def test_a_start_of_a_task_cancelled_while_waiting_is_a_phantom() -> None:
    plot = Plot().accept("t", 10.0).add(CallEvent.CANCEL, "t", 10.1).add(CallEvent.CANCELLED, "t", 10.2)
    assert found(plot.run("t", 10.5, 10.6)) == [Wrong.PHANTOM]


def test_a_task_cancelled_while_running_may_end_but_not_start_again() -> None:
    plot = Plot().accept("t", 10.0).add(CallEvent.CANCEL, "t", 10.15).add(CallEvent.CANCELLING, "t", 10.16)
    plot.run("t", 10.1, 10.2, RunEvent.RAISED)
    assert found(plot) == []
    assert found(plot.run("t", 11.0, 11.1, attempt=2)) == [Wrong.PHANTOM]


# Follow-up tasks


def followed(*, follows: str, begins: float) -> Plot:
    """Return a history with two tasks that end at 10.3 and 10.5, and a third task. Depending on `follows`, the third
    task had to start after both of them, or only after the second one.
    """
    plot = Plot().accept("a", 10.0).run("a", 10.2, 10.3).accept("b", 10.0).run("b", 10.4, 10.5)
    return plot.accept("last", 10.0, follows=follows).run("last", begins, begins + 0.1)


@pytest.mark.parametrize("follows", ["a b", "b"], ids=["a group", "a chain"])
def test_the_checker_requires_a_chained_task_to_start_after_the_previous_one(follows: str) -> None:
    assert found(followed(follows=follows, begins=10.6)) == []
    assert found(followed(follows=follows, begins=10.45)) == [Wrong.EARLY]


def test_a_group_may_end_with_dead_or_cancelled_members() -> None:
    plot = Plot().accept("a", 10.0, gives_up=True).run("a", 10.1, 10.2, RunEvent.RAISED)
    plot.accept("b", 10.0).add(CallEvent.CANCEL, "b", 10.1).add(CallEvent.CANCELLED, "b", 10.15)
    plot.accept("last", 10.0, follows="a b").run("last", 10.3, 10.4).quiet(dead=1, dead_ids=("a",))
    assert found(plot) == []


def test_a_chained_task_that_never_started_is_lost_unless_its_chain_broke() -> None:
    dead = Plot().accept("a", 10.0, gives_up=True).run("a", 10.1, 10.2, RunEvent.RAISED).quiet(dead=1, dead_ids=("a",))
    assert found(dead.accept("next", 10.0, follows="a").quiet(accepted=1)) == []
    done = Plot().accept("a", 10.0).run("a", 10.1, 10.2).accept("b", 10.0).run("b", 10.1, 10.2, **OTHER)
    assert found(done.accept("last", 10.0, follows="a b")) == [Wrong.LOST]


def test_the_checker_reports_an_ended_group_that_is_still_stored() -> None:
    assert found(one_run().quiet(groups=1)) == [Wrong.LEFT]
