"""What the demo plans to do."""

import itertools
import tomllib
from pathlib import Path
from random import Random

import pytest

from rota_supervisor.demo.fleet import Place, find_place
from rota_supervisor.demo.scenario import (
    TIERS,
    VICTIM_SECONDS,
    Act,
    calls_between,
    cues,
    flood,
    producing_seconds,
    victim,
    with_workers,
)

QUEUES = {queue for tier in TIERS for queue in tier}


@pytest.mark.parametrize("seconds", [5.0, 30.0, 600.0])
def test_every_act_has_its_cue_while_tasks_are_produced(seconds: float) -> None:
    played = cues(seconds)

    assert {cue.act for cue in played} == set(Act)
    assert [cue.at_seconds for cue in played] == sorted(cue.at_seconds for cue in played)
    assert played[-1].at_seconds < producing_seconds(seconds) < seconds


def test_the_pool_grows_before_it_shrinks() -> None:
    acts = [cue.act for cue in cues(30.0)]

    assert acts.index(Act.GROW) < acts.index(Act.SHRINK)


def test_intervals_in_a_row_bring_what_one_long_interval_brings() -> None:
    at_once = [(call.name, call.args) for call in calls_between(0.0, 3.0, 30.0, Random(1))]
    bounds = [0.0, 0.05, 0.4, 1.999, 2.0, 3.0]
    in_pieces = [
        (call.name, call.args)
        for since, until in itertools.pairwise(bounds)
        for call in calls_between(since, until, 30.0, Random(1))
    ]

    assert sorted(in_pieces) == sorted(at_once)
    assert len(at_once) > 100


def test_every_queue_gets_tasks_and_some_are_delayed() -> None:
    calls = list(calls_between(0.0, 2.0, 30.0, Random(1)))
    delays = [call.delay for call in calls if call.delay is not None]

    assert {call.queue for call in calls} == QUEUES
    assert 0 < len(delays) < len(calls)
    assert all(isinstance(delay, float) and 0.3 <= delay <= 3.6 for delay in delays)


def test_a_flood_is_for_the_middle_tier_two_to_one() -> None:
    queues = [call.queue for call in flood(30.0)]

    assert queues.count("sold-email") == 600
    assert queues.count("expired-email") == 300
    assert len(queues) == 900


def test_the_victim_runs_long_enough_to_be_met() -> None:
    assert all(victim(seconds).queue in QUEUES for seconds in VICTIM_SECONDS)
    assert min(VICTIM_SECONDS) > 1


def test_the_configuration_serves_the_queues_of_the_scenario() -> None:
    config = tomllib.loads(_place().config_text())

    assert tuple(map(tuple, config["tiers"])) == TIERS
    assert config["workers"] == 4
    assert config["redis_url"] == "redis://127.0.0.1:7001/0"


def test_an_edit_changes_the_number_of_workers_and_nothing_else() -> None:
    before = _place().config_text()
    after = with_workers(before, 6)

    assert tomllib.loads(after) == tomllib.loads(before) | {"workers": 6}
    assert with_workers(after, 4) == before


def test_a_place_has_two_ports() -> None:
    place = find_place(_place().folder)

    assert len({place.redis_port, place.http_port, 0}) == 3


def _place() -> Place:
    return Place(Path("/folder"), 7001, 7002)
