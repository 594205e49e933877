"""The plan: directed claims, and a simulation that does to a fleet whatever can happen to it."""

import math
from dataclasses import replace
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rota_supervisor.config.model import Restarts
from rota_supervisor.layout import RANGES, Role
from rota_supervisor.master.children.child import LIVE, Child, PoolKey, Reason, State
from rota_supervisor.master.children.fleet import Fleet
from rota_supervisor.master.planning.actions import Abandon, Action, Drain, Kill, Start
from rota_supervisor.master.planning.backoff import CALM, Backoff
from rota_supervisor.master.planning.desired import Desired, Target
from rota_supervisor.master.planning.plan import plan

POOL = "mail"
LIMITS = Restarts()


def _child(slot: int, state: State = State.READY, generation: int = 1, role: Role = Role.WORKER) -> Child:
    pool = POOL if role is Role.WORKER else f"generation-{generation}"
    ready_at = 0.0 if state in (State.READY, State.DRAINING) else None
    return Child(role, pool, generation, slot, slot, state, 0.0, pid=slot, ready_at=ready_at)


def _desired(count: int, generation: int = 1) -> Desired:
    targets = (
        Target(Role.ZYGOTE, f"generation-{generation}", 1, generation, surge=0),
        Target(Role.WORKER, POOL, count, generation),
    )
    return Desired(targets, boot_seconds=60.0, beat_seconds=30.0)


def _zygote(generation: int = 1, state: State = State.READY) -> Child:
    return _child(1 + generation, state, generation, Role.ZYGOTE)


def test_nothing_is_forked_before_there_is_a_zygote_to_fork_from() -> None:
    assert plan(_desired(2), [], 0.0) == [Start(Role.ZYGOTE, "generation-1", 1, 2)]
    assert plan(_desired(2), [_zygote(state=State.BOOTING)], 0.0) == []
    starts = plan(_desired(2), [_zygote()], 0.0)
    assert starts == [Start(Role.WORKER, POOL, 1, 8), Start(Role.WORKER, POOL, 1, 9)]


def test_a_slot_is_not_used_again_before_its_owner_is_retired() -> None:
    children = [_zygote(), _child(8, State.EXITED)]
    assert plan(_desired(1), children, 0.0) == [Start(Role.WORKER, POOL, 1, 9)]


def test_of_too_many_the_unready_go_first_then_the_idle_then_the_busy() -> None:
    busy, idle, booting = _child(8), _child(9), _child(10, State.BOOTING)
    busy.busy = True
    children = [_zygote(), busy, idle, booting]
    assert plan(_desired(2), children, 0.0) == [Drain(10, Reason.SURPLUS)]
    assert plan(_desired(1), children, 0.0) == [Drain(10, Reason.SURPLUS), Drain(9, Reason.SURPLUS)]
    assert plan(_desired(0), [_zygote(), _child(8, State.REGISTERING)], 0.0) == [Abandon(8, Reason.SURPLUS)]


def test_each_deadline_has_its_reason() -> None:
    def why(now: float, child: Child) -> list[Action]:
        return [action for action in plan(_desired(1), [_zygote(), child], now) if isinstance(action, Kill)]

    zygote_too = Kill(2, Reason.HUNG)
    assert why(61.0, _child(8, State.BOOTING)) == [zygote_too, Kill(8, Reason.BOOT)]
    assert why(31.0, _child(8)) == [zygote_too, Kill(8, Reason.HUNG)]
    stopped, running = _child(8, State.BOOTING), _child(8)
    stopped.stopped_at = -1.0
    assert why(29.5, stopped) == [Kill(8, Reason.HUNG)]
    running.busy, running.task_until = True, 5.0
    assert why(6.0, running) == []
    assert why(6.1, running) == [Kill(8, Reason.TIMEOUT)]
    running.task_until = math.inf
    assert why(10_000.0, running) == [zygote_too]


def test_a_sleep_of_the_machine_is_not_counted_as_time_to_boot() -> None:
    zygote = _zygote(state=State.BOOTING)
    zygote.awake_since = 1000.0
    assert plan(_desired(1), [zygote], 1060.0) == []
    assert plan(_desired(1), [zygote], 1060.1)[:1] == [Kill(2, Reason.BOOT)]


def test_a_stopped_poller_is_replaced_sooner_than_a_worker_since_nothing_is_promoted_meanwhile() -> None:
    desired = Desired((Target(Role.POLLER, "pollers", 1, 1),), boot_seconds=60.0, beat_seconds=30.0)
    poller = Child(Role.POLLER, "pollers", 1, 4, 1, State.READY, 0.0, pid=4, ready_at=0.0, stopped_at=1.0)
    assert plan(desired, [poller], 1.5) == []
    assert plan(desired, [poller], 1.6)[:1] == [Kill(4, Reason.HUNG)]


