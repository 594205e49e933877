"""A worker sends its next turn while it still runs the last tasks of a claim, or its only task. Whatever happens to the
worker before the reply arrives, each outcome counts exactly once. Each task that the turn claims runs exactly once, in
this worker or in another one.
"""

import dataclasses
import re
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest

from rota.child.child_process import WAKE_SIGNAL
from rota.child.slot_record import TaskInSlot
from rota.child.slots import Phase, boottime_ns
from rota.protocol.body import Body, encode_body
from rota.protocol.new_tasks import NewTask
from rota.protocol.store import Blame
from rota.protocol.tiers import QueueShare, domain_of, pack_tiers
from rota.protocol.wire import Packed
from support.child_harness import LEASE_SECONDS, Child, ChildHarness, settings_for
from support.faulty_link import FaultyLink
from support.masters import ON_ONE_SERVER
from support.waiting import DEADLINE_SECONDS, until

pytestmark = [ON_ONE_SERVER, pytest.mark.timeout(300)]

# The machine may delay a worker in the middle of a claim. The worker then returns the rest of the claim and pipelines
# no turn, so the test tries again.
PIPELINED_WITHIN_SECONDS = 4 * DEADLINE_SECONDS
RECALLED_AFTER_NS = 25_000_000
TIERS = pack_tiers([domain_of([QueueShare("default")])])


@dataclasses.dataclass(frozen=True)
class _Kind:
    """A kind of short task, and its use in a test. The test enqueues `tasks` of these tasks at once, which are so many
    that some are left after `turns` turns. For each task, the worker counts `seen_ns` as the run time, however long the
    task really took: on a busy machine, real run times would be too long for any turn to be pipelined, and on a fast
    machine, five turns would claim all tasks.
    """

    name: str
    tasks: int
    turns: int
    seen_ns: int


SEVERAL_A_CLAIM = _Kind("note_in_file", 500, 4, 250_000)  # these tasks are so short that a claim grows up to 20 tasks
ONE_A_CLAIM = _Kind("note_in_file_slowly", 120, 12, 7_500_000)


@dataclasses.dataclass
class _Gate:
    """The function `gate` of a faulty link. It lets `after` turns pass, and then holds back one direction of the
    connection: the next turn if `holds_request` is set, otherwise the reply to the next turn. If `hold` is given, the
    gate creates this file at the same moment, so that the tasks wait too.
    """

    after: int
    hold: Path | None
    holds_request: bool = False
    turns: int = 0
    shut_port: int = 0

    def __call__(self, name: str, is_reply: bool, port: int) -> bool:
        is_concerned = is_reply is not self.holds_request
        self.turns += name == "turn" and is_concerned
        if self.turns > self.after and not self.shut_port:
            self.shut_port = port
            if self.hold:
                self.hold.touch()
        return not (is_concerned and port == self.shut_port)


