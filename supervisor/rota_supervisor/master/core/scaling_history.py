"""The history of a pool with a range of workers: how many workers it needed over the last few minutes, and how much
throughput its last growth gained."""

import math
from typing import Final, NamedTuple

from rota_supervisor.master.core.scaling_backlogs import GAP_SECONDS, LONG_SECONDS, Backlogs
from rota_supervisor.master.core.scaling_demand import Demand
from rota_supervisor.master.core.scaling_inputs import NodeLoad

HELD_SHARE: Final = 0.5  # a shrink must keep the lag below this share of the objective
SHRINK_SECONDS: Final = 300.0  # a worker leaves if it was not needed at any time in this period
SHRINK_STEP_SECONDS: Final = 10.0
TURN_SECONDS: Final = 60.0  # at most one change of direction in this period
SETTLE_SECONDS: Final = 2.0  # the length of the short window, which then covers only the new number of workers
GAIN_SECONDS: Final = 3.0  # how long new workers must have been ready before the gain is judged
LEAST_GAIN: Final = 0.5  # a growth is kept in full if it gains at least this share of the predicted throughput
GAIN_SIGMAS: Final = 3.0
FEWEST_COMPARED: Final = 100  # with fewer starts, the mean run time is too inaccurate to predict a gain
FREEZE_SECONDS: Final = 60.0  # the length of the first freeze; each further freeze in a row is twice as long
LONGEST_FREEZE_SECONDS: Final = 960.0


class PoolGrowth(NamedTuple):
    """The last growth of a pool, in one or more steps, with measurements of how much throughput the added workers
    gained. Steps belong to the same growth until, for example, the pool shrinks."""

    before: int  # the number of workers before the growth
    starts_before: float  # starts per second before the growth
    seconds_before: float  # the length of the period in which `starts_before` was measured
    task_seconds: float  # the mean run time before the growth, or 0 if too few tasks had started
    ready_at: float | None = None  # when all of the new workers were ready
    rounds: int = 0  # the number of rounds that measured the gain
    starts: float = 0.0  # the sum of the starts per second in `rounds`
    is_judged: bool = False  # whether the gain of the last step has been judged


class PoolScaling(NamedTuple):
    """The part of a pool's history on which later decisions depend. `PoolScaling()` is the history of a new pool."""

    wanted: int | None = None  # the number of workers in the last decision
    decided_at: float = -math.inf
    backlogs: Backlogs = Backlogs()
    held: tuple[tuple[float, int], ...] = ()  # the most workers needed in each interval of the shrink delay
    direction: int = 0  # 1 after a growth, -1 after a shrink
    turned_at: float = -math.inf  # when the direction last changed
    stepped_at: float = -math.inf  # when the number of workers last changed
    growth: PoolGrowth | None = None
    frozen_until: float = -math.inf  # no growth before this time, because the last growth gained too little
    freezes: int = 0  # the number of freezes in a row


def noted(history: PoolScaling, demand: Demand, now: float) -> PoolScaling:
    """Return the history with the need of this round added: how many workers would now keep the lag below half of the
    objective. `may_shrink` compares this number with the current one."""
    holding = max(demand.steady, demand.tail(HELD_SHARE), demand.holding(HELD_SHARE))
    held = history.held if now - history.decided_at <= GAP_SECONDS else ()
    if held and now - held[-1][0] < SHRINK_STEP_SECONDS:
        held = (*held[:-1], (held[-1][0], max(held[-1][1], holding)))
    else:
        is_full = len(held) > 1 and held[1][0] <= now - SHRINK_SECONDS
        held = (*held[is_full:], (now, holding))
    return history._replace(held=held, decided_at=now)


def may_shrink(history: PoolScaling, now: float) -> bool:
    """Whether the pool may give up one worker. It may if, in every round of the last five minutes, fewer workers than
    it has now would have kept the lag below half of the objective."""
    if not may_step(history, -1, now) or now - history.held[0][0] < SHRINK_SECONDS:
        return False
    return max(workers for _, workers in history.held) < (history.wanted or 0)


def may_step(history: PoolScaling, direction: int, now: float) -> bool:
    """Whether the pool may take a step in this direction, which is 1 for growth and -1 for a shrink. It may if its last
    step and its last change of direction were long enough ago."""
    return now - history.stepped_at >= SHRINK_STEP_SECONDS and not turned_lately(history, direction, now)


def turned_lately(history: PoolScaling, direction: int, now: float) -> bool:
    """Whether a step in this direction would be the second change of direction within a minute."""
    return history.direction == -direction and now - history.turned_at < TURN_SECONDS


