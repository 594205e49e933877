"""The plan and the load of a soak: drawn from a seed, and nothing of either left to chance."""

from itertools import pairwise

import pytest

from soak import file_faults, network_faults, node_faults, process_faults, server_faults, verb_faults
from soak.faults import KINDS, PROFILES, TARGETS, Fault
from soak.load import FAIR, ORDER, STREAMS, TIERS, TOGETHER, Intent, Load
from soak.plan import Planned, plan_from, plan_of

SECONDS = 600.0


def everything(seed: int = 1) -> tuple[Planned, ...]:
    return plan_of("everything", SECONDS, seed)


def load(name: str = "p", seed: int = 1) -> list[Intent]:
    made = Load(name, seed, is_the_one=True)
    return [intent for tenth in range(600) for intent in made.between(tenth / 10, (tenth + 1) / 10)]


def test_a_seed_says_the_whole_plan_and_another_one_another() -> None:
    assert everything(1) == everything(1) != everything(2)


@pytest.mark.parametrize("profile", PROFILES)
def test_faults_come_in_order_and_all_end_within_the_run(profile: str) -> None:
    plan = plan_of(profile, SECONDS, 7)
    assert all(one.at_seconds <= next_one.at_seconds for one, next_one in pairwise(plan))
    assert all(0 < planned.at_seconds <= planned.end_seconds <= SECONDS for planned in plan)
    assert {planned.fault for planned in plan} <= set(PROFILES[profile])


def test_what_has_a_length_goes_on_alone_in_its_place() -> None:
    ends: dict[tuple[object, str], float] = {}
    for planned in everything():
        if planned.seconds:
            where = (KINDS[planned.fault].place, planned.target)
            assert ends.get(where, 0.0) <= planned.at_seconds
            ends[where] = planned.end_seconds


def test_every_fault_is_done_sooner_or_later_and_to_every_target() -> None:
    drawn = {(planned.fault, planned.target) for seed in range(20) for planned in everything(seed)}
    assert drawn == {(fault, target) for fault, kind in KINDS.items() for target in TARGETS[kind.place]}


def test_every_fault_has_a_way_to_do_it() -> None:
    modules = (process_faults, node_faults, network_faults, server_faults, file_faults, verb_faults)
    assert sorted(fault for module in modules for fault in module._ACTS) == sorted(Fault)
    assert set(KINDS) == set(Fault)


def test_in_a_calm_nothing_but_kills_is_begun_or_goes_on() -> None:
    calm = [
        planned for planned in everything() if planned.end_seconds % 67.0 > 22.0 and planned.at_seconds % 67.0 < 30.0
    ]
    assert {planned.fault for planned in calm} == {Fault.KILL_WORKER}
    assert all(planned.at_seconds % 67.0 >= 25.0 for planned in calm)


def test_a_plan_can_be_given_in_words() -> None:
    [first, second] = plan_from(["stop_node a 4 8", "kill_worker b 1 0"])
    assert first == Planned(0, 1.0, Fault.KILL_WORKER, "b", 0.0)
    assert (second.fault, second.target, second.end_seconds) == (Fault.STOP_NODE, "a", 12.0)
    with pytest.raises(ValueError, match="one of a, b"):
        plan_from(["stop_node server 1 1"])


def test_a_seed_says_what_is_sent_and_no_id_is_used_twice() -> None:
    assert load(seed=1) == load(seed=1) != load(seed=2)
    ids = [each for intent in load() + load("q") if intent.task for each in intent.ids]
    assert len(ids) == len(set(ids))


def test_every_stream_is_sent_to_a_queue_that_is_served() -> None:
    sent = {(intent.verb, intent.task, intent.queue) for intent in load() if intent.task}
    assert {(stream.verb, stream.task, stream.queue) for stream in STREAMS if stream.task} <= sent
    assert {queue for _, _, queue in sent} == {*sum(TIERS, ()), ORDER, TOGETHER}


def test_what_is_in_order_is_numbered_without_a_gap() -> None:
    numbers = [intent.number for intent in load() if intent.queue == ORDER]
    assert numbers == list(range(len(numbers)))


def test_the_queues_that_share_fairly_are_filled_one_right_after_the_other() -> None:
    bursts = [intent.queue for intent in load() if intent.queue in FAIR]
    assert bursts == list(FAIR) * (len(bursts) // len(FAIR))
