"""Checks of leases, task starts, limits and restarts. Each check is made as soon as its event happens."""

import math
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

from rota.protocol.tiers import DEFAULT_CRASH_LIMIT
from rota_supervisor.config.model import Restarts
from rota_supervisor.master.core.start_backoff import TOLERATED
from simulation.checks import SLACK_SECONDS
from simulation.network import PATIENCE_SECONDS
from simulation.process import Process
from simulation.server import MICROSECONDS, Task
from simulation.timeline import NANOSECONDS
from simulation.violation import require
from simulation.workers import START_WITHIN_SHARE, Worker

if TYPE_CHECKING:
    from simulation.world import World

FENCE_MARGIN_SHARE: Final = 0.1  # no task starts in the last part of a lease; this is the share of that part
ROUNDING_SECONDS: Final = 0.001
MINUTE: Final = 60.0
Key = tuple[str, str, int]  # the node, the pool and the generation


class Witness:
    """Checks of the events that the simulated server, the workers and the processes report."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._failed: dict[Key, deque[float]] = defaultdict(deque)
        self._flapped: dict[Key, deque[float]] = defaultdict(deque)

    # Leases

    def registered(self, owner: str) -> None:
        """Check that the name of an owner was never used before."""
        require(owner not in self._world.workers, f"the owner {owner} begins a second life")

    def reaped(self, owner: str, *, expired: bool) -> None:
        """Check that an owner may be reaped. Its worker must have ended, or must be unable to start another task."""
        worker = self._world.workers.get(owner)
        self._world.note("server", "reaped", f"{owner} {'expired' if expired else 'exited'}")
        if not expired:
            living = worker is not None and worker.alive and worker.has_moved_in
            require(not living, f"{owner} is reaped as exited, and it lives")
            return
        if worker is not None and worker.alive:
            now_ns = round(worker.boottime() * NANOSECONDS)
            up = not worker.has_moved_in or worker.fence.is_up(now_ns)
            require(up, f"{owner} is reaped as expired while its fence lets it start tasks")
            excused = worker.location in self._world.excused or worker.node.frozen or not worker.has_moved_in
            require(excused, f"{owner} is reaped as expired, and only the server was away")

    def blamed(self, task: Task, crash_limit: int) -> None:
        """Check that the crash limit that was applied to a task is the task's own limit, or the default if the task has
        none.
        """
        limit = task.crash_limit or DEFAULT_CRASH_LIMIT
        require(crash_limit == limit, f"{task.id} is judged by {crash_limit} crashes, and its limit is {limit}")

    def removed(self, schedule: str) -> None:
        """Check that no node declares the schedule that was removed. A node is ignored if a fault may have made its
        declarations expire.
        """
        world = self._world
        world.note("server", "removed", schedule)
        if world.network.was_away or world.clock_moved_at is not None:
            return
        for node in world.living:
            since = node.state.declarations.since.get(schedule, math.inf)
            may_lapse = node.name in world.excused or node.frozen or node.master_stopped
            is_declared = not may_lapse and node.boottime() - since > PATIENCE_SECONDS
            require(not is_declared, f"{schedule} is removed, and {node.name} declares it")

    def allowed(self, worker: Worker, task: Task) -> None:
        """Check a worker whose fence permits a start. The worker must not have been ordered to be quiet, and must still
        have its lease, with the margin that the fence keeps.
        """
        is_quiet = worker.slot.quiet_requested or worker.node.state.quiet.is_requested
        # A task with a start mark is started even by a quiet worker, because no other worker may start it.
        require(
            task.is_marked_started or not is_quiet,
            f"{worker.owner} starts {task.id}, although it was ordered to be quiet",
        )
        server = self._world.server
        expires = server.owners.get(worker.owner)
        require(expires is not None, f"{worker.owner} is allowed to start {task.id}, and it was reaped")
        assert expires is not None
        if self._world.clock_moved_at is not None:
            # If the clock was moved, leases end sooner or later than planned. The grace period compensates for this.
            return
        left = (expires - server.now_us) / MICROSECONDS
        margin = worker.settings.lease_seconds * FENCE_MARGIN_SHARE - ROUNDING_SECONDS
        require(left >= margin, f"{worker.owner} is allowed to start {task.id} {left:.3f} s before its lease ends")

    def started(self, worker: Worker, task: Task, read_ns: int) -> None:
        """Check that a worker still has its lease when it calls the function of a task."""
        took = worker.boottime() - read_ns / NANOSECONDS
        if took > worker.settings.lease_seconds * START_WITHIN_SHARE + ROUNDING_SECONDS:
            # The worker was stopped between reading the clock and calling the function. No client can prevent that.
            self._world.note(worker.location, "starts late", task.id)
            return
        require(
            worker.owner in self._world.server.owners,
            f"{worker.owner} starts {task.id} after the task was given to another owner",
        )

    # Limits

    def interrupted(self, worker: Worker) -> None:
        """Check that a worker is interrupted for a soft limit only once, soon after the limit has expired, and never
        before.
        """
        now = worker.boottime()
        slot = worker.slot_number
        require(worker.running and now > worker.soft_until, f"slot {slot} is interrupted before a soft limit, or again")
        late = now - max(worker.soft_until, worker.node.awake_since)
        require(late <= SLACK_SECONDS, f"slot {slot} is interrupted {late:.3f} s after its soft limit")

    def cancelled(self, worker: Worker, task: Task) -> None:
        """Check that a worker receives an order to end a task only after a cancellation."""
        require(task.cancelled, f"slot {worker.slot_number} is ordered to end {task.id}, which was not cancelled")

    # Restarts

    def has_died_early(self, worker: Process) -> None:
        """Check that further starts are slowed if workers repeatedly die soon after READY."""
        times = self._remember(self._flapped, worker)
        probes = _probes_a_minute(worker.node.state.config.restarts)
        # For the back-off, several workers that die together count as one death.
        most = (TOLERATED + 1) * _counted(worker) + 2 * probes
        require(len(times) <= most, f"{len(times)} sudden deaths within a minute, more than {most}")

    def failed_to_boot(self, worker: Process) -> None:
        """Check that further starts are slowed after a child has died by itself before it was READY."""
        times = self._remember(self._failed, worker)
        most = _counted(worker) + _probes_a_minute(worker.node.state.config.restarts)
        require(len(times) <= most, f"{len(times)} failed starts within a minute, more than {most}")

    def _remember(self, deaths: dict[Key, deque[float]], process: Process) -> deque[float]:
        now = self._world.timeline.now
        times = deaths[self._key(process)]
        times.append(now)
        while times[0] <= now - MINUTE:
            times.popleft()
        return times

    def was_ready(self, worker: Process) -> None:
        """Record that a child became READY, which clears earlier failures."""
        self._failed.pop(self._key(worker), None)

    @staticmethod
    def _key(process: Process) -> Key:
        return process.node.name, process.pool, process.generation


def _counted(process: Process) -> int:
    """Return the largest number of processes that the node may have at once. The checks permit this number of deaths,
    because all these processes may die before the first death slows further starts.
    """
    return sum(process.node.state.wanted.counts.values()) + 2


def _probes_a_minute(restarts: Restarts) -> int:
    wait = restarts.backoff_seconds
    spent = 0.0
    probes = 0
    while spent < MINUTE:
        spent += min(wait, restarts.backoff_max_seconds)
        wait *= 2
        probes += 1
    return probes