def is_retrying(history: PoolScaling, now: float) -> bool:
    """Whether the pool has grown again after a freeze of its growth, and it is not known yet whether this has increased
    the throughput."""
    growth = history.growth
    return (
        history.freezes > 0
        and growth is not None
        and not growth.is_judged
        and now - history.stepped_at < FREEZE_SECONDS
    )


def stepped(history: PoolScaling, wanted: int, demand: Demand, now: float) -> PoolScaling:
    """Return the history after a decision for `wanted` workers."""
    before = history.wanted or 0
    if wanted == before:
        return history
    direction = 1 if wanted > before else -1
    growth = None
    if direction == 1:
        growth = history.growth or _growth_from(history, demand, now)
        growth = growth._replace(ready_at=None, rounds=0, starts=0.0, is_judged=False)
    return history._replace(
        wanted=wanted,
        direction=direction,
        turned_at=now if history.direction == -direction else history.turned_at,
        stepped_at=now,
        growth=growth,
    )


def _growth_from(history: PoolScaling, demand: Demand, now: float) -> PoolGrowth:
    """Return the growth that begins now, with the throughput before it. The throughput is measured in the long window,
    which is more accurate, unless the number of workers changed in that window."""
    before = history.wanted or 0
    task_seconds = demand.task_seconds if demand.long_starts >= FEWEST_COMPARED else 0.0
    if now - history.stepped_at >= LONG_SECONDS:
        return PoolGrowth(before, demand.long_starts / LONG_SECONDS, LONG_SECONDS, task_seconds)
    return PoolGrowth(before, demand.starts, SETTLE_SECONDS, task_seconds)


def judged(history: PoolScaling, demand: Demand, nodes: tuple[NodeLoad, ...], now: float) -> tuple[PoolScaling, int]:
    """Judge whether the last growth has increased the throughput enough. If not, further growth is frozen for a while.
    Return the new history and the number of workers to keep."""
    current = history.wanted or 0
    history = history._replace(growth=_measured(history, demand, nodes, now))
    growth = history.growth
    if (
        growth is None
        or growth.is_judged
        or growth.ready_at is None
        or not growth.rounds
        or turned_lately(history, -1, now)
    ):
        return history, current
    seconds = now - growth.ready_at
    if seconds < GAIN_SECONDS:
        return history, current
    starts = growth.starts / growth.rounds
    gained = starts - growth.starts_before
    # Starts per second that one worker can reach.
    slots = demand.concurrency / growth.task_seconds if growth.task_seconds else 0.0
    needed = LEAST_GAIN * (current - growth.before) * slots
    error = math.sqrt(max(1.0, demand.variation) * (starts / seconds + growth.starts_before / growth.seconds_before))
    if gained >= needed:
        return history._replace(growth=growth._replace(is_judged=True)), current
    if gained < -GAIN_SIGMAS * error:  # Fewer tasks start than before, so the tasks must have become longer.
        return history._replace(growth=None), current
    if needed <= GAIN_SIGMAS * error:
        return history, current
    kept = max(1, growth.before)
    # Keep as many workers as would be enough if tasks were as short as before the growth.
    if gained > GAIN_SIGMAS * error:
        kept = max(kept, demand.workers(starts * growth.task_seconds))
    freeze = min(FREEZE_SECONDS * 2**history.freezes, LONGEST_FREEZE_SECONDS)
    return history._replace(growth=None, frozen_until=now + freeze, freezes=history.freezes + 1), min(kept, current)


def _measured(history: PoolScaling, demand: Demand, nodes: tuple[NodeLoad, ...], now: float) -> PoolGrowth | None:
    """Return the last growth with the starts per second of this round added to its measurement, or None if there is no
    growth to measure. The measurement begins 2 s after all new workers are ready, and begins again if workers are
    starting or no task waits."""
    growth = history.growth
    if growth is None:
        return None
    if not demand.backlogs and now - history.stepped_at >= LONG_SECONDS:
        return None
    is_starting = any(node.starting for node in nodes) or sum(node.workers for node in nodes) < (history.wanted or 0)
    if is_starting or not demand.backlogs:
        return growth._replace(ready_at=None, rounds=0, starts=0.0)
    if growth.ready_at is None:
        return growth._replace(ready_at=now)
    if now - growth.ready_at < SETTLE_SECONDS:
        return growth
    return growth._replace(rounds=growth.rounds + 1, starts=growth.starts + demand.starts)
