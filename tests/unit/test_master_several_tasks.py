"""Workers that run several tasks: which tasks a cancel affects, and for which tasks a crash is counted when the worker
dies.
"""

import json
import signal

import pytest

from rota.child.slot_memory import SlotMemory
from rota.child.slot_record import KillPolicy, TaskInSlot, TaskTimes
from rota.child.slots import Phase
from rota.protocol.entry import CrashKind, parse_entry
from rota.protocol.outcome import RetryOutcome
from rota.protocol.replies import Reaped
from rota.telemetry import log_events
from rota_supervisor.config.model import Config
from rota_supervisor.fleet_snapshot import Member, MemberTask, Moment
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.effects import NotifyCancelled, Order, ReapOwner, SignalChild
from rota_supervisor.master.core.fleet_status import status
from rota_supervisor.master.core.master_events import (
    CancelOrdered,
    Died,
    OwnerReaped,
    ProcessEnd,
    SlotReading,
    SlotsRead,
    Ticked,
)
from rota_supervisor.master.core.plan import DUMP_SECONDS
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.effects.task_watch import cancelled_in
from rota_supervisor.master.shell.loop import SlotReader
from support.cores import Core

SLOT = 8
CONCURRENCY = 4
KILLED = ProcessEnd(signal.SIGKILL)
SECOND_NS = 1_000_000_000


def task(task_index: int, *, until: float = 0.0, kill_policy: KillPolicy = KillPolicy()) -> TaskInSlot:  # noqa: B008 - frozen
    entry = f"id-{task_index} mail i 1 1 0 0 0 0 -".encode()
    ends_ns = round(until * SECOND_NS)
    return TaskInSlot(
        entry, f"name-{task_index}", 1, ends_ns, kill_policy=kill_policy.to_word(), task_index=task_index, number=7
    )


def times_of(ran: TaskInSlot) -> TaskTimes:
    return TaskTimes(ran.started_ns, ran.deadline_ns, ran.soft_deadline_ns, ran.number, ran.task_index)


class Several:
    """A worker that runs several tasks at once, and the slot from which the master reads them."""

    def __init__(self, core: Core, *tasks: TaskInSlot) -> None:
        self.core = core
        self.tasks = tasks
        self.child: Child = core.child(Role.WORKER, SLOT)
        self.child.owner = "node:8:1"
        self.child.pid = 77
        self.child.ready_at = 0.0
        self.child.has_stack = True
        self.child.concurrency = CONCURRENCY

    def read(self, now: float) -> list[Order]:
        """Let the master read the slot with a new heartbeat, and return the resulting signals."""
        self.core.now = now
        tasks = tuple(map(times_of, self.tasks))
        self.core.take(SlotsRead((SlotReading(SLOT, self.child.nonce, Phase.BUSY, tasks, round(now * SECOND_NS)),)))
        return [effect.order for effect in self.core.take(Ticked()) if isinstance(effect, SignalChild)]

    def cancel(self, task_index: int, kill_after: float | None = None) -> None:
        self.core.take(CancelOrdered(SLOT, self.child.nonce, task_index, 7, f"id-{task_index}", kill_after))

    def dies(self, now: float, why: Reason | None = None) -> ReapOwner:
        if why is not None:
            self.child.state = ChildState.KILLED
            self.child.why = why
        self.core.now = now
        self.core.take(Died(SLOT, self.child.nonce, KILLED, self.tasks))
        (reap,) = self.core.done(ReapOwner)
        return reap


def charged(reap: ReapOwner) -> list[str]:
    return [task_id for task_id, record in reap.blame.ran if record]


def ran(reap: ReapOwner) -> list[str]:
    return [task_id for task_id, _ in reap.blame.ran]


@pytest.fixture
def core() -> Core:
    return Core(Config(imports=("code",), workers=1))


def test_all_tasks_of_a_dead_worker_are_charged_if_the_cause_is_unknown(core: Core) -> None:
    reap = Several(core, task(0), task(2)).dies(5.0)
    assert (charged(reap), reap.blame.crash) == (["id-0", "id-2"], CrashKind.SIGNAL)
    assert reap.names == {"id-0": "name-0", "id-2": "name-2"}
    [(_, fields)] = [line for line in core.logged if line[0] == log_events.WORKER_EXITED]
    assert (fields["tasks"], "task" in fields) == (2, False)


def test_each_charged_task_has_its_own_attempt_record(core: Core) -> None:
    slow = task(0)._replace(started_ns=SECOND_NS)
    quick = task(2)._replace(started_ns=4 * SECOND_NS)
    told = [json.loads(record) for _, record in Several(core, slow, quick).dies(5.0).blame.ran]
    assert [record["elapsed_seconds"] for record in told] == [4.0, 1.0]


def test_a_hard_limit_fails_only_the_task_that_exceeded_it(core: Core) -> None:
    over = task(2, until=3.0, kill_policy=KillPolicy(True, 1_000_000))
    reap = Several(core, task(0, until=60.0), over, task(3)).dies(4.2, Reason.TIMEOUT)
    assert (charged(reap), ran(reap)) == (["id-2"], ["id-0", "id-2", "id-3"])
    (settled,) = reap.over_limit
    assert (settled.entry.id, type(settled.outcome)) == ("id-2", RetryOutcome)
    core.take(OwnerReaped(reap, Reaped(False, 1, (parse_entry(task(0).entry),), ())))
    told = {name: fields for name, fields in core.logged if name.startswith("task.")}
    assert told[log_events.TASK_RETRIED]["task"] == "name-2"
    assert "cause" not in told[log_events.TASK_RECOVERED]


