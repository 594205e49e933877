"""A model of the server. Its owners, leases, grace period and in-flight tasks behave as in the scripts of `rota/lua`.

The model test of the protocol checks the scripts themselves, and the simulation checks the fleet around them.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rota.protocol.schedule_store import DeclareStatus, RemoveStatus
from simulation.announced import Announcements

MICROSECONDS: Final = 1_000_000
CRASH_LIMIT: Final = 3
LOSS_LIMIT: Final = 5
_READY: Final = 1  # every entry has this generation, because the simulation uses each id only once


@dataclass(slots=True)
class Task:
    """A task and its counters. The number of its `starts` may be at most 1 plus the failures, crashes, losses and
    releases. If `once` is set, the task may be started at most once. `is_marked_started` is true from the time of the
    start mark until the outcome is known. If `crash_limit` is 0, the limit of the fleet applies.
    """

    id: str
    seconds: float
    once: bool = False
    crash_limit: int = 0
    is_marked_started: bool = False
    starts: int = 0
    failures: int = 0
    crashes: int = 0
    losses: int = 0
    releases: int = 0
    cancelled: bool = False
    ended: str = ""

    @property
    def text(self) -> bytes:
        """The task's entry, as it appears in a slot."""
        counters = f"{self.failures} {self.crashes} {self.losses} {self.releases}"
        return f"{self.id} default i {_READY} {_READY} {counters} -".encode()


class Witness(Protocol):
    """A receiver of events. The simulation checks these events as soon as they happen."""

    def reaped(self, owner: str, *, expired: bool) -> None:
        """Handle the event that an owner is being reaped."""

    def registered(self, owner: str) -> None:
        """Handle the event that an owner was registered."""

    def blamed(self, task: Task, crash_limit: int) -> None:
        """Handle the event that a crash was counted for a task, with this crash limit."""

    def removed(self, schedule: str) -> None:
        """Handle the event that a schedule was removed."""


@dataclass(slots=True)
class Parked:
    """A worker's call that blocks at the doorbells and then takes the worker's turn. `held` has the ids of the tasks
    that the worker holds. `reply` is called with the status and the claims.
    """

    owner: str
    held: list[str]
    reply: Callable[[tuple[str, list[Task]]], None]


