"""The simulated world: the nodes, a server, the network between them, and a common timeline."""

from random import Random

from rota_supervisor.config.model import Config
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import ChildState
from simulation.children import Zygote
from simulation.network import Network
from simulation.node import Node
from simulation.process import Code, Process, code_of
from simulation.server import Server, Task
from simulation.timeline import Clock, Timeline
from simulation.trouble import Trouble
from simulation.violation import Violation
from simulation.witness import Witness
from simulation.workers import Worker


class World:
    """All parts of one simulation. All random numbers come from the seed of the simulation."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.trace: list[str] = []
        self.timeline = Timeline()
        self.clock = Clock(self.timeline)
        self.trouble = Trouble()
        self.witness = Witness(self)
        self.workers: dict[str, Worker] = {}
        self.server = Server(lambda: 1e6 + self.timeline.now, self.witness)
        self.network = Network(self.timeline, self.random)
        self.nodes: dict[str, Node] = {}
        # Nodes that may lose leases because they were frozen, stopped, or poorly connected.
        self.excused: set[str] = set()
        self.clock_moved_at: float | None = None
        # Cancellations draw from their own random numbers, so that they do not change the rest of a seed's simulation.
        self._cancels = Random(~seed)
        self._cancelled_share = self._cancels.choice([0.0, 0.0, 0.5])

    def note(self, where: str, what: str, about: object = "") -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.timeline.now:10.4f}  {where:6}  {what}  {about}")

    def start(self, name: str, config: Config) -> Node:
        """Start a node, for the first time or again."""
        node = self.nodes[name] = Node(self, name, config)
        self.note(name, "begins", f"{sum(node.state.wanted.counts.values())} workers")
        return node

    @property
    def living(self) -> list[Node]:
        """Return the nodes with a running master."""
        return [node for node in self.nodes.values() if node.alive]

    def gone(self, process: Process, status: int) -> None:
        """Record that a process has ended. If its death must slow further starts, check that it does."""
        node = process.node
        self.note(node.name, "ended", f"{process.role} {process.slot_number}.{process.nonce} status {status}")
        if isinstance(process, Worker):
            process.leave_the_bells()
        own_fault = status not in (0, 9)
        if own_fault and not process.was_ready and isinstance(process, Worker | Zygote):
            self.witness.failed_to_boot(process)
        elif own_fault and isinstance(process, Worker) and process.code is Code.WORKERS_FLAP:
            self.witness.has_died_early(process)

    def enqueue(self, seconds: float) -> None:
        """Enqueue a task that takes this long unless it is cancelled. Some of the tasks may be started at most once,
        and some have their own crash limit.
        """
        once, crash_limit = self.random.choice([(False, 0), (False, 0), (True, 0), (False, 1), (False, 5)])
        task = Task(f"t{len(self.server.tasks)}", seconds, once, crash_limit)
        self.server.enqueue(task)
        if self._cancels.random() < self._cancelled_share:
            kill_after = self._cancels.choice(["-", "100", "1500"])
            cancel = lambda: None if task.ended else self.server.cancel(task, kill_after)  # noqa: E731 - one expression
            self.timeline.after(self._cancels.uniform(0, 2), cancel)

    # Checks

    def not_whole(self, *nodes: Node) -> str:
        """Return how one of these nodes differs from its configuration, or "" if none differs. Without arguments, check
        all living nodes.
        """
        return next((f"{node.name}: {why}" for node in nodes or self.living if (why := _not_whole(node))), "")

    def unfinished(self) -> list[Task]:
        """Return the accepted tasks that have not ended."""
        return [task for task in self.server.tasks if not task.ended]

    def check_counters(self) -> None:
        """Check that every task is in exactly one place, and that its counters explain every start."""
        server = self.server
        entries = [task.id for task in server.lane] + [task.id for held in server.inflight.values() for task in held]
        ended = [task.id for task in server.tasks if task.ended]
        if sorted([*entries, *ended]) != sorted(task.id for task in server.tasks):
            raise Violation("a task is in no place, or in two")
        for task in server.tasks:
            explained = 1 if task.once else 1 + task.failures + task.crashes + task.losses + task.releases
            if task.starts > explained:
                raise Violation(f"{task.id} was started {task.starts} times, {explained} are explained")
            if task.is_marked_started and task in server.lane:
                raise Violation(f"{task.id} may be started once at most, has begun, and waits for another start")


def _not_whole(node: Node) -> str:
    state = node.state
    rollout = state.rollout
    if rollout.candidate is not None:
        return f"generation {rollout.candidate.number} is on its way"
    generation = rollout.in_force
    wanted = [(Role.WORKER, pool, generation.of_pool(pool), count) for pool, count in state.wanted.counts.items()]
    wanted.append((Role.ZYGOTE, f"generation-{generation.code}", generation.code, 1))
    wanted.append((Role.POLLER, "pollers", state.wanted.versions.pollers, rollout.in_force.config.pollers))
    wanted.append((Role.EXPORTER, "exporter", state.wanted.versions.exporter, 1))
    # A reload accepts code whose workers die if no worker was configured at that time. Workers that are added later are
    # in back-off.
    is_hopeless = code_of(rollout.in_force.config.imports) is Code.WORKERS_DIE
    for role, pool, number, count in wanted:
        if is_hopeless and role is Role.WORKER:
            continue
        ready = [child for child in state.children.of(role, ChildState.READY) if child.pool == pool]
        of_generation = [child for child in ready if child.generation == number and child.pid in node.processes]
        if len(of_generation) != count:
            return f"{len(of_generation)} of {count} {pool} of generation {number} are READY"
    most = sum(count for *_, count in wanted)
    others = [f"{child.role} {child.slot} {child.state}" for child in state.children][:3]
    return (
        ""
        if len(list(state.children)) == most or is_hopeless
        else f"{len(list(state.children))} children instead of {most}: {others}"
    )
