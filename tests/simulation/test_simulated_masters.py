"""Regression tests for bugs that the simulation has found. They run the product's master with simulated processes."""

from rota.child.slots import boottime_ns
from rota_supervisor.config.model import Config, LeaseConfig
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import ChildState
from simulation.node import Node
from simulation.process import Process
from simulation.run import simulated
from simulation.world import World

CONFIG = Config(namespace="simulated", workers=3, imports=("good.0",))


def _running(world: World, config: Config = CONFIG) -> Node:
    node = world.start("a", config)
    world.timeline.run(2.0)
    assert world.not_whole() == ""
    return node


def _zygote(node: Node) -> Process:
    return next(process for process in node.processes.values() if process.role is Role.ZYGOTE)


def _states_of(node: Node, process: Process) -> list[ChildState]:
    return [child.state for child in node.state.children if child.pid == process.pid]


def test_zygote_with_a_closed_channel_gets_no_fork_request() -> None:
    world = World(1)
    with simulated(world, 1):
        node = _running(world)
        zygote = _zygote(node)
        world.trouble.channel_ends_first = 1.0
        world.trouble.channel_lingers = 5.0
        zygote.kill()
        for worker in [process for process in node.processes.values() if process.role is Role.WORKER]:
            worker.kill()
        world.timeline.run(world.timeline.now + 0.2)
        assert _states_of(node, zygote) == [ChildState.KILLED]
        assert node.state.children.of(Role.WORKER, ChildState.REGISTERING) == []
        world.timeline.run(world.timeline.now + 6.0)
        assert world.not_whole() == ""
        node.lose()


def test_a_zygote_whose_channel_closes_as_it_is_ready_gets_no_fork_request() -> None:
    world = World(4)
    with simulated(world, 4):
        node = world.start("a", CONFIG)
        world.trouble.channel_ends_first = 1.0
        world.trouble.channel_lingers = 5.0
        world.timeline.run(0.01)
        zygote = _zygote(node)
        while not zygote.was_ready:
            world.timeline.run(world.timeline.now + 0.0001)
        assert _states_of(node, zygote) == [ChildState.BOOTING]
        zygote.kill()
        world.timeline.run(world.timeline.now + 0.1)
        assert _states_of(node, zygote) == [ChildState.KILLED]
        world.timeline.run(world.timeline.now + 6.0)
        assert world.not_whole() == ""
        node.lose()


def test_workers_of_an_old_generation_keep_their_own_lease_length() -> None:
    world = World(2)
    with simulated(world, 2):
        node = _running(world, Config(workers=1, imports=("good.0",), lease=LeaseConfig(20.0, 5.0)))
        world.enqueue(1000.0)
        old = node.state.children.of(Role.WORKER)[0]
        node.reload(Config(workers=1, imports=("good.0",), lease=LeaseConfig(2.0, 0.5)))
        world.timeline.run(world.timeline.now + 8.0)
        assert old.state is ChildState.DRAINING
        assert world.server.owners[old.owner] - world.server.now_us > 15e6
        node.lose()


def test_shortened_lease_is_renewed_in_time() -> None:
    world = World(3)
    with simulated(world, 3):
        node = _running(world, Config(workers=1, imports=("good.0",), lease=LeaseConfig(40.0, 30.0)))
        node.reload(Config(workers=1, imports=("good.0",), lease=LeaseConfig(2.0, 0.5)))
        for _ in range(20):
            world.timeline.run(world.timeline.now + 1.0)
            node.enter()
            ages = [boottime_ns() - node.memory.slot(child.slot).renewed_ns for child in node.ready_workers]
            assert max(ages) < 1.8e9
        node.lose()
