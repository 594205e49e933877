"""The memory of ends: what must be told of the last tasks that ended, in the bytes in which it is kept."""

import json
import re
from dataclasses import dataclass, field, replace

from model.items import UNKNOWN_QUEUE, Task

NO_RUN = " 0 0 0 -"
"""The account of a run that was not begun, or of which nobody told."""


@dataclass
class Memory:
    """Two generations: at least the last `keep` are known."""

    keep: int = 0
    ended: dict[str, str] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)

    def note(self, records: dict[str, str]) -> None:
        """Those that ended together."""
        if not self.keep or not records:
            return
        self.ended |= records
        if len(self.ended) >= self.keep:
            self.before, self.ended = self.ended, {}

    def forget(self, task_id: str) -> None:
        """What an earlier life of this id left."""
        self.ended.pop(task_id, None)
        self.before.pop(task_id, None)

    def keep_so_many(self, number: int) -> None:
        self.keep = number
        if not number:
            self.ended, self.before = {}, {}

    def how(self, task_id: str) -> str:
        """How it ended; "" when that is not known."""
        return self.ended.get(task_id, self.before.get(task_id, "")).partition(" ")[0]


def named_in(body: str) -> tuple[str, str]:
    """The queue and the task's name, as an item of the full form has them."""
    try:
        match json.loads(body):
            case [str(), str(queue), str(name), *_]:
                return queue if re.fullmatch(r"[\w.:-]+", queue) else UNKNOWN_QUEUE, name
    except ValueError:
        pass
    return UNKNOWN_QUEUE, "-"


def unstarted(body: str) -> str:
    """The account of a task that waited."""
    return f" 0 0 0 {named_in(body)[1]}"


def as_looked_up(task: Task, due: int | None) -> Task:
    """One that is cancelled while it waits: by its ticket if it is scheduled, else by its body, which is gone then, as
    nobody looks for it in a lane."""
    if due is not None:
        return replace(task, due=due, ready=0)
    return Task(task.id, named_in(task.body)[0], "", 0, flag="u")
