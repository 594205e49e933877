"""The master's plan, tested in single cases and in a simulation of everything that can happen to a fleet."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rota.child.slot_record import TaskTimes
from rota.durations import NANOSECONDS
from rota_supervisor.config.model import Config, Restarts
from rota_supervisor.layout import RANGES, Role
from rota_supervisor.master.core.children import LIVE, Child, ChildState, PoolKey
from rota_supervisor.master.core.effects import Order
from rota_supervisor.master.core.plan import Action, Signal, Start, plan
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.start_backoff import CALM, StartBackoff
from rota_supervisor.master.core.targets import Desired, Stage, Stop, Target
from rota_supervisor.master.core.tick import perform
from support.cores import Core, drain, kill, of_order

POOL = "mail"
LIMITS = Restarts()


def _child(slot: int, state: ChildState = ChildState.READY, generation: int = 1, role: Role = Role.WORKER) -> Child:
    pool = POOL if role is Role.WORKER else f"generation-{generation}"
    ready_at = 0.0 if state in (ChildState.READY, ChildState.DRAINING) else None
    return Child(role, pool, generation, slot, slot, state, 0.0, pid=slot, ready_at=ready_at)


def _desired(count: int, generation: int = 1) -> Desired:
    targets = (
        Target(Role.ZYGOTE, f"generation-{generation}", 1, generation, surge=0),
        Target(Role.WORKER, POOL, count, generation),
    )
    return Desired(targets, boot_seconds=60.0, beat_seconds=30.0)


def _zygote(generation: int = 1, state: ChildState = ChildState.READY) -> Child:
    return _child(1 + generation, state, generation, Role.ZYGOTE)


def test_workers_start_only_once_a_zygote_is_ready() -> None:
    assert plan(_desired(2), [], 0.0) == [Start(Role.ZYGOTE, "generation-1", 1, 2)]
    assert plan(_desired(2), [_zygote(state=ChildState.BOOTING)], 0.0) == []
    starts = plan(_desired(2), [_zygote()], 0.0)
    assert starts == [Start(Role.WORKER, POOL, 1, 8), Start(Role.WORKER, POOL, 1, 9)]


def test_a_slot_is_not_used_again_before_its_owner_is_reaped() -> None:
    children = [_zygote(), _child(8, ChildState.EXITED)]
    assert plan(_desired(1), children, 0.0) == [Start(Role.WORKER, POOL, 1, 9)]


def test_surplus_workers_drain_unready_then_idle_then_busy() -> None:
    busy = _child(8)
    idle = _child(9)
    booting = _child(10, ChildState.BOOTING)
    busy.runs((TaskTimes(1, 0, 0, 1),))
    children = [_zygote(), busy, idle, booting]
    assert plan(_desired(2), children, 0.0) == [drain(10, Reason.SURPLUS)]
    assert plan(_desired(1), children, 0.0) == [drain(10, Reason.SURPLUS), drain(9, Reason.SURPLUS)]
    assert plan(_desired(0), [_zygote(), _child(8, ChildState.REGISTERING)], 0.0) == [kill(8, Reason.SURPLUS)]


def test_a_child_killed_at_a_deadline_has_the_reason_of_that_deadline() -> None:
    def why(now: float, child: Child) -> list[Signal]:
        return of_order(Order.KILL, plan(_desired(1), [_zygote(), child], now))

    zygote_too = kill(2, Reason.HUNG)
    assert why(61.0, _child(8, ChildState.BOOTING)) == [zygote_too, kill(8, Reason.BOOT)]
    assert why(31.0, _child(8)) == [zygote_too, kill(8, Reason.HUNG)]
    stopped = _child(8, ChildState.BOOTING)
    running = _child(8)
    stopped.stopped_at = -1.0
    assert why(29.5, stopped) == [kill(8, Reason.HUNG)]
    running.runs((TaskTimes(1, 5 * NANOSECONDS, 0, 1),))
    assert why(6.0, running) == []
    assert why(6.1, running) == [kill(8, Reason.TIMEOUT)]
    running.runs((TaskTimes(1, 0, 0, 1),))
    assert why(10_000.0, running) == [zygote_too]


def test_time_for_which_the_machine_slept_does_not_count_as_startup_time() -> None:
    zygote = _zygote(state=ChildState.BOOTING)
    desired = replace(_desired(1), awake_since=1000.0)
    assert plan(desired, [zygote], 1060.0) == []
    assert plan(desired, [zygote], 1060.1)[:1] == [kill(2, Reason.BOOT)]


@pytest.mark.parametrize(("role", "pool"), [(Role.POLLER, "pollers"), (Role.EXPORTER, "exporter")])
def test_a_poller_or_exporter_in_the_stopped_state_is_killed_early(role: Role, pool: str) -> None:
    desired = Desired((Target(role, pool, 1, 1),), boot_seconds=60.0, beat_seconds=30.0)
    child = Child(role, pool, 1, 4, 1, ChildState.READY, 0.0, pid=4, ready_at=0.0, stopped_at=1.0)
    assert plan(desired, [child], 1.5) == []
    assert plan(desired, [child], 1.6)[:1] == [kill(4, Reason.HUNG)]


def test_all_workers_of_a_pool_share_one_drain_deadline() -> None:
    desired = Desired((Target(Role.WORKER, POOL, 0, 1, leave_by=5.0),), 60.0, 1000.0)
    children = [_child(8, ChildState.DRAINING), _child(9, ChildState.REQUESTED), _child(10, ChildState.REGISTERING)]
    assert plan(desired, children, 5.0) == [kill(10, Reason.SURPLUS)]
    assert plan(desired, children, 5.1)[:2] == [kill(8, Reason.STOP), kill(9, Reason.STOP)]


def test_an_immediate_stop_kills_every_live_child() -> None:
    children = [
        _zygote(),
        _child(8),
        _child(9, ChildState.REGISTERING),
        _child(10, ChildState.KILLED),
        _child(11, ChildState.EXITED),
    ]
    desired = replace(_desired(4), stop=Stop(Stage.AT_ONCE))
    assert plan(desired, children, 0.0) == [
        kill(2, Reason.STOP),
        kill(8, Reason.STOP),
        kill(9, Reason.STOP),
    ]


def test_workers_of_the_old_generation_stay_until_new_ones_are_ready() -> None:
    zygotes = [_zygote(1), _zygote(2)]
    rolling = replace(_desired(3, 2), targets=(*_desired(3, 1).targets[:1], *_desired(3, 2).targets))
    old = [_child(8), _child(9), _child(10)]
    assert plan(rolling, [*zygotes, *old], 0.0) == [Start(Role.WORKER, POOL, 2, 11)]
    assert plan(rolling, [*zygotes, *old, _child(11, ChildState.BOOTING, 2)], 0.0) == []
    drains = plan(rolling, [*zygotes, *old, _child(11, ChildState.READY, 2)], 0.0)
    # Four workers are ready, and at least two must stay ready.
    assert drains[:2] == [drain(10, Reason.RELOAD), drain(9, Reason.RELOAD)]
    assert drains[2:] == [Start(Role.WORKER, POOL, 2, 12), Start(Role.WORKER, POOL, 2, 13)]


def test_scaling_down_during_a_rollout_drains_surplus_new_workers() -> None:
    rolling = replace(_desired(2, 2), targets=(*_desired(2, 1).targets[:1], *_desired(2, 2).targets))
    fresh = [
        _child(slot, ChildState.BOOTING, 2) for slot in (10, 11, 12)
    ]  # new workers, which were planned for a pool of 4, beside two old ones
    drains = plan(rolling, [_zygote(1), _zygote(2), _child(8), _child(9), *fresh], 0.0)
    assert drains == [drain(12, Reason.SURPLUS), drain(11, Reason.SURPLUS)]


def test_the_only_worker_is_drained_after_its_successor_is_ready() -> None:
    rolling = replace(_desired(1, 2), targets=(*_desired(1, 1).targets[:1], *_desired(1, 2).targets))
    children = [_zygote(1), _zygote(2), _child(8)]
    assert plan(rolling, children, 0.0) == [Start(Role.WORKER, POOL, 2, 9)]
    assert plan(rolling, [*children, _child(9, ChildState.READY, 2)], 0.0) == [drain(8, Reason.RELOAD)]


def test_the_exporter_drains_before_its_successor_starts() -> None:
    old = Child(Role.EXPORTER, "exporter", 1, 1, 1, ChildState.READY, 0.0, pid=1, ready_at=0.0)
    desired = Desired((Target(Role.EXPORTER, "exporter", 1, 2, surge=0),), 60.0, 30.0)
    assert plan(desired, [old], 0.0) == [drain(1, Reason.RELOAD)]
    old.move(ChildState.DRAINING)
    assert plan(desired, [old], 0.0) == []
    assert plan(desired, [], 0.0) == [Start(Role.EXPORTER, "exporter", 2, 1)]


def test_a_zygote_that_is_no_longer_needed_is_killed_while_importing() -> None:
    children = [_zygote(1), _zygote(2, ChildState.BOOTING)]
    assert plan(_desired(0, 1), children, 0.0) == [kill(3, Reason.RELOAD)]


# The simulation


class Fates(RuleBasedStateMachine):
    """One pool of workers and its zygotes. Each rule is an event that can happen between two plans."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.core = Core(Config())
        self.fleet = self.core.state.children
        self.backoffs: dict[PoolKey, StartBackoff] = {}
        self.count = 3
        self.generation = self.last_generation = 1
        self.silent: set[int] = set()

    # Events from outside the master

    @rule(count=st.integers(0, 6))
    def scale(self, count: int) -> None:
        self.count = count

    @rule()
    def load_new_code(self) -> None:
        self.last_generation += 1

    @rule()
    def roll_back(self) -> None:
        self.last_generation = self.generation

    @rule(seconds=st.sampled_from([0.01, 0.2, 5.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for child in self.fleet:
            if child.nonce not in self.silent:
                child.heartbeat_at = self.now

    @rule(pick=st.randoms(use_true_random=False))
    def progress(self, pick: Random) -> None:
        candidates = [child for child in self.fleet if child.state is not ChildState.READY]
        if candidates:
            self._forward(pick.choice(candidates))

    @rule(pick=st.randoms(use_true_random=False))
    def die(self, pick: Random) -> None:
        candidates = [child for child in self.fleet if child.state not in (ChildState.REGISTERING, ChildState.EXITED)]
        if candidates:
            self._end(pick.choice(candidates))

    @rule(pick=st.randoms(use_true_random=False))
    def fall_silent(self, pick: Random) -> None:
        candidates = [child for child in self.fleet if child.state is ChildState.READY]
        if candidates:
            self.silent.add(pick.choice(candidates).nonce)

    @rule(pick=st.randoms(use_true_random=False), reason=st.sampled_from([Reason.MAX_TASKS, Reason.MAX_RSS]))
    def request_recycling(self, pick: Random, reason: Reason) -> None:
        candidates = self.fleet.of(Role.WORKER, ChildState.READY)
        if candidates:
            pick.choice(candidates).recycle_for = reason

    @rule(pick=st.randoms(use_true_random=False))
    def begin_a_task(self, pick: Random) -> None:
        candidates = [child for child in self.fleet if child.state is ChildState.READY and child.role is Role.WORKER]
        if candidates:
            child = pick.choice(candidates)
            child.runs(() if child.busy else (TaskTimes(1, 0, 0, 1),))

    def _forward(self, child: Child) -> None:
        match child.state:
            case ChildState.REGISTERING:
                child.move(ChildState.REQUESTED)
                child.requested_at = self.now
            case ChildState.REQUESTED:
                child.move(ChildState.BOOTING)
                child.pid = child.nonce
            case ChildState.BOOTING:
                child.move(ChildState.READY)
                child.ready_at = child.heartbeat_at = self.now
                self.backoffs[child.key] = self.backoffs.get(child.key, CALM).after_ready(self.now)
            case ChildState.DRAINING | ChildState.KILLED:
                self._end(child)
            case ChildState.EXITED:
                self.fleet.forget(child)
            case ChildState.READY:
                pass

    def _end(self, child: Child) -> None:
        child.move(ChildState.EXITED)
        if child.ready_at is None and child.why is None:
            backoff = self.backoffs.get(child.key, CALM)
            self.backoffs[child.key] = backoff.after_failed_start(child.requested_at, self.now, LIMITS)

    # Actions of the master

    def _desired(self) -> Desired:
        zygotes = {child.generation for child in self.fleet.of(Role.ZYGOTE, ChildState.READY)}
        # A generation is promoted when its zygote is ready.
        if self.last_generation in zygotes:
            self.generation = self.last_generation
        wanted = sorted({self.generation, self.last_generation})
        return Desired(
            (
                *(Target(Role.ZYGOTE, f"generation-{number}", 1, number, surge=0) for number in wanted),
                Target(Role.WORKER, POOL, self.count, self.generation),
            ),
            boot_seconds=60.0,
            beat_seconds=30.0,
            backoffs=self.backoffs,
        )

    @rule()
    def step(self) -> None:
        desired = self._desired()
        before = self._ready()
        has_successor = bool(self._ready_of(self.generation))
        actions = plan(desired, self.fleet, self.now)
        for action in actions:
            self._check(action)
            self._perform(action)
        assert plan(desired, self.fleet, self.now) == []
        drained_for = {drained.reason for drained in of_order(Order.LEAVE, actions)}
        if drained_for:
            floor = max(1, self.count - 1) if has_successor else self.count
            # A worker that requests its replacement may leave even if it is the only worker.
            if drained_for & {Reason.MAX_TASKS, Reason.MAX_RSS}:
                floor = self.count - 1
            assert self._ready() >= min(before, self.count, floor)
        movable = [child for child in self._live_workers() if child.state is not ChildState.REQUESTED]
        assert len(movable) <= self.count + 1

    def _check(self, action: Action) -> None:
        if isinstance(action, Start):
            assert action.slot not in {child.slot for child in self.fleet}
            if action.role is Role.WORKER:
                ready = self.fleet.of(Role.ZYGOTE, ChildState.READY)
                assert action.generation in {zygote.generation for zygote in ready}

    def _perform(self, action: Action) -> None:
        perform(self.core.state, action, self.now)
        if isinstance(action, Start) and action.role is not Role.WORKER:
            child = self.fleet.in_slot(action.slot)
            child.pid = child.nonce

    def _ready_of(self, generation: int) -> list[Child]:
        return [child for child in self.fleet.of(Role.WORKER, ChildState.READY) if child.generation == generation]

    def _ready(self) -> int:
        return len(self.fleet.of(Role.WORKER, ChildState.READY))

    def _live_workers(self) -> list[Child]:
        return [child for child in self.fleet.of(Role.WORKER) if child.state in LIVE]

    @invariant()
    def every_child_is_in_a_slot_of_its_role(self) -> None:
        assert all(child.slot in RANGES[child.role] for child in self.fleet)

    def teardown(self) -> None:
        """Check that the fleet reaches its desired state after the last fault."""
        for _ in range(30):
            self.silent.clear()
            for child in self.fleet:
                self._forward(child)
            self.wait(LIMITS.backoff_max_seconds)
            self.step()
        workers = self.fleet.of(Role.WORKER)
        assert {child.state for child in workers} <= {ChildState.READY}
        assert len(workers) == self.count
        assert {child.generation for child in workers} <= {self.last_generation}


Fates.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestPlanUnderRandomEvents = Fates.TestCase