def test_all_of_a_pool_leave_by_one_deadline() -> None:
    desired = Desired((Target(Role.WORKER, POOL, 0, 1, leave_by=5.0),), 60.0, 1000.0)
    children = [_child(8, State.DRAINING), _child(9, State.ASKED), _child(10, State.REGISTERING)]
    assert plan(desired, children, 5.0) == [Abandon(10, Reason.SURPLUS)]
    assert plan(desired, children, 5.1)[:2] == [Kill(8, Reason.STOP), Kill(9, Reason.STOP)]


def test_at_once_kills_everything_that_is_not_dead() -> None:
    children = [_zygote(), _child(8), _child(9, State.REGISTERING), _child(10, State.KILLED), _child(11, State.EXITED)]
    desired = replace(_desired(4), at_once=True)
    assert plan(desired, children, 0.0) == [Kill(2, Reason.STOP), Kill(8, Reason.STOP), Abandon(9, Reason.STOP)]


def test_stale_workers_stay_until_a_new_one_is_ready() -> None:
    zygotes = [_zygote(1), _zygote(2)]
    rolling = replace(_desired(3, 2), targets=(*_desired(3, 1).targets[:1], *_desired(3, 2).targets))
    old = [_child(8), _child(9), _child(10)]
    assert plan(rolling, [*zygotes, *old], 0.0) == [Start(Role.WORKER, POOL, 2, 11)]
    assert plan(rolling, [*zygotes, *old, _child(11, State.BOOTING, 2)], 0.0) == []
    drains = plan(rolling, [*zygotes, *old, _child(11, State.READY, 2)], 0.0)
    assert drains[:2] == [Drain(10, Reason.RELOAD), Drain(9, Reason.RELOAD)]  # 4 are ready, and at least 2 stay so
    assert drains[2:] == [Start(Role.WORKER, POOL, 2, 12), Start(Role.WORKER, POOL, 2, 13)]


def test_a_count_made_smaller_while_new_code_is_rolled_in_leaves_no_more_than_one_beside_the_stale() -> None:
    rolling = replace(_desired(2, 2), targets=(*_desired(2, 1).targets[:1], *_desired(2, 2).targets))
    fresh = [_child(slot, State.BOOTING, 2) for slot in (10, 11, 12)]  # of a count of 4, when two stale ones were left
    drains = plan(rolling, [_zygote(1), _zygote(2), _child(8), _child(9), *fresh], 0.0)
    assert drains == [Drain(12, Reason.SURPLUS), Drain(11, Reason.SURPLUS)]


def test_the_only_worker_is_drained_after_its_successor_is_ready() -> None:
    rolling = replace(_desired(1, 2), targets=(*_desired(1, 1).targets[:1], *_desired(1, 2).targets))
    children = [_zygote(1), _zygote(2), _child(8)]
    assert plan(rolling, children, 0.0) == [Start(Role.WORKER, POOL, 2, 9)]
    assert plan(rolling, [*children, _child(9, State.READY, 2)], 0.0) == [Drain(8, Reason.RELOAD)]


def test_where_there_is_one_slot_the_old_one_leaves_first() -> None:
    old = Child(Role.EXPORTER, "exporter", 1, 1, 1, State.READY, 0.0, pid=1, ready_at=0.0)
    desired = Desired((Target(Role.EXPORTER, "exporter", 1, 2, surge=0),), 60.0, 30.0)
    assert plan(desired, [old], 0.0) == [Drain(1, Reason.RELOAD)]
    old.move(State.DRAINING)
    assert plan(desired, [old], 0.0) == []
    assert plan(desired, [], 0.0) == [Start(Role.EXPORTER, "exporter", 2, 1)]


def test_a_zygote_that_still_imports_and_is_not_wanted_is_killed() -> None:
    children = [_zygote(1), _zygote(2, State.BOOTING)]
    assert plan(_desired(0, 1), children, 0.0) == [Kill(3, Reason.RELOAD)]


# The simulation


