"""The place of each task, and all moves between places. The module `model.model` decides when a task moves."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from model.ends import Block, End, Memory, named_in
from model.groups import Dependents
from model.items import UNKNOWN_QUEUE, LegacyItem, New, Task, marked_text
from model.news import News, reason_in
from model.turns import Turns

Item = Task | LegacyItem
FAILURE = "E"
"""The mark of a task that has attempt records but no crash and no loss."""
AT_MOST_ONCE = '{"reason":"at_most_once"}'
UNPLACED = '{"reason":"unplaced"}'
MOST_RECORDS = 10


@dataclass
class Places:
    """The tasks of the fleet, and the lists and sets that hold them. Each live task is in exactly one of `lanes`,
    `scheduled`, `inflight` and `dead`. A legacy item is in `lanes` or `scheduled`.
    """

    tasks: dict[str, Task] = field(default_factory=dict)
    lanes: defaultdict[tuple[str, str], list[Item]] = field(default_factory=lambda: defaultdict(list))
    scheduled: dict[str, tuple[int, Item]] = field(default_factory=dict)
    inflight: dict[str, list[Task]] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    holders: dict[str, tuple[str, int]] = field(default_factory=dict)
    marked: set[str] = field(default_factory=set)
    former: dict[str, tuple[int, int]] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    attempt_records: dict[str, str] = field(default_factory=dict)
    accepted: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    turns: list[Turns] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    idle: dict[str, int] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    news: News = field(default_factory=News)
    dependents: Dependents = field(default_factory=Dependents)
    now: int = 0
    _order: int = 0
    _adopted: int = 0

    def at(self, now: int) -> None:
        """Begin a script at this time. All changes until the next call of this method belong to the script."""
        self.now, self._adopted = now, 0

    def mark(self, queue: str) -> None:
        """Mark a queue because it has entries to claim. Claims skip queues without a mark."""
        self.marked.add(queue)
        self.look_at(queue)

    def look_at(self, queue: str) -> None:
        """Make claims check a queue that is served by a pattern, by marking the queue in each tier with such a pattern.
        The queue then no longer counts as idle.
        """
        if sum(turns.mark(queue) for turns in self.turns):
            self.idle.pop(queue, None)

    def look_if_any(self, queue: str) -> None:
        """Call `look_at` if the queue has entries. This method is for the calls that return tasks to queues without
        claiming any.
        """
        if self.entries(queue):
            self.look_at(queue)

    def entries(self, queue: str) -> list[Item]:
        return self.lanes[queue, "delayed"] + self.lanes[queue, "ready"]

    def holder_of(self, task_id: str, owners: dict[str, int]) -> str | None:
        """Return the registered owner that holds a task, or None if no owner holds it."""
        return next((owner for owner in owners if self._holds(owner, task_id)), None)

    def _holds(self, owner: str, task_id: str) -> bool:
        return any(task.id == task_id for task in self.inflight.get(owner, []))

    # Coming

    def accept(self, new: New) -> None:
        """Accept a task that a client enqueues. If the id of the task belongs to a cancelled task in a lane, the entry
        of the cancelled task becomes a tombstone.
        """
        incarnation, tombstones = self.former.get(new.id, (0, 0))
        waits_cancelled = self.tasks.get(new.id)
        if waits_cancelled or tombstones:
            incarnation, tombstones = incarnation + 1, tombstones + bool(waits_cancelled)
            self.former[new.id] = (incarnation, tombstones)
        if waits_cancelled:
            self._leave_tombstone(waits_cancelled)
        task = self._accept(new.id, new.queue, new.body)
        self.known.add(task.queue)
        task.incarnation = incarnation if new.id in self.former else 0
        task.is_front = new.due.endswith("^")
        task.flag = f"{'u' if new.unique_key else ''}{task.incarnation or ''}" or "-"
        if new.unique_key:
            self.keys[task.id] = new.unique_key
            self.holders[new.unique_key] = (task.id, self.now + new.hold_ms * 1000 if new.hold_ms else 0)
        if new.due_at(self.now) > self.now:
            task.kind = "d"
            self.schedule(task, new.due_at(self.now))
            self.news.add("scheduled", task, due_us=new.due_at(self.now))
            return
        task.due = task.ready = self.now
        was_marked = task.queue in self.marked
        self._line_up(task, "ready")
        if not was_marked:  # a queue that was already marked has a place in the rotation, or is shut
            self.look_at(task.queue)
        self.news.add("enqueued", task)

    def _line_up(self, task: Task, name: str) -> None:
        """Add a task to the tail of a lane, or to the head if the task is enqueued at the front."""
        lane = self.lanes[task.queue, name]
        lane.insert(0 if task.is_front else len(lane), task)
        self.marked.add(task.queue)

    def _leave_tombstone(self, task: Task) -> None:
        task.is_tombstone = True
        self.attempt_records.pop(task.id, None)
        self.ended["cancelled"] += 1

    def remove_tombstone(self, task: Task) -> None:
        """Remove a tombstone. When the last tombstone of an id is removed, the record of its incarnations is removed
        too, unless a task with this id is live.
        """
        incarnation, tombstones = self.former[task.id]
        if tombstones == 1 and task.id not in self.tasks:
            del self.former[task.id]
        else:
            self.former[task.id] = (incarnation, tombstones - 1)

    def adopt(self, bare: LegacyItem, queue: str, kind: str, due: int) -> Task:
        """Make a task from a legacy item. The caller puts the task into a lane or the delayed set. The task gets a new
        id if the item has no id or if the id is already in use.
        """
        task_id = bare.id
        while not task_id or task_id in self.tasks or task_id in self.former:
            self._adopted += 1
            task_id = f"adopted-{self.now}-{self._adopted}"
        task = self._accept(task_id, queue, bare.text or " ")
        task.kind, task.due, task.ready = kind, due, self.now
        if due > self.now:
            self.news.add("scheduled", task, due_us=due)
        else:
            self.news.add("enqueued", task)
        return task

    def adopt_occurrence(self, task_id: str, queue: str, body: str) -> Task:
        """Make a task for an occurrence of a schedule. The caller puts the task into the delayed set or a lane."""
        task = self._accept(task_id, queue, body)
        self.known.add(queue)
        task.kind = "p"
        return task

    def _accept(self, task_id: str, queue: str, body: str) -> Task:
        self._order += 1
        self.accepted[queue] += 1
        self.tasks[task_id] = Task(task_id, queue, body, self._order)
        return self.tasks[task_id]

    # Going on

    def schedule(self, task: Task, due: int) -> None:
        self.scheduled[task.id] = (due, task)
        self.counts[f"delayed:{task.queue}"] += 1

    def ready(self, task: Task, due: int) -> None:
        """Add a task to the delayed lane, because it is due or because its rate now permits a start. Waiting for a rate
        does not change the due time.
        """
        task.due, task.ready = min(task.due, due) if task.kind == "t" else due, self.now
        self._line_up(task, "delayed")
        self.known.add(task.queue)
        self.look_at(task.queue)
        task.is_front = False

    def hold(self, owner: str, task: Task) -> None:
        task.starts += 1
        # `is_front` matters only until the first claim, because any task that is returned goes to the head of its lane.
        task.is_front = False
        self.inflight.setdefault(owner, []).append(task)
        self.counts[f"running:{task.queue}"] += 1

    def mark_started(self, owner: str, text: str) -> str:
        """Set the start mark of an entry. Return the new text of the entry, or "" if the owner does not hold the
        entry.
        """
        marked = marked_text(text)
        task = next((held for held in self.inflight.get(owner, []) if held.text in {text, marked}), None)
        if not task:
            return ""
        task.flag = marked.rpartition(" ")[2]
        return marked

    def let_go(self, owner: str, text: str) -> Task | None:
        """Remove this entry from the owner's in-flight list. Return its task, or None if the owner does not hold the
        entry.
        """
        task = next((held for held in self.inflight.get(owner, []) if held.text == text), None)
        if task:
            self.inflight[owner].remove(task)
            self.counts[f"running:{task.queue}"] -= 1
        return task

    def keep_attempt_record(self, task: Task, mark: str, record: str) -> None:
        """Store an attempt record of a live task, and keep only the last ten. The task's flag is set to the mark of the
        last crash or loss, or to `FAILURE` if the task has neither crashed nor been lost.
        """
        bare = "".join(letter for letter in task.flag if letter.isdigit() or letter == "u")
        if mark != FAILURE or not any(map(str.isupper, task.flag)):
            task.flag = bare + mark
        before = self.attempt_records[task.id].split("\n") if task.id in self.attempt_records else []
        self.attempt_records[task.id] = "\n".join([*before, record][-MOST_RECORDS:])

    def give_back(self, task: Task) -> bool:
        """Put a task back at the head of its lane and return True. If the task has a start mark, make it dead instead
        and return False. In either case, the caller must then call `look_at` or `look_if_any` for the queue.
        """
        if task.is_marked_started:
            self.bury(task, AT_MOST_ONCE)
            return False
        self.lanes[task.queue, task.lane].insert(0, task)
        self.marked.add(task.queue)
        return True

    def revive(self, task: Task) -> None:
        del self.dead[task.id]
        self.counts[f"dead:{task.queue}"] -= 1
        task.kind, task.due, task.ready = "i", self.now, self.now
        task.failures = task.crashes = task.losses = 0
        task.releases += 1
        task.starts = task.releases
        self.lanes[task.queue, "ready"].append(task)
        self.mark(task.queue)
        self.news.add("revived", task)

    def restore(self, task: Task) -> Task:
        """Put a task whose entry is lost back at the tail of its lane, as a new incarnation."""
        incarnation, tombstones = self.former.get(task.id, (0, 0))
        self.former[task.id] = (incarnation + 1, tombstones)
        self._order += 1
        flag = f"{'u' if task.id in self.keys else ''}{incarnation + 1}{'X' if task.id in self.attempt_records else ''}"
        queue, _ = named_in(task.body)
        restored = Task(
            task.id, queue, task.body, self._order, due=self.now, ready=self.now, flag=flag, incarnation=incarnation + 1
        )
        self.tasks[task.id] = restored
        self.known.add(queue)
        if queue != UNKNOWN_QUEUE:
            self.lanes[queue, "ready"].append(restored)
            self.mark(queue)
            self.news.add("restored", restored)
        else:
            self.bury(restored, UNPLACED)
        return restored

    # Ending

    def bury(self, task: Task, record: str, owner: str = "") -> None:
        self.free_key(task)
        task.flag = str(task.incarnation or "-")
        self.attempt_records.pop(task.id, None)
        self.results.pop(task.id, None)
        self.memory.forget(task.id, self.now)
        self.dead[task.id] = self.now
        self.counts[f"dead:{task.queue}"] += 1
        self.news.add("dead", task, owner, reason=reason_in(record))
        self.dependents.ended(self, "dead", [task.id])

    def forget(self, task_id: str) -> None:
        self.counts[f"dead:{self.tasks[task_id].queue}"] -= 1
        del self.dead[task_id]
        self.news.add("purged", self.tasks[task_id])
        self.end(self.tasks[task_id], "purged")

    def end(self, task: Task, how: str) -> str:
        """Remove a task that ended with the outcome `how`. Return its attempt records as the text that follows its run
        record.
        """
        del self.tasks[task.id]
        records = self.attempt_records.pop(task.id, None)
        self.free_key(task)
        if task.incarnation and not self.former[task.id][1]:
            del self.former[task.id]
        self.ended[how] += 1
        return "" if records is None else f"\n{records}"

    def end_alone(self, task: Task, how: str, owner: str, run_record: str) -> None:
        """End one task, and store its end as a block of its own in the memory of ends."""
        self.news.add_end(how, task, owner, run_record)
        self.results.pop(task.id, None)
        past = self.end(task, how)
        self.dependents.ended(self, how, [task.id], [task.id])
        self.memory.note(Block(how, self.now, owner, [End(task.text, run_record + past)]))

    def free_key(self, task: Task) -> None:
        key = self.keys.pop(task.id, "")
        if key and self.holders.get(key, ("", 0))[0] == task.id:
            del self.holders[key]

    # Recounting

    def recount_running(self, owners: dict[str, int]) -> None:
        """Count the tasks that registered owners currently hold, and store these numbers."""
        held = [task for owner in owners for task in self.inflight.get(owner, [])]
        self._replace("running", Counter(task.queue for task in held))

    def recount(self, owners: dict[str, int]) -> None:
        self.recount_running(owners)
        self._replace("dead", Counter(self.tasks[task_id].queue for task_id in self.dead))
        waiting = [item for _, item in self.scheduled.values() if isinstance(item, Task)]
        self._replace("delayed", Counter(task.queue for task in waiting))

    def _replace(self, place: str, numbers: Counter[str]) -> None:
        for field_name in [name for name in self.counts if name.startswith(f"{place}:")]:
            del self.counts[field_name]
        for queue, number in numbers.items():
            self.counts[f"{place}:{queue}"] = number
