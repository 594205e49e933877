"""The plan and the load of a soak test cover every fault and every feature. If a part of the product were left out, no
soak test would show that this part is broken.
"""

from soak import cluster_faults, file_faults, network_faults, node_faults, process_faults, server_faults, verb_faults
from soak.faults import KINDS, TARGETS, Fault
from soak.load import ORDER, STREAMS, TIERS, TOGETHER, Intent, Load
from soak.plan import plan_of

SECONDS = 600.0


def load(name: str = "p") -> list[Intent]:
    made = Load(name, 1, is_the_one=True)
    return [intent for tenth in range(600) for intent in made.between(tenth / 10, (tenth + 1) / 10)]


def test_the_soak_plans_cover_every_fault_on_every_target() -> None:
    plans = [plan_of(profile, SECONDS, seed) for seed in range(20) for profile in ("everything", "hosts", "cluster")]
    drawn = {(planned.fault, planned.target) for plan in plans for planned in plan}
    assert drawn == {(fault, target) for fault, kind in KINDS.items() for target in TARGETS[kind.scope]}
    assert all(0 < planned.at_seconds <= planned.end_seconds <= SECONDS for plan in plans for planned in plan)


def test_every_fault_of_the_soak_has_an_implementation() -> None:
    of_nodes = (process_faults, node_faults, file_faults, verb_faults)
    modules = (*of_nodes, network_faults, server_faults, cluster_faults)
    assert sorted(fault for module in modules for fault in module._ACTS) == sorted(Fault)
    assert set(KINDS) == set(Fault)


def test_the_soak_sends_all_tasks_to_served_queues_with_unique_ids() -> None:
    tasks = [intent for intent in load() + load("q") if intent.task]
    sent = {(intent.verb, intent.task, intent.queue) for intent in tasks}
    assert {(stream.verb, stream.task, stream.queue) for stream in STREAMS if stream.task} <= sent
    assert {queue for _, _, queue in sent} == {*sum(TIERS, ()), ORDER, TOGETHER}
    ids = [each for intent in tasks for each in intent.ids]
    assert len(ids) == len(set(ids))
