"""What the protocol promises, as a small model in plain Python that shares no code with the scripts."""

from dataclasses import dataclass, field

CRASH_LIMIT = 3
LOSS_LIMIT = 5


@dataclass
class ModelTask:
    """One live task."""

    id: str
    queue: str
    kind: str = "i"
    failures: int = 0
    crashes: int = 0
    losses: int = 0
    cancelled: bool = False
    unique_key: str = ""

    @property
    def lane(self) -> str:
        return "ready" if self.kind == "i" else "delayed"

    @property
    def suspicious(self) -> bool:
        return self.crashes + self.losses > 0


@dataclass
class Model:
    """Places of tasks; every live id is in exactly one of lanes, scheduled, inflight, dead."""

    tiers: tuple[tuple[str, ...], ...]
    tasks: dict[str, ModelTask] = field(default_factory=dict)
    lanes: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    scheduled: dict[str, int] = field(default_factory=dict)
    inflight: dict[str, list[str]] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    holders: dict[str, str] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    accepted: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    _order: int = 0

    @property
    def queues(self) -> list[str]:
        return [queue for tier in self.tiers for queue in tier]

    def lane(self, queue: str, lane: str) -> list[str]:
        return self.lanes.setdefault((queue, lane), [])

    # Producing

    def enqueue(self, task: ModelTask, *, scheduled: bool) -> str:
        """Accept or refuse; the word that enqueue should answer."""
        if task.id in self.tasks:
            return "duplicate"
        if task.unique_key and task.unique_key in self.holders:
            return f"held {self.holders[task.unique_key]}"
        self.accepted += 1
        self.tasks[task.id] = task
        if task.unique_key:
            self.holders[task.unique_key] = task.id
        if scheduled:
            task.kind = "d"
            self.schedule(task.id)
        else:
            self.lane(task.queue, "ready").append(task.id)
        return "ok"

    def schedule(self, task_id: str) -> None:
        self._order += 1
        self.scheduled[task_id] = self._order

    def promote(self, due: list[str]) -> None:
        """Move these, in their order."""
        for task_id in due:
            del self.scheduled[task_id]
            self.lane(self.tasks[task_id].queue, "delayed").append(task_id)

    # Working

    def take(self, queue: str, limit: int, *, holding: bool) -> tuple[list[str], list[str]]:
        """What a claim of this queue takes and drops: delayed lane first, suspicious entries alone, which for an
        owner that is `holding` others already means not at all."""
        taken: list[str] = []
        dropped: list[str] = []
        for lane in (self.lane(queue, "delayed"), self.lane(queue, "ready")):
            while lane and len(taken) < limit:
                task = self.tasks[lane[0]]
                if task.suspicious and not task.cancelled and (taken or holding):
                    return taken, dropped
                lane.pop(0)
                if task.cancelled:
                    dropped.append(task.id)
                    self.end(task.id, "cancelled")
                    continue
                taken.append(task.id)
                if task.suspicious:
                    return taken, dropped
        return taken, dropped

    def may_be_served(self, queue: str, *, holding: bool) -> bool:
        """Whether a claim that came to this queue would take something."""
        entries = self.lane(queue, "delayed") + self.lane(queue, "ready")
        if not entries or queue in self.paused:
            return False
        return not (holding and self.tasks[entries[0]].suspicious)

    def holds_suspicious(self, owner: str) -> bool:
        return any(self.tasks[task_id].suspicious for task_id in self.inflight[owner])

    def settle(self, owner: str, task_id: str, verb: str) -> bool:
        """Settle one; False when the owner does not hold it."""
        if task_id not in self.inflight.get(owner, []):
            return False
        self.inflight[owner].remove(task_id)
        task = self.tasks[task_id]
        if verb in {"done", "cancelled", "expired"}:
            self.end(task_id, verb)
        elif task.cancelled:
            self.end(task_id, "cancelled")
        elif verb == "dead":
            self.bury(task_id)
            task.failures += 1
        elif verb == "retry":
            task.failures += 1
            task.kind = "r"
            self.schedule(task_id)
        else:
            self.give_back(task_id)
        return True

    def retire(self, owner: str, reason: str, ran: list[str]) -> None:
        """Give back what the owner holds, with the blame where it belongs."""
        for task_id in reversed(self.inflight.pop(owner, [])):
            task = self.tasks[task_id]
            if reason == "expired":
                task.losses += 1
            elif task_id in ran:
                task.crashes += 1
            over = task.losses >= LOSS_LIMIT if reason == "expired" else task_id in ran and task.crashes >= CRASH_LIMIT
            if task.cancelled:
                self.end(task_id, "cancelled")
            elif over:
                self.bury(task_id)
            else:
                self.give_back(task_id)

    def recall(self, owner: str, running: str) -> int:
        """Give back what the owner holds behind the one that runs; nothing when it holds that one no more."""
        held = self.inflight.get(owner, [])
        if running not in held:
            return 0
        at = held.index(running) + 1
        unstarted, self.inflight[owner] = held[at:], held[:at]
        for task_id in reversed(unstarted):
            if self.tasks[task_id].cancelled:
                self.end(task_id, "cancelled")
            else:
                self.give_back(task_id)
        return len(unstarted)

    def give_back(self, task_id: str) -> None:
        task = self.tasks[task_id]
        self.lane(task.queue, task.lane).insert(0, task_id)

    def bury(self, task_id: str) -> None:
        self.free_key(task_id)
        self.dead.add(task_id)

    def end(self, task_id: str, how: str) -> None:
        self.free_key(task_id)
        del self.tasks[task_id]
        self.ended[how] = self.ended.get(how, 0) + 1

    def free_key(self, task_id: str) -> None:
        key = self.tasks[task_id].unique_key
        if self.holders.get(key) == task_id:
            del self.holders[key]
        self.tasks[task_id].unique_key = ""

    # For people

    def cancel(self, task_id: str) -> str:
        """The word that cancel should answer."""
        if task_id not in self.tasks:
            return "unknown"
        if task_id in self.dead:
            return "dead"
        if task_id in self.scheduled:
            del self.scheduled[task_id]
            self.end(task_id, "cancelled")
            return "cancelled"
        self.tasks[task_id].cancelled = True
        if any(task_id in held for held in self.inflight.values()):
            return "running"
        self.free_key(task_id)
        return "cancelled"

    def purge(self, queue: str) -> int:
        ids = self.lane(queue, "delayed") + self.lane(queue, "ready")
        for task_id in ids:
            self.end(task_id, "purged")
        self.lanes[queue, "delayed"], self.lanes[queue, "ready"] = [], []
        return len(ids)

    def revive(self, task_id: str) -> None:
        self.dead.remove(task_id)
        task = self.tasks[task_id]
        task.kind, task.failures, task.crashes, task.losses = "i", 0, 0, 0
        self.lane(task.queue, "ready").append(task_id)