@dataclass(slots=True)
class Server:
    """A model of the server with one namespace. `now_us` is the time of the server's clock, which may jump."""

    clock: Callable[[], float]
    witness: Witness
    ahead: float = 0.0  # the number of seconds by which the clock is ahead, because it was moved
    lives: int = 0
    owners: dict[str, int] = field(default_factory=dict)
    inflight: dict[str, list[Task]] = field(default_factory=dict)
    lane: deque[Task] = field(default_factory=deque)
    tasks: list[Task] = field(default_factory=list)
    pulse_at: int | None = None
    grace_until: int = 0
    longest_us: int = 0  # the longest lease in use, in us
    longest_at: int = 0  # the time at which that lease was requested
    parked: list[Parked] = field(default_factory=list)
    orders: dict[str, list[bytes]] = field(default_factory=dict)
    lines: dict[str, Callable[[bytes], None]] = field(default_factory=dict)
    # The state of each schedule, by name: its text, its rank (the highest rank wins), and the time in us until which it
    # is declared.
    schedules: dict[str, tuple[bytes, int, int]] = field(default_factory=dict)
    announced: Announcements = field(default_factory=Announcements)

    @property
    def now_us(self) -> int:
        return round((self.clock() + self.ahead) * MICROSECONDS)

    # Enqueues and turns

    def enqueue(self, task: Task) -> None:
        self.tasks.append(task)
        self.lane.append(task)
        self._ring()

    def turn(self, owner: str, held: list[str], done: list[str], limit: int) -> tuple[str, list[Task]]:
        """Settle the tasks in `done`, and claim at most `limit` others. Return the status (`ok`, `again` or `lost`) and
        the claims.
        """
        for task in self._settle(owner, done):
            task.ended = "cancelled" if task.cancelled else "done"
        if owner not in self.owners:
            return "lost", []
        mine = self.inflight.setdefault(owner, [])
        unknown = [task for task in mine if task.id not in held]
        if unknown:
            return "again", unknown
        claims = [self.lane.popleft() for _ in range(min(limit, len(self.lane)))]
        mine.extend(claims)
        return "ok", claims

    def release(self, owner: str, released: list[str]) -> None:
        """Return tasks that have not been started to their queue."""
        for task in self._settle(owner, released):
            task.releases += 1
            task.is_marked_started = False  # a worker releases only tasks that it has not started
            self._give_back(task, dead=False)

    def mark_started(self, owner: str, task: Task) -> bool:
        """Set the start mark of a task before the task's only start. Return whether the worker still holds the task."""
        holds = owner in self.owners and task in self.inflight.get(owner, [])
        task.is_marked_started |= holds
        return holds

    def park(self, parked: Parked) -> None:
        """Block a worker's call until there is a task, and then take the worker's turn."""
        self.parked.append(parked)
        self._ring()

    def unpark(self, parked: Parked) -> bool:
        """End a blocking call after its timeout. Return False if the call has already received its reply."""
        if parked not in self.parked:
            return False
        self.parked.remove(parked)
        return True

    def _ring(self) -> None:
        while self.lane and self.parked:
            woken = self.parked.pop(0)
            woken.reply(self.turn(woken.owner, woken.held, [], 1))

    def _settle(self, owner: str, ids: list[str]) -> list[Task]:
        mine = self.inflight.get(owner, [])
        settled = [task for task in mine if task.id in ids]
        for task in settled:
            mine.remove(task)
        return settled

    # Cancelling

    def cancel(self, task: Task, kill_after: str) -> None:
        """Cancel a task. A waiting task ends at once. A running task is marked, and the node of its owner receives an
        order to end the task.
        """
        task.cancelled = True
        owner = next((owner for owner, held in self.inflight.items() if task in held), None)
        if owner is None:
            self.lane.remove(task)
            task.ended = "cancelled"
            return
        node = owner.split(":")[0]
        self.orders.setdefault(node, []).append(f"{kill_after} {task.id} {_READY} {owner}".encode())
        self._serve_line(node)

    def wait_for_order(self, node: str, reply: Callable[[bytes], None]) -> None:
        """Call `reply` with a node's first order as soon as there is one. The order stays in the list."""
        self.lines[node] = reply
        self._serve_line(node)

    def is_waiting(self, node: str, reply: Callable[[bytes], None]) -> bool:
        """Whether this call is still waiting for its reply."""
        return self.lines.get(node) is reply

    def take_off(self, node: str, order: object) -> None:
        """Remove an order from the list of a node, because the node's master has received it."""
        self.orders[node] = [each for each in self.orders.get(node, []) if each != order]

    def _serve_line(self, node: str) -> None:
        if self.orders.get(node) and node in self.lines:
            self.lines.pop(node)(self.orders[node][0])

    # Schedules

    def declare(self, ttl_ms: int, name: str, text: bytes, age_seconds: float) -> DeclareStatus:
        """Store a node's declaration of a schedule. If nodes declare different texts, the newest text is used as long
        as its node repeats the declaration.
        """
        until = self.now_us + ttl_ms * 1000
        rank = self.now_us - round(age_seconds * MICROSECONDS)
        if name not in self.schedules:
            self.schedules[name] = (text, rank, until)
            return DeclareStatus.NEW
        known, known_rank, known_until = self.schedules[name]
        if known == text:
            self.schedules[name] = (text, known_rank, until)
            return DeclareStatus.KEPT
        if rank <= known_rank <= self.now_us < known_until:
            return DeclareStatus.OLDER
        self.schedules[name] = (text, rank, until)
        return DeclareStatus.CHANGED

    def forget(self, name: str, patience_us: int) -> RemoveStatus:
        """Remove a schedule if its last declaration expired at least `patience_us` ago."""
        if name not in self.schedules:
            return RemoveStatus.UNKNOWN
        if self.schedules[name][2] > self.now_us - patience_us:
            return RemoveStatus.DECLARED
        del self.schedules[name]
        self.witness.removed(name)
        return RemoveStatus.REMOVED

    # Owners

    def register(self, lease_ms: int, node_slots: list[str]) -> list[str]:
        names = []
        self._note_lease(lease_ms * 1000)
        for node_slot in node_slots:
            self.lives += 1
            names.append(f"{node_slot}:{self.lives}")
            self.owners[names[-1]] = self.now_us + lease_ms * 1000
            self.witness.registered(names[-1])
        return names

    def renew(self, lease_ms: int, owners: Sequence[str]) -> tuple[tuple[str, ...], frozenset[bytes]]:
        """Renew the leases of these owners. Return the owners that are no longer registered, and the entries of
        cancelled tasks that the remaining owners hold.
        """
        expires = self.now_us + lease_ms * 1000
        self._note_lease(lease_ms * 1000)
        for owner in owners:
            if owner in self.owners:
                self.owners[owner] = expires
        held = (task for owner in owners for task in self.inflight.get(owner, []))
        lost = tuple(owner for owner in owners if owner not in self.owners)
        return lost, frozenset(task.text for task in held if task.cancelled)

    def _longest_in_use(self) -> int:
        return self.longest_us if abs(self.now_us - self.longest_at) <= 2 * self.longest_us else 0

    def _note_lease(self, lease_us: int) -> None:
        if lease_us >= self._longest_in_use():
            self.longest_us = lease_us
            self.longest_at = self.now_us

    def reap_exited(self, owner: str, blamed: Collection[str], crash_limit: int, outcomes: dict[str, str]) -> None:
        """Reap an owner whose process is known to have ended."""
        for task in self._settle(owner, list(outcomes)):
            self._go_on(task, outcomes[task.id])
        self.witness.reaped(owner, expired=False)
        for task in self._end(owner):
            if task.id in blamed:
                task.crashes += 1
            else:
                task.releases += 1
            # If several tasks were running, it is unknown which of them crashed the worker.
            is_judged = task.id in blamed and len(blamed) == 1
            if is_judged:
                self.witness.blamed(task, crash_limit)
            self._give_back(task, dead=is_judged and task.crashes >= crash_limit)

    def _go_on(self, task: Task, verb: str) -> None:
        if verb == "retry":
            task.failures += 1
            self._give_back(task, dead=False)
        else:
            task.ended = verb

    def reap_expired(self, owner: str) -> bool:
        """Reap an owner whose lease has expired. Return False if the owner has renewed its lease in the meantime, or if
        there is a grace period.
        """
        if self.owners.get(owner, self.now_us + 1) > self.now_us or self.grace_until > self.now_us:
            return False
        self.witness.reaped(owner, expired=True)
        for task in self._end(owner):
            task.losses += 1
            self._give_back(task, dead=task.losses >= LOSS_LIMIT)
        return True

    def _end(self, owner: str) -> list[Task]:
        self.owners.pop(owner, None)
        return list(reversed(self.inflight.pop(owner, [])))

    def _give_back(self, task: Task, *, dead: bool) -> None:
        if dead or task.is_marked_started or task.cancelled:
            task.ended = "cancelled" if task.cancelled else "dead"
        else:
            self.lane.appendleft(task)
            self._ring()

    def sweep(self, lease_ms: int) -> list[str]:
        """Return the owners whose lease has expired. During a grace period, return no owners. A grace period follows a
        time in which no owner could renew its lease.
        """
        now = self.now_us
        lease = lease_ms * 1000
        last = self.pulse_at
        longest = max(lease, self._longest_in_use())
        if last is None or now - last > lease / 2 or now < last:
            self.grace_until = now + longest
        self.grace_until = min(self.grace_until, now + longest)
        self.pulse_at = now
        for owner, expires in self.owners.items():
            if expires >= now + 2 * longest:
                self.owners[owner] = now + longest
        if self.grace_until > now:
            return []
        # A poller does this for each schedule whose declaration a sweep finds expired.
        for name in list(self.schedules):
            self.forget(name, longest)
        return [owner for owner, expires in self.owners.items() if expires <= now]
