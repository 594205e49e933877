"""The run of one trace with one controller, from the first round to the last."""

import dataclasses
from itertools import pairwise
from typing import NamedTuple

from rota_supervisor.master.core.scaling_rule import BudgetClaim, budget_grants
from scaling.best_controller import BLOCK_SECONDS, best_counts, delayed
from scaling.controllers import Controller, Planned, Rota
from scaling.pool_model import ROUND_SECONDS, Node, Trace, Workers


class Outcome(NamedTuple):
    """The result of running a trace with a controller."""

    worker_seconds: float
    late_share: float  # the share of tasks that started later than their objective allows
    steps: tuple[tuple[float, int], ...]  # the times at which the number of workers changed, with the new numbers
    is_late: tuple[bool, ...]  # for each round, whether the oldest waiting task was late

    @property
    def late_seconds(self) -> float:
        """The total time during which the oldest waiting task was late."""
        return sum(self.is_late) * ROUND_SECONDS

    @property
    def turns(self) -> list[tuple[float, int]]:
        """The times at which the number of workers changed direction, each with the new direction."""
        found = []
        direction = 0
        for (_, before), (at, after) in pairwise(self.steps):
            now = 1 if after > before else -1
            if direction == -now:
                found.append((at, now))
            direction = now
        return found

    @property
    def hasty(self) -> list[tuple[float, int]]:
        """The changes of direction that came less than a minute after the previous one."""
        return [turn for before, turn in pairwise(self.turns) if turn[0] - before[0] < 60]

    def most_workers(self, begin: float, end: float) -> int:
        """Return the largest number of workers in a period."""
        inside = [count for at, count in self.steps if begin <= at < end]
        before = [count for at, count in self.steps if at < begin]
        return max([*inside, *before[-1:]])


class PoolRun:
    """A run of a pool with a controller, round by round."""

    def __init__(self, trace: Trace, controller: Controller) -> None:
        self.controller = controller
        self.workers = Workers(trace)
        self.workers.resize(trace.least, 0.0)
        self.node = Node(self.workers)
        self._worker_seconds = 0.0
        self._steps = [(0.0, trace.least)]
        self._is_late: list[bool] = []

    def round(self) -> None:
        """Let the workers work for a round, and then decide their number."""
        workers, trace = self.workers, self.workers.trace
        self.node.round(workers.now + ROUND_SECONDS)
        self._worker_seconds += (workers.count + len(workers.leaving)) * ROUND_SECONDS
        if trace.is_away(workers.now):
            self._is_late.append(False)  # no task can start, so the outage does not count as lateness
            return
        self._is_late.append(workers.oldest_seconds > trace.objective_seconds)
        wanted = self.controller.wanted(self.node)
        if wanted != workers.count:
            workers.resize(wanted, trace.start_seconds)
            self._steps.append((workers.now, wanted))

    @property
    def outcome(self) -> Outcome:
        """The outcome of the rounds so far."""
        workers, tasks = self.workers, len(self.workers.trace.arrivals)
        late = workers.late + tasks - workers.started
        return Outcome(self._worker_seconds, late / tasks, tuple(self._steps), tuple(self._is_late))


def run(trace: Trace, controller: Controller) -> Outcome:
    """Run a trace with a controller."""
    pool = PoolRun(trace, controller)
    while pool.workers.now < trace.seconds:
        pool.round()
    return pool.outcome


class Best(NamedTuple):
    """The result of running a trace with the best controller."""

    outcome: Outcome
    # The worker seconds if workers may leave only after the shrink delay, which the other rules must obey too.
    delayed_worker_seconds: float


def best(trace: Trace) -> Best:
    """Run a trace with the best controller, which knows the whole trace."""
    counts = best_counts(trace)
    outcome = run(dataclasses.replace(trace, start_seconds=0.0, least=counts[0]), Planned(counts, BLOCK_SECONDS))
    return Best(outcome, sum(delayed(counts)) * BLOCK_SECONDS)


def run_together(traces: tuple[Trace, ...], budget: int) -> tuple[list[Outcome], int]:
    """Run pools that share a node's budget. Return their outcomes, and the largest total number of workers."""
    rules = [Rota() for _ in traces]
    pools = [PoolRun(trace, rule) for trace, rule in zip(traces, rules, strict=True)]
    most = 0
    while pools[0].workers.now < traces[0].seconds:
        claims = {str(at): _claim(pool, rule) for at, (pool, rule) in enumerate(zip(pools, rules, strict=True))}
        granted = budget_grants(budget, claims)
        for at, (pool, rule) in enumerate(zip(pools, rules, strict=True)):
            rule.granted = granted[str(at)]
            pool.round()
        most = max(most, sum(pool.workers.count for pool in pools))
    return [pool.outcome for pool in pools], most


def _claim(pool: PoolRun, rule: Rota) -> BudgetClaim:
    trace, decision = pool.workers.trace, rule.decision
    needed = decision.needs["a"] if decision else trace.least
    return BudgetClaim(trace.least, trace.most, pool.workers.count, needed, decision.lag_ratio if decision else 0.0)