class Fates(RuleBasedStateMachine):
    """One pool of workers and its zygotes; every rule is something that can happen between two plans."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.fleet = Fleet()
        self.backoffs: dict[PoolKey, Backoff] = {}
        self.count = 3
        self.generation = self.last_generation = 1
        self.silent: set[int] = set()

    # What the world does

    @rule(count=st.integers(0, 6))
    def scale(self, count: int) -> None:
        self.count = count

    @rule()
    def load_new_code(self) -> None:
        self.last_generation += 1

    @rule()
    def go_back(self) -> None:
        self.last_generation = self.generation

    @rule(seconds=st.sampled_from([0.01, 0.2, 5.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for child in self.fleet:
            if child.nonce not in self.silent:
                child.beat_at = self.now

    @rule(pick=st.randoms(use_true_random=False))
    def progress(self, pick: Random) -> None:
        candidates = [child for child in self.fleet if child.state is not State.READY]
        if candidates:
            self._forward(pick.choice(candidates))

    @rule(pick=st.randoms(use_true_random=False))
    def die(self, pick: Random) -> None:
        candidates = [child for child in self.fleet if child.state not in (State.REGISTERING, State.EXITED)]
        if candidates:
            self._end(pick.choice(candidates))

    @rule(pick=st.randoms(use_true_random=False))
    def fall_silent(self, pick: Random) -> None:
        candidates = [child for child in self.fleet if child.state is State.READY]
        if candidates:
            self.silent.add(pick.choice(candidates).nonce)

    @rule(pick=st.randoms(use_true_random=False), wish=st.sampled_from([Reason.MAX_TASKS, Reason.MAX_RSS]))
    def wish_to_go(self, pick: Random, wish: Reason) -> None:
        candidates = self.fleet.of(Role.WORKER, State.READY)
        if candidates:
            pick.choice(candidates).wish = wish

    @rule(pick=st.randoms(use_true_random=False))
    def begin_a_task(self, pick: Random) -> None:
        candidates = [child for child in self.fleet if child.state is State.READY and child.role is Role.WORKER]
        if candidates:
            child = pick.choice(candidates)
            child.busy = not child.busy

    def _forward(self, child: Child) -> None:
        match child.state:
            case State.REGISTERING:
                child.move(State.ASKED)
                child.asked_at = self.now
            case State.ASKED:
                child.move(State.BOOTING)
                child.pid = child.nonce
            case State.BOOTING:
                child.move(State.READY)
                child.ready_at = child.beat_at = self.now
                self.backoffs[child.key] = self.backoffs.get(child.key, CALM).after_ready(self.now)
            case State.DRAINING | State.KILLED:
                self._end(child)
            case State.EXITED:
                self.fleet.forget(child)
            case State.READY:
                pass

    def _end(self, child: Child) -> None:
        child.move(State.EXITED)
        if child.ready_at is None and child.why is None:
            backoff = self.backoffs.get(child.key, CALM)
            self.backoffs[child.key] = backoff.after_failed_start(child.asked_at, self.now, LIMITS)

    # What the master does

    def _desired(self) -> Desired:
        zygotes = {child.generation for child in self.fleet.of(Role.ZYGOTE, State.READY)}
        if self.last_generation in zygotes:  # promoted; the older one is given up when nothing of it is left
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
        before, has_successor = self._ready(), bool(self._ready_of(self.generation))
        actions = plan(desired, self.fleet, self.now)
        for action in actions:
            self._check(action)
            self._perform(action)
        assert plan(desired, self.fleet, self.now) == []
        drained_for = {action.reason for action in actions if isinstance(action, Drain)}
        if drained_for:
            floor = max(1, self.count - 1) if has_successor else self.count
            if drained_for <= {Reason.MAX_TASKS, Reason.MAX_RSS}:  # the only one may go when it wishes it
                floor = self.count - 1
            assert self._ready() >= min(before, self.count, floor)
        movable = [child for child in self._live_workers() if child.state is not State.ASKED]
        assert len(movable) <= self.count + 1

    def _check(self, action: Action) -> None:
        if isinstance(action, Start):
            assert action.slot not in {child.slot for child in self.fleet}
            if action.role is Role.WORKER:
                ready = self.fleet.of(Role.ZYGOTE, State.READY)
                assert action.generation in {zygote.generation for zygote in ready}

    def _perform(self, action: Action) -> None:
        child = self.fleet.apply(action, self.now)
        if isinstance(action, Abandon):
            self.fleet.forget(child)
        if isinstance(action, Start) and child.role is not Role.WORKER:
            child.pid = child.nonce

    def _ready_of(self, generation: int) -> list[Child]:
        return [child for child in self.fleet.of(Role.WORKER, State.READY) if child.generation == generation]

    def _ready(self) -> int:
        return len(self.fleet.of(Role.WORKER, State.READY))

    def _live_workers(self) -> list[Child]:
        return [child for child in self.fleet.of(Role.WORKER) if child.state in LIVE]

    @invariant()
    def every_child_is_in_a_slot_of_its_role(self) -> None:
        assert all(child.slot in RANGES[child.role] for child in self.fleet)

    def teardown(self) -> None:
        """After the last fault the fleet becomes what is desired."""
        for _ in range(30):
            self.silent.clear()
            for child in self.fleet:
                self._forward(child)
            self.wait(LIMITS.backoff_max_seconds)
            self.step()
        workers = self.fleet.of(Role.WORKER)
        assert {child.state for child in workers} <= {State.READY}
        assert len(workers) == self.count
        assert {child.generation for child in workers} <= {self.last_generation}


Fates.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestWhateverHappens = Fates.TestCase
