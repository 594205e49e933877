"""Random configurations with conditions, queue patterns and schedules, and checks that the last configuration has taken
effect.
"""

from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from rota.schedules.schedule import encode_schedule
from rota_supervisor.config.model import ConditionConfig, Config, QueueConfig, ScheduleConfig
from rota_supervisor.config.resolution import pattern_domains, schedules_in_force
from simulation.announced import BROKEN, SHUT, fault_of
from simulation.process import tick_of
from simulation.server import MICROSECONDS
from simulation.violation import require
from simulation.workers import Worker

if TYPE_CHECKING:
    from simulation.node import Node
    from simulation.world import World

OFFICE: Final = "office"
NIGHTLY: Final = "nightly"
_CHUNKS: Final = ("return true", SHUT, SHUT, BROKEN)
_NAMES: Final = ("billing", "tenant-*")


def draw_serving(random: Random, config: Config) -> Config:
    """Return this configuration with randomly chosen conditions, patterns and schedules."""
    served = [name for name in _NAMES if random.random() < 0.6]
    under = {name: OFFICE if random.random() < 0.6 else "" for name in served}
    has_schedule = random.random() < 0.6
    return msgspec.structs.replace(
        config,
        tiers=(("default",), *([tuple(served)] if served else [])),
        queues={name: QueueConfig(cap=random.choice([0, 2]), condition=under[name]) for name in served},
        conditions={OFFICE: ConditionConfig(lua=random.choice(_CHUNKS))} if any(under.values()) else {},
        schedules={NIGHTLY: ScheduleConfig(task="work", every=random.choice([60.0, 90.0]))} if has_schedule else {},
    )


def schedules_of(config: Config) -> dict[str, bytes]:
    """Return the schedules that a node with this configuration declares: those in the configuration file and the one in
    the code.
    """
    of_file = schedules_in_force(config, {"work": "default"})
    return {each.name: encode_schedule(each) for each in of_file} | {"tick": tick_of(config.imports[0]).encode()}


def longest_declaration(world: "World") -> float:
    """Return the number of seconds after which all announcements of queues and patterns have expired, unless a node
    repeats them.
    """
    announced = world.server.announced
    now = world.server.now_us
    ends = [*(until for until, _ in announced.shares.values()), *announced.domains.values()]
    return max([0, *(until - now for until in ends)]) / MICROSECONDS


def schedules_declared(world: "World") -> dict[str, set[bytes]]:
    """Return the texts that the nodes declare, by the name of the schedule."""
    declared: defaultdict[str, set[bytes]] = defaultdict(set)
    for node in world.living:
        for name, text in schedules_of(node.state.config).items():
            declared[name].add(text)
    return declared


def check_schedules(world: "World") -> None:
    """Check that the server has each declared schedule, with a text that one of the nodes declares."""
    for name, texts in schedules_declared(world).items():
        text, _, _ = world.server.schedules[name]
        require(text in texts, f"the schedule {name} is {text!r}, and no node declares that: {texts}")


def check_serving(world: "World") -> None:
    """Check that the closed queues, the known patterns and the workers' tiers match the configurations in force."""
    _check_closed(world)
    declared = {domain.name for node in world.living for domain in pattern_domains(node.state.config)}
    known = set(world.server.announced.domains)
    require(known == declared, f"the patterns of {known} are known, and nodes serve {declared}")
    for node in world.living:
        _check_workers(node)


def _check_closed(world: "World") -> None:
    """Check which queues the masters consider closed. If the configurations of two nodes differ for a queue, the queue
    may be open or closed.
    """
    configs = [node.state.config for node in world.living]
    may_be: defaultdict[str, set[str | None]] = defaultdict(set)
    for queue, given in ((queue, given) for config in configs for queue, given in config.queues.items()):
        defined = [config.conditions[given.condition].lua for config in configs if given.condition in config.conditions]
        may_be[queue].update(map(fault_of, defined) if given.condition else [None])
    for node in world.living:
        seen = {row.queue: row.error for row in node.state.closed}
        for queue in sorted(may_be.keys() | seen.keys()):
            expected = may_be.get(queue, {None})
            require(
                seen.get(queue) in expected,
                f"{node.name} sees {queue} {_in_words(seen.get(queue))}, nodes publish {[*map(_in_words, expected)]}",
            )


def _in_words(fault: str | None) -> str:
    return "open" if fault is None else f"closed ({fault})"


def _check_workers(node: "Node") -> None:
    config = node.state.config
    declared = {name: config.queues.get(name, QueueConfig()) for tier in config.tiers for name in tier}
    wanted = {name: (given.cap, given.condition) for name, given in declared.items()}
    ready = [node.processes.get(child.pid) for child in node.ready_workers]
    for worker in (process for process in ready if isinstance(process, Worker)):
        claimed = {share.name: (share.cap, share.condition) for tier in worker.settings.tiers for share in tier.queues}
        require(claimed == wanted, f"a worker of {node.name} claims by {claimed}, and its configuration says {wanted}")
