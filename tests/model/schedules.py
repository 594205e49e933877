"""The model of schedules: their records, and the occurrences that pollers enqueue in advance."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from model.ends import unstarted
from model.items import Serving, Task
from model.steering import Steering

SECOND_US = 1_000_000
Occurrence = tuple[str, int, str]
"""An id, a due time and a body."""
Read = tuple[str, str]
"""The name of a schedule, and its record as a poller has read it."""


@dataclass
class Known:
    """The record of a schedule. The fields are described in `rota/lua/shared/schedules.lua`."""

    text: str
    passed: int
    last: int = 0
    following: str = "0"
    paused: int = 0
    rank: int = 0
    ahead: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, record: str) -> "Known":
        state, _, text = record.partition("\n")
        passed, last, following, paused, rank, ahead = state.split(" ")
        times = [int(at) for at in ahead.split(",") if at != "-"]
        return cls(text, int(passed), int(last), following, int(paused), int(rank), times)

    @property
    def record(self) -> str:
        ahead = ",".join(map(str, self.ahead)) or "-"
        return f"{self.passed} {self.last} {self.following} {self.paused} {self.rank} {ahead}\n{self.text}"

    @property
    def look_at(self) -> float:
        return float("inf") if self.paused or self.following == "-" else float(self.following)

    def restart(self, now: int) -> None:
        if self.last > now + 86_400 * SECOND_US:
            self.last = 0
        self.passed, self.following = max(now, self.last), "0"


class Schedules(Steering):
    """The calls that clients, nodes and pollers make for schedules. `alive` has the last occurrence of each schedule
    whose runs must not overlap. `went_on` counts how often each occurrence was enqueued to run.
    """

    def __init__(self, lease_us: int, run_record: str, servings: Iterable[Serving] = ()) -> None:
        super().__init__(lease_us, run_record, servings)
        self.schedules: dict[str, Known] = {}
        self.declared: dict[str, int] = {}
        self.alive: dict[str, str] = {}
        self.went_on: Counter[str] = Counter()

    def put_schedule(self, now: int, name: str, text: str) -> str:
        self.places.at(now)
        known = self.schedules.get(name)
        if known and known.rank:
            return "declared"
        if known and known.text == text:
            return "same"
        self._replace_text(name, known or Known(text, now), text, now)
        return "changed" if known else "new"

    def declare(self, now: int, name: str, text: str, age: int, ttl: int) -> str:
        self.places.at(now)
        known, rank = self.schedules.get(name), now - age
        status = self._declare(known, text, rank, self.declared.get(name, 0), now)
        if status in {"new", "changed"}:
            self._replace_text(name, known or Known(text, now), text, now)
            self.schedules[name].rank = rank
        if status in {"new", "changed", "kept"}:
            self.declared[name] = now + ttl
        return status

    def _declare(self, known: Known | None, text: str, rank: int, until: int, now: int) -> str:
        if not known:
            return "new"
        if not known.rank:
            return "client"
        if known.text == text:
            return "kept"
        return "older" if rank <= known.rank <= now < until else "changed"

    def _replace_text(self, name: str, known: Known, text: str, now: int) -> None:
        known.text = text
        self._withdraw(name, known, now)
        known.restart(now)
        self.schedules[name] = known

    def pause_schedule(self, now: int, name: str) -> str:
        self.places.at(now)
        known = self.schedules.get(name)
        if not known or known.paused:
            return "same" if known else "unknown"
        self._withdraw(name, known, 0)
        known.paused = now
        return "paused"

    def resume_schedule(self, now: int, name: str) -> str:
        known = self.schedules.get(name)
        if not known or not known.paused:
            return "same" if known else "unknown"
        known.paused = 0
        known.restart(now)
        return "resumed"

    def remove_schedule(self, now: int, name: str, patience: int | None) -> str:
        self.places.at(now)
        known = self.schedules.get(name)
        if not known:
            self.declared.pop(name, None)
            return "unknown"
        is_over = patience is not None and self.declared.get(name, now) + patience <= now
        if known.rank and not is_over:
            return "declared"
        self._withdraw(name, known, 0)
        del self.schedules[name]
        self.declared.pop(name, None)
        self.alive.pop(name, None)
        for task_id in [one for one in self.went_on if one.startswith(f"{name}:")]:
            del self.went_on[task_id]  # if the schedule is added again later, its occurrences count as new
        return "removed"

    def _withdraw(self, name: str, known: Known, after: int) -> None:
        left = []
        for at in known.ahead:
            task_id = f"{name}:{at // SECOND_US}"
            due, item = self.places.scheduled.get(task_id, (0, None))
            if at > after and isinstance(item, Task) and item.kind == "p":
                del self.places.scheduled[task_id]
                self._leave_out(replace(item, due=due, ready=0))
            elif item:
                left.append(at)
            else:
                known.last = max(known.last, at)
        known.ahead = left

    def _leave_out(self, task: Task) -> None:
        self.places.counts[f"delayed:{task.queue}"] -= 1
        self.places.end_alone(task, "cancelled", "-", unstarted(task.body))

    # Pollers

    def upcoming(self, now: int, ahead: int) -> list[tuple[str, str]]:
        found = sorted((known.look_at, name) for name, known in self.schedules.items())
        return [(name, self.schedules[name].record) for at, name in found if at <= now + ahead]

    def advance(
        self, now: int, read: Read, becomes: str, queue: str, new: Sequence[Occurrence], *, may_overlap: bool
    ) -> bool:
        self.places.at(now)
        name, kept = read
        if name not in self.schedules or self.schedules[name].record != kept:
            return False
        self._note_overlap(name, may_overlap=may_overlap)
        for task_id, due, body in new:
            self._occur(task_id, queue, due, body)
        self.schedules[name] = Known.read(becomes)
        return True

    def run_schedule(self, now: int, read: Read, queue: str, task_id: str, body: str, *, may_overlap: bool) -> str:
        self.places.at(now)
        if task_id in self.places.tasks or self.places.memory.how(task_id):
            return "ok"
        name, kept = read
        if name not in self.schedules or self.schedules[name].record != kept:
            return "changed"
        self._note_overlap(name, may_overlap=may_overlap)
        other = self._overlapped_by(name, task_id)
        if other:
            return f"overlaps {other}"
        self._occur(task_id, queue, now, body)
        return "ok"

    def _note_overlap(self, name: str, *, may_overlap: bool) -> None:
        if may_overlap:
            self.alive.pop(name, None)
        else:
            self.alive.setdefault(name, "")

    def _occur(self, task_id: str, queue: str, due: int, body: str) -> None:
        if task_id not in self.places.tasks and task_id not in self.places.former:
            task = self.places.adopt_occurrence(task_id, queue, body)
            self.places.schedule(task, due)
            self.places.news.add("scheduled", task, due_us=due)

    def _overlapped_by(self, name: str, task_id: str) -> str:
        known = self.alive.get(name)
        if known is None or known == task_id:
            return ""
        if self._lives(known):
            return known
        self.alive[name] = task_id
        return ""

    def _lives(self, task_id: str) -> bool:
        task = self.places.tasks.get(task_id)
        if not task or task_id in self.places.dead:
            return False
        return not task.cancelled or self.places.holder_of(task_id, self.leases.expires) is not None

    def is_left_out(self, task: Task, due: int) -> bool:
        """Whether a due occurrence must not run, because an earlier occurrence of its schedule is still live and the
        two runs must not overlap. If so, end the task of the due occurrence.
        """
        name = task.id.rpartition(":")[0]
        if task.kind != "p":
            return False
        if self._overlapped_by(name, task.id):
            self._leave_out(replace(task, due=due, ready=self.places.now))
            return True
        self.went_on[task.id] += 1
        return False