@dataclasses.dataclass
class _Draining:
    """A worker that is connected through a link and runs tasks. Each task appends a text to the file `journal`. `texts`
    has the text of each task, by task id.
    """

    harness: ChildHarness
    link: FaultyLink
    worker: Child
    journal: Path
    kind: _Kind
    texts: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def hold(self) -> Path:
        return self.journal.with_name(f"{self.journal.name}.hold")

    @property
    def held(self) -> Path:
        return self.journal.with_name(f"{self.journal.name}.held")

    @property
    def ran(self) -> Counter[str]:
        return Counter(self.journal.read_text(encoding="utf-8").splitlines())

    @property
    def live(self) -> int:
        return self.harness.run(self.harness.store.audit()).live

    @property
    def scripts_run(self) -> int:
        """Return the number of scripts that the server has run so far."""
        (calls,) = re.findall(rb"cmdstat_evalsha:calls=(\d+)", self.harness.connection.execute("INFO", "commandstats"))
        return int(calls)

    def until_a_turn_is_under_way(self, *, holds_a_task: bool, holds_request: bool = False) -> TaskInSlot | None:
        """Enqueue tasks, repeatedly, until the worker has sent a turn before the last task of its claim ended. The link
        holds back this turn or its reply. If `holds_a_task` is set, the task is held too, otherwise it has ended in the
        meantime. Returns the task that the worker is running, if any.
        """
        slot = self.worker.slot
        deadline = time.monotonic() + PIPELINED_WITHIN_SECONDS
        while time.monotonic() < deadline:
            gate = self.link.gate = _Gate(self.kind.turns, self.hold if holds_a_task else None, holds_request)
            self.enqueue()
            until(lambda: gate.shut_port, "a turn")  # noqa: B023 - called in this round only
            until(lambda: self.held.exists() or slot.phase is Phase.IDLE, "the worker waits")
            if self.held.exists() if holds_a_task else self._has_ended_meanwhile():
                return slot.record(0).current()
            self.go_on()  # this turn was not pipelined, because the last task of its claim had already ended
            until(lambda: self.live == 0, "the end of the round")
        raise AssertionError("no turn was pipelined")

    def go_on(self) -> None:
        """Let the turn and its reply arrive, and let the held task end."""
        self.hold.unlink(missing_ok=True)
        self.link.heal()

    def check_each_ran_once(self, *, but: str = "") -> None:
        """Check that each task has run exactly once. `but` is the id of a task that is not checked: its worker was
        killed, and may or may not have written the task's text before.
        """
        until(lambda: self.live == 0, "the end of all tasks")
        ran = self.ran
        assert not {text for task_id, text in self.texts.items() if ran[text] != 1 and task_id != but}
        # If the first reply was lost, the outcome is reported a second time. The log line about the second report has
        # the level info.
        assert not [line for line in self.harness.events("task.stale") if line["level"] != "info"]

    def held_by_owner(self) -> list[str]:
        entries = self.harness.connection.execute("LRANGE", self.harness.store.keys.inflight(self.worker.owner), 0, -1)
        return [entry.split()[0].decode() for entry in entries]

    def enqueue(self) -> None:
        tasks = []
        for _ in range(self.kind.tasks):
            task_id, text = uuid.uuid4().hex, f"task {len(self.texts)}"
            self.texts[task_id] = text
            body = Body(task_id, "default", self.kind.name, [str(self.journal), text])
            tasks.append(NewTask(task_id, "default", encode_body(body)))
        self.harness.run(self.harness.store.enqueue(uuid.uuid4().hex, tasks))

    def _has_ended_meanwhile(self) -> bool:
        ran = self.ran
        return any(self.texts[task_id] in ran for task_id in self.held_by_owner())


@pytest.fixture(params=[SEVERAL_A_CLAIM, ONE_A_CLAIM], ids=["several", "one"])
def draining(request: pytest.FixtureRequest, harness: ChildHarness, link: FaultyLink, tmp_path: Path) -> _Draining:
    settings = settings_for(harness.server, harness.namespace)
    server = dataclasses.replace(settings.server, redis_url=link.url)
    worker = harness.start(dataclasses.replace(settings, server=server), TASKS_TAKE_NS=str(request.param.seen_ns))
    (journal := tmp_path / "journal").touch()
    return _Draining(harness, link, worker.until_phase(Phase.IDLE), journal, request.param)


def _start_another(harness: ChildHarness) -> None:
    harness.start(settings_for(harness.server, harness.namespace), slot=2)


@pytest.mark.parametrize("holds_a_task", [False, True])
def test_only_the_running_task_of_a_killed_worker_is_charged_with_a_crash(
    draining: _Draining, *, holds_a_task: bool
) -> None:
    draining.until_a_turn_is_under_way(holds_a_task=holds_a_task)
    draining.worker.kill()
    slot, harness = draining.worker.slot, draining.harness
    ran = [task.id for task in slot.running()]
    blame = Blame(tuple((task_id, b"{}") for task_id in ran))
    reaped = harness.run(harness.store.reap_exited(draining.worker.owner, blame, Packed(*slot.outcomes()), TIERS))
    assert len(reaped.requeued) > len(ran)
    assert [entry.id for entry in reaped.requeued if entry.crashes] == ran
    draining.go_on()
    _start_another(harness)
    draining.check_each_ran_once(but=ran[0] if ran else "")


