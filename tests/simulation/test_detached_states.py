"""Tests of copies of a master's state. A preview applies events to such a copy, and the original must not change."""

from collections import Counter
from typing import Final

import pytest

from rota.child.slot_record import HeldUp, TaskInSlot
from rota_supervisor.config.model import Config
from rota_supervisor.layout import Role
from rota_supervisor.master.core.effects import Effect
from rota_supervisor.master.core.master_events import (
    ClaimHeldUp,
    Event,
    EvictionPolicySeen,
    ListeningAt,
    RedisFailed,
    RedisReplied,
    RoundTripSeen,
    ScalingSeen,
    StackFileMade,
)
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.take import HANDLERS, take
from rota_supervisor.master.shell import loop
from simulation.run import simulate
from support.cores import Core, picture

SEEDS: Final = 30
MOST_COPIES: Final = 2  # the number of times that each kind of event is checked per seed
# One event of each kind that never occurs in a simulated fleet.
OTHERS: Final = (
    ClaimHeldUp(8, 1, HeldUp(TaskInSlot(b"id mail i 1 1 0 0 0 0 -", "send", 1, 0), (0, b""))),
    EvictionPolicySeen("allkeys-lru"),
    ListeningAt("127.0.0.1:1"),
    RedisReplied(),
    RedisFailed("network", "refused", is_away=True),
    RoundTripSeen(0.2),
    ScalingSeen({}),
    StackFileMade(8, 1),
)


def test_applying_events_to_a_copied_state_never_changes_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    met: Counter[type] = Counter()

    def take_a_copy_first(state: MasterState, event: Event, now: float) -> list[Effect]:
        copies[type(event)] += 1
        if copies[type(event)] > MOST_COPIES:
            return take(state, event, now)
        before = picture(state)
        decided = take(state.detached(), event, now)
        assert picture(state) == before, f"{type(event).__name__} reached the original"
        met[type(event)] += 1
        effects = take(state, event, now)
        assert decided == effects, "a copy decides as the original does"
        return effects

    monkeypatch.setattr(loop, "take", take_a_copy_first)
    for seed in range(SEEDS):
        copies: Counter[type] = Counter()
        assert simulate(seed).fault == ""
    assert set(HANDLERS) - set(met) - set(map(type, OTHERS)) == set(), "a kind of event that no copy has taken"


@pytest.mark.parametrize("event", OTHERS, ids=lambda event: type(event).__name__)
def test_events_not_simulated_never_change_the_original_of_a_copied_state(event: Event) -> None:
    core = Core(Config(workers=1))
    core.child(Role.WORKER, 8)
    # Set because the event ScalingSeen resets it, so that the event changes the copy.
    core.state.scaling_rounds.is_exchanging = True
    before = picture(core.state)
    copied = core.state.detached()
    take(copied, event, 1.0)
    assert picture(core.state) == before
    assert picture(copied) != before, "the event changes something"
