"""The simulated processes, which can be started, stopped, continued and killed."""

from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from rota.child.child_process import EXIT_DRAINED, EXIT_ORPHANED
from rota.child.slots import Phase
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child
from simulation.timeline import Action

if TYPE_CHECKING:
    from simulation.node import Node

KILLED_STATUS: Final = 9
SEGFAULT_STATUS: Final = 11
FIRST_BEAT_WITHIN: Final = 0.02  # the longest time from a SIGCONT to the next heartbeat, in seconds


class Code(StrEnum):
    """The behavior of the application. The first module in `imports` of the configuration selects it."""

    GOOD = "good"
    RAISES = "raises"
    HANGS = "hangs"
    DIES = "dies"  # the zygote dies when it imports the module
    WORKERS_DIE = "workers_die"  # each worker dies before it is READY
    WORKERS_FLAP = "workers_flap"  # each worker dies soon after it is READY
    UNSERVED = "unserved"  # the module declares a task for a queue that no tier serves


def tick_of(module: str) -> str:
    """Return the text of the schedule that this module declares."""
    return f"as {module} says"


def code_of(imports: tuple[str, ...] | list[str]) -> Code:
    """Return the behavior of the first module, for example GOOD for `good.2`, which is version 2 of `good`."""
    return Code(imports[0].split(".")[0])


class Process:
    """A process of a node. All its actions go through `later` and `act`, so that it does nothing while it is
    stopped.
    """

    role: Role

    def __init__(self, node: "Node", child: Child) -> None:
        self.node = node
        self.world = node.world
        self.pool = child.pool
        self.generation = child.generation
        self.slot_number = child.slot
        self.nonce = child.nonce
        self.slot = node.memory.slot(child.slot)
        self.pid = node.add_process(self)
        self.alive = True
        self.stopped_since: float | None = None
        self.silent_since: float | None = None
        self.silent_until = 0.0
        self.hung = False
        self.stop_requested = False
        self.has_moved_in = self.was_ready = False
        self._held_up: deque[Action] = deque()

    @property
    def location(self) -> str:
        """The name of the process's node."""
        return self.node.name

    @property
    def is_beating(self) -> bool:
        """Whether the main thread responds, so that the heartbeat in the slot is up to date."""
        if not self.alive or self.hung or self.stopped_since is not None or self.node.frozen:
            return False
        if self.boottime() < self.silent_until:
            return False
        self.silent_since = None
        return True

    def boottime(self) -> float:
        """Return the current time of the node's clock."""
        return self.node.boottime()

    def later(self, seconds: float, action: Action) -> None:
        """Run an action after this number of seconds. If the process is stopped at that time, the action runs when the
        process continues.
        """
        self.world.timeline.after(seconds, lambda: self.act(action))

    def act(self, action: Action) -> None:
        """Run an action now, or when the process continues if it is stopped. If the process has ended or hangs, the
        action never runs.
        """
        if not self.alive or self.hung:
            return
        if self.stopped_since is not None or self.node.frozen:
            self._held_up.append(action)
            return
        self.node.enter()
        action()

    def exit(self, code: int) -> None:
        self._end(code << 8)

    def kill(self, status: int = KILLED_STATUS) -> None:
        self._end(status)

    def term(self) -> None:
        """Receive SIGTERM."""
        if self.alive and not self.stop_requested:
            self.stop_requested = True
            self.later(0.0, self.receive_term)

    def receive_term(self) -> None:
        """Exit at once, like a child that has no work to finish."""
        self.later(0.001, lambda: self.exit(EXIT_DRAINED))

    def stop(self) -> None:
        if self.alive and self.stopped_since is None:
            self.node.enter()
            self.slot.heartbeat()
            self.stopped_since = self.silent_since = self.boottime()
            self.node.note_stop(self.pid, stopped=True)

    def cont(self) -> None:
        if self.alive and self.stopped_since is not None:
            self.stopped_since = None
            self.node.note_stop(self.pid, stopped=False)
            self.go_on()

    def go_on(self) -> None:
        """Continue after a stop, and run the actions that became due in the meantime. The first heartbeat follows a
        moment later.
        """
        self.silent_until = self.boottime() + self.world.random.uniform(0.0, FIRST_BEAT_WITHIN)
        waiting = self._held_up
        self._held_up = deque()
        for action in waiting:
            self.later(0.0, action)

    def enter_slot(self) -> bool:
        """Take the slot and return True. If the slot now belongs to another process, exit and return False."""
        if self.slot.enter_slot(self):
            self.has_moved_in = True
            return True
        self.exit(EXIT_ORPHANED)
        return False

    def show_ready(self) -> None:
        self.was_ready = True
        self.slot.phase = Phase.IDLE
        self.world.witness.was_ready(self)
        self.node.ring()

    def hang(self) -> None:
        """Stop the heartbeat, and do nothing more until the process is killed."""
        if self.stopped_since is not None or self.node.frozen:
            return
        self.node.enter()
        self.slot.heartbeat()
        self.hung = True
        self.silent_since = self.boottime()

    def _end(self, status: int) -> None:
        if self.alive:
            self.alive = False
            self.node.ended(self, status)