def test_all_tasks_over_their_hard_limits_are_settled(core: Core) -> None:
    kill_policy = KillPolicy(True, None)
    over = task(1, until=3.0, kill_policy=kill_policy), task(2, until=3.5, kill_policy=kill_policy)
    reap = Several(core, task(0, until=60.0, kill_policy=kill_policy), *over).dies(4.6, Reason.TIMEOUT)
    assert [settled.entry.id for settled in reap.over_limit] == ["id-1", "id-2"]


def test_no_task_is_charged_if_the_one_over_its_limit_has_ended(core: Core) -> None:
    reap = Several(core, task(0, until=60.0, kill_policy=KillPolicy(True, 0))).dies(4.2, Reason.TIMEOUT)
    assert (charged(reap), reap.over_limit) == ([], ())


def test_a_crash_is_judged_by_the_crash_limit_of_the_charged_task(core: Core) -> None:
    over = task(2, until=3.0, kill_policy=KillPolicy(crash_limit=7))
    assert Several(core, task(0), over).dies(4.2, Reason.TIMEOUT).blame.crash_limit == 7


def test_a_worker_killed_after_a_cancel_charges_only_the_cancelled_task(core: Core) -> None:
    several = Several(core, task(0), task(2))
    several.read(10.0)
    several.cancel(2, kill_after=2.0)
    several.cancel(0)
    assert core.done(NotifyCancelled) == [
        NotifyCancelled(several.child.ref, 2, 7),
        NotifyCancelled(several.child.ref, 0, 7),
    ]
    assert several.read(12.0) == []
    assert several.read(12.1) == [Order.WRITE_STACK]
    assert several.read(12.2 + DUMP_SECONDS) == [Order.KILL]
    assert several.child.why is Reason.CANCELLED
    reap = several.dies(12.4)
    assert (charged(reap), reap.blame.crash) == (["id-2"], None)
    [(_, fields)] = [line for line in core.logged if line[0] == log_events.WORKER_KILLED]
    assert (fields["task_id"], fields["limit"], fields["limit_value"]) == ("id-2", "kill_after", 2.0)


def test_each_cancelled_task_records_its_own_kill_after_limit(core: Core) -> None:
    several = Several(core, task(0), task(2))
    several.read(10.0)
    several.cancel(0, kill_after=1.0)
    several.cancel(2, kill_after=1.5)
    told = [json.loads(record) for _, record in several.dies(12.0, Reason.CANCELLED).blame.ran if record]
    assert [(record["limit"], record["limit_value"]) for record in told] == [
        ("kill_after", 1.0),
        ("kill_after", 1.5),
    ]
    [(_, fields)] = [line for line in core.logged if line[0] == log_events.WORKER_KILLED]
    assert (fields["tasks"], "limit_value" in fields) == (2, False)


def test_a_cancelled_task_that_has_ended_causes_no_kill(core: Core) -> None:
    several = Several(core, task(0), task(2))
    several.read(10.0)
    several.cancel(2, kill_after=2.0)
    several.tasks = (task(0), task(2)._replace(number=9))
    assert several.read(15.0) == []


def test_running_tasks_do_not_delay_the_drain_of_a_concurrent_worker(core: Core) -> None:
    several = Several(core, task(0))
    several.child.state = ChildState.DRAINING
    several.child.drain_requested_at = 100.0
    several.read(101.0)
    assert several.child.drain_awaited_since == 100.0


# Slots


def test_a_slot_reading_contains_all_tasks_and_the_one_executing_now(core: Core) -> None:
    memory = SlotMemory.create(SLOT + 1)
    several = Several(core)
    slot = memory.slot(SLOT)
    slot.assign(several.child.nonce, CONCURRENCY)
    slot.record(1).start(task(1).entry, "send", 1, 2)
    slot.record(3).start(task(3).entry, "send", 1, 2)
    slot.record(3).enter_step()
    reader = SlotReader(memory)
    (reading,) = reader.read([several.child])
    assert (reading.tasks, reading.stepping) == ((TaskTimes(1, 2, 0, 1, 1), TaskTimes(1, 2, 0, 1, 3)), 3)
    assert reader.read([several.child]) == ()
    slot.record(1).end()
    assert [len(reading.tasks) for reading in reader.read([several.child])] == [1]


def test_every_cancelled_task_of_a_concurrent_worker_is_found(core: Core) -> None:
    several = Several(core)
    slot = SlotMemory.create(SLOT + 1).slot(SLOT)
    slot.assign(several.child.nonce, CONCURRENCY)
    for task_index in (0, 1, 3):
        slot.record(task_index).start(task(task_index).entry, "send", 1, 2)
    found = cancelled_in(several.child, slot, lambda each: each.id in ("id-1", "id-3"))
    assert [(each.task_index, each.number, each.task_id) for each in found] == [(1, 1, "id-1"), (3, 1, "id-3")]


def test_the_status_has_a_row_for_each_task_of_a_concurrent_worker(core: Core) -> None:
    several = Several(core)
    tasks = tuple(MemberTask(task(task_index), 1.0, 1.0) for task_index in (0, 2))
    member = Member(SLOT, Role.WORKER, several.child.pid, Phase.BUSY, 0.1, tasks, CONCURRENCY)
    shown = status(core.state, [member], Moment(103.0, 1e9))
    [row] = [row for row in shown["processes"] if row["slot"] == SLOT]  # type: ignore[attr-defined]
    assert [(each["place"], each["task"]["name"], each["task"]["id"]) for each in row["tasks"]] == [
        (0, "name-0", "id-0"),
        (2, "name-2", "id-2"),
    ]
    assert several.child.pool == row["pool"]
