"""The faults of the simulation. For each fault, a function causes the fault and plans its end."""

from typing import Final

from rota.child.slots import RecycleReason
from rota_supervisor.config.model import Config
from rota_supervisor.layout import Role
from simulation.nemesis import Fault, Nemesis
from simulation.network import Up
from simulation.node import Node
from simulation.orders import ORDERS, reload_good, reload_serving, restart
from simulation.process import Process
from simulation.workers import Worker

HOUR: Final = 3600.0


# Processes


def kill_one(nemesis: Nemesis) -> None:
    process = nemesis.process(nemesis.node())
    if process is not None:
        process.kill()


def kill_a_worker(nemesis: Nemesis) -> None:
    process = nemesis.process(nemesis.node(), Role.WORKER)
    if process is not None:
        process.kill(nemesis.random.choice([9, 11]))


def kill_all_workers(nemesis: Nemesis) -> None:
    kill_all_workers_of(nemesis.node())


def kill_all_workers_of(node: Node) -> None:
    """Kill all workers of a node at the same simulated time."""
    for process in list(node.processes.values()):
        if process.role is Role.WORKER:
            process.kill()


def kill_everything(nemesis: Nemesis) -> None:
    for process in list(nemesis.node().processes.values()):
        process.kill()


def kill_workers_then_zygote(nemesis: Nemesis) -> None:
    node = nemesis.node()
    kill_all_workers_of(node)

    def kill_zygote(_: Nemesis) -> None:
        process = nemesis.process(node, Role.ZYGOTE)
        if process is not None:
            process.kill()

    nemesis.later(nemesis.random.uniform(0, 0.02), kill_zygote)


def kill_again_and_again(nemesis: Nemesis) -> None:
    for number in range(nemesis.random.choice([5, 10, 20])):
        nemesis.later(number * nemesis.random.uniform(0.01, 0.2), kill_one)


def kill_while_they_start(nemesis: Nemesis) -> None:
    node = nemesis.node()
    pause = nemesis.random.uniform(0.02, 0.3)
    for number in range(nemesis.random.choice([5, 15])):
        nemesis.after(number * pause, lambda: kill_all_workers_of(node))


def stop_one(nemesis: Nemesis) -> None:
    process = nemesis.process(nemesis.node())
    if process is not None:
        process.stop()
        if nemesis.random.random() < 0.6:
            nemesis.after(nemesis.spell(), process.cont)


def hang_one(nemesis: Nemesis) -> None:
    process = nemesis.process(nemesis.node())
    if process is not None:
        process.hang()


def block_signals_of_one(nemesis: Nemesis) -> None:
    """Make a worker ignore signals, as if a task had replaced the worker's handler."""
    process = nemesis.process(nemesis.node(), Role.WORKER)
    if isinstance(process, Worker):
        process.unresponsive = True


def have_one_wish_to_go(nemesis: Nemesis) -> None:
    _wish(nemesis.process(nemesis.node(), Role.WORKER))


def have_all_wish_to_go(nemesis: Nemesis) -> None:
    for process in list(nemesis.node().processes.values()):
        _wish(process)


def _wish(process: Process | None) -> None:
    if isinstance(process, Worker):
        process.act(lambda: process.wish(RecycleReason.MAX_RSS) if process.has_moved_in else None)


def stop_a_zygote_before_a_fork(nemesis: Nemesis) -> None:
    node = nemesis.node()
    zygote = nemesis.process(node, Role.ZYGOTE)
    kill_all_workers_of(node)
    if zygote is not None:
        zygote.stop()
        nemesis.after(nemesis.random.uniform(0.0, 6.0), zygote.cont)


def stop_a_master(nemesis: Nemesis) -> None:
    node = nemesis.node()
    nemesis.excuse(node.name)
    node.stop_master()
    nemesis.after(nemesis.spell(), node.continue_master)


def freeze_a_node(nemesis: Nemesis) -> None:
    node = nemesis.node()
    nemesis.excuse(node.name)
    node.freeze()
    nemesis.after(nemesis.spell(), node.thaw)


def lose_a_node(nemesis: Nemesis) -> None:
    node = nemesis.node()
    config = node.state.config
    node.lose()
    if nemesis.random.random() < 0.7 or not nemesis.world.living:
        nemesis.after(nemesis.spell(), lambda: _start_again(nemesis, node.name, config))


def _start_again(nemesis: Nemesis, name: str, config: Config) -> None:
    nemesis.world.start(name, config)