def test_a_stopping_worker_returns_tasks_of_a_claim_still_in_flight(draining: _Draining) -> None:
    draining.until_a_turn_is_under_way(holds_a_task=False)
    draining.worker.terminate()
    draining.go_on()
    assert draining.worker.exit_code() == 0
    assert not draining.held_by_owner()
    _start_another(draining.harness)
    draining.check_each_ran_once()


def test_a_quiet_worker_returns_tasks_of_a_claim_still_in_flight(draining: _Draining) -> None:
    draining.until_a_turn_is_under_way(holds_a_task=True)
    _request_quiet(draining.worker, quiet=True)
    draining.go_on()
    draining.worker.until_phase(Phase.QUIET)
    until(lambda: not draining.held_by_owner(), "all is given back")
    assert draining.live
    _request_quiet(draining.worker, quiet=False)
    draining.check_each_ran_once()


def test_a_worker_on_a_slow_link_still_claims_its_next_tasks_in_time(draining: _Draining) -> None:
    # The delay applies in each direction. It is longer than the time in which the turn may still claim.
    draining.link.delay(0.012)
    before = draining.scripts_run
    draining.enqueue()
    until(lambda: len(draining.ran) == len(draining.texts), "all have run")
    assert draining.scripts_run - before < 1.5 * len(draining.texts)
    draining.check_each_ran_once()


def _request_quiet(worker: Child, *, quiet: bool) -> None:
    worker.slot.quiet_requested = quiet
    worker.process.send_signal(WAKE_SIGNAL)


def test_a_fenced_worker_returns_tasks_of_a_claim_still_in_flight(draining: _Draining) -> None:
    draining.until_a_turn_is_under_way(holds_a_task=True)
    draining.worker.slot.renewed_ns = boottime_ns() - round(LEASE_SECONDS * 1e9)
    draining.go_on()
    until(lambda: not draining.held_by_owner(), "all is given back")
    assert draining.live
    draining.worker.slot.renewed_ns = boottime_ns()
    draining.check_each_ran_once()


def test_tasks_of_a_claim_whose_reply_was_lost_run_once(draining: _Draining) -> None:
    draining.until_a_turn_is_under_way(holds_a_task=False)
    draining.link.cut()
    draining.go_on()
    draining.check_each_ran_once()


def test_tasks_that_the_master_returns_during_a_claim_run_elsewhere(draining: _Draining) -> None:
    running = draining.until_a_turn_is_under_way(holds_a_task=True)
    assert running is not None
    until(lambda: boottime_ns() - running.claimed_ns > RECALLED_AFTER_NS)
    harness, slot, owner = draining.harness, draining.worker.slot, draining.worker.owner
    assert slot.held_up_by == running.number
    assert slot.grant_watch()
    slot.prefetch_returned = running.number
    assert harness.run(harness.store.return_prefetched(owner, running.entry, TIERS, Packed(*slot.outcomes())))
    assert draining.held_by_owner() == [running.id]
    draining.go_on()
    _start_another(harness)
    draining.check_each_ran_once()


def test_a_claim_that_arrives_too_late_takes_no_tasks(draining: _Draining) -> None:
    running = draining.until_a_turn_is_under_way(holds_a_task=True, holds_request=True)
    assert running is not None
    held, turns = draining.held_by_owner(), draining.scripts_run
    assert draining.live > len(held)
    until(lambda: boottime_ns() - running.claimed_ns > RECALLED_AFTER_NS)
    draining.link.heal()
    until(lambda: draining.scripts_run > turns, "the turn is taken up")
    assert set(draining.held_by_owner()) <= set(held)
    draining.go_on()
    draining.check_each_ran_once()