def _for_a_while(nemesis: Nemesis, **odds: float) -> None:
    trouble = nemesis.world.trouble
    for name, odd in odds.items():
        setattr(trouble, name, odd)
        nemesis.after(nemesis.spell(), lambda name=name: setattr(trouble, name, 0.0))  # type: ignore[misc]  # a default


def fail_forks(nemesis: Nemesis) -> None:
    _for_a_while(nemesis, fork_fails=0.7)


def lose_reports(nemesis: Nemesis) -> None:
    _for_a_while(nemesis, reports_lost=0.5)
    kill_all_workers(nemesis)


def let_boots_die(nemesis: Nemesis) -> None:
    odds = nemesis.random.choice([0.5, 1.0])
    _for_a_while(nemesis, boots_die=odds)
    kill_all_workers(nemesis)


def let_boots_hang(nemesis: Nemesis) -> None:
    _for_a_while(nemesis, boots_hang=0.5)
    kill_all_workers(nemesis)


# Faults of the server and the network


def server_down(nemesis: Nemesis) -> None:
    _server(nemesis, Up.DOWN)


def server_stalled(nemesis: Nemesis) -> None:
    _server(nemesis, Up.STALLED)


def _server(nemesis: Nemesis, up: Up) -> None:
    world = nemesis.world
    world.network.set_up(up)
    if up is Up.DOWN:
        world.server.parked.clear()
    nemesis.after(nemesis.spell(), lambda: world.network.set_up(Up.UP))


def cut_off(nemesis: Nemesis) -> None:
    world = nemesis.world
    name = nemesis.node().name
    nemesis.excuse(name)
    world.network.cut.add(name)
    nemesis.after(nemesis.spell(), lambda: world.network.cut.discard(name))


def slow_down(nemesis: Nemesis) -> None:
    world = nemesis.world
    name = nemesis.node().name
    nemesis.excuse(name)
    world.network.slow.add(name)
    nemesis.after(nemesis.spell(), lambda: world.network.slow.discard(name))


def lose_replies(nemesis: Nemesis) -> None:
    nemesis.excuse(*nemesis.world.nodes)
    nemesis.world.network.losing = 0.5
    nemesis.after(nemesis.spell(), lambda: setattr(nemesis.world.network, "losing", 0.0))


def delay_replies(nemesis: Nemesis) -> None:
    nemesis.excuse(*nemesis.world.nodes)
    nemesis.world.network.late = 2.9
    nemesis.after(nemesis.spell(), lambda: setattr(nemesis.world.network, "late", 0.0))


def move_the_clock(nemesis: Nemesis) -> None:
    world = nemesis.world
    world.clock_moved_at = world.timeline.now
    world.server.ahead += nemesis.random.choice([HOUR, -HOUR, -1.0])


def start_slowly(nemesis: Nemesis) -> None:
    _for_a_while(nemesis, slow_starts=0.8)


KILLS: Final[tuple[Fault, ...]] = (
    kill_one,
    kill_a_worker,
    kill_all_workers,
    kill_everything,
    kill_workers_then_zygote,
    kill_again_and_again,
    kill_while_they_start,
)
PROCESSES: Final[tuple[Fault, ...]] = (
    *KILLS,
    stop_one,
    stop_one,
    hang_one,
    block_signals_of_one,
    have_one_wish_to_go,
    have_all_wish_to_go,
    stop_a_zygote_before_a_fork,
    stop_a_master,
    freeze_a_node,
    freeze_a_node,
    lose_a_node,
    fail_forks,
    lose_reports,
    let_boots_die,
    let_boots_hang,
)
NETWORK: Final[tuple[Fault, ...]] = (
    server_down,
    server_stalled,
    cut_off,
    cut_off,
    slow_down,
    lose_replies,
    delay_replies,
    move_the_clock,
    start_slowly,
)
FILES: Final[tuple[Fault, ...]] = (*ORDERS, block_signals_of_one, have_one_wish_to_go, have_all_wish_to_go)
# These faults may cost a node its leases, so that the workers need their fences.
AT_STAKE: Final[tuple[Fault, ...]] = (
    cut_off,
    cut_off,
    freeze_a_node,
    freeze_a_node,
    stop_a_master,
    stop_one,
    delay_replies,
    start_slowly,
    lose_a_node,
    server_down,
    move_the_clock,
)
CHANGES: Final[tuple[Fault, ...]] = (*[reload_serving] * 6, reload_good, restart, kill_everything, lose_a_node, cut_off)
EVERYTHING: Final = (*PROCESSES, *NETWORK, *FILES)
