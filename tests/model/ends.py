"""The model of the memory of ends, which records how the latest tasks ended, in the form in which Redis stores it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from model.items import UNKNOWN_QUEUE, Task

NO_RUN = " 0 0 0 -"
"""The run record of a task whose run was not started or not reported."""


_LONG = 32768
_SHORTEST = 16


@dataclass(frozen=True)
class End:
    """The end of one task. It has the task's last entry. `run_record` has the record of the last run, followed by the
    records of earlier attempts.
    """

    entry: str
    run_record: str

    @property
    def id(self) -> str:
        return self.entry.partition(" ")[0]

    @property
    def text(self) -> str:
        lines = self.run_record.replace("\n", "\r")
        return f"\n{self.entry}\n{lines}"


@dataclass(frozen=True)
class Block:
    """Tasks that ended in the same call and in the same way."""

    how: str
    at: int
    owner: str
    ends: Sequence[End]

    @property
    def text(self) -> str:
        return f"\n!{len(self.ends)} {self.how} {self.at} {self.owner}" + "".join(end.text for end in self.ends)


@dataclass
class Memory:
    """The tasks that ended, in blocks, which Redis stores in texts. `open` has the blocks of the text that is still
    growing. `sealed` has the blocks of each finished text. The key of a finished text is the number of tasks that had
    ended when it was finished. `untold` has pairs of an id and a time: the ends of tasks that had this id before this
    time must not be reported.
    """

    keep: int = 0
    open: list[Block] = field(default_factory=list)
    sealed: dict[int, list[Block]] = field(default_factory=dict)
    untold: list[tuple[str, int]] = field(default_factory=list)
    known: int = 0

    def note(self, block: Block) -> None:
        """Store a block unless it is empty. If the open text has become long, seal it, and delete sealed texts that are
        no longer needed.
        """
        if not self.keep or not block.ends:
            return
        self.open.append(block)
        self.known += len(block.ends)
        if len(text_of(self.open)) < min(_LONG, self.keep * _SHORTEST):
            return
        self.sealed[self.known], self.open = self.open, []
        while self.known - min(self.sealed) >= self.keep:
            del self.sealed[min(self.sealed)]

    def forget(self, task_id: str, now: int) -> None:
        """From now on, do not report how earlier tasks with this id ended."""
        if self.keep:
            self.untold.append((task_id, now))

    def keep_at_most(self, number: int) -> None:
        self.keep = number
        if not number:
            self.open, self.sealed, self.untold = [], {}, []

    def blocks(self) -> list[Block]:
        return [*chain.from_iterable(self.sealed.values()), *self.open]

    def ids(self) -> list[str]:
        return [end.id for block in self.blocks() for end in block.ends]

    def how(self, task_id: str) -> str:
        """Return the outcome with which a task ended, or "" if it is unknown."""
        told = [block for block in self.blocks() if any(end.id == task_id for end in block.ends)]
        untold = max((at for untold_id, at in self.untold if untold_id == task_id), default=-1)
        return told[-1].how if told and told[-1].at > untold else ""


def text_of(blocks: Sequence[Block]) -> str:
    """Return the blocks as the text that Redis stores."""
    return "".join(block.text for block in blocks)


def named_in(body: str) -> tuple[str, str]:
    """Return the queue and the task's name from a body that starts with the id, the queue and the name. Return
    placeholders if the body is in another form.
    """
    try:
        match json.loads(body):
            case [str(), str(queue), str(name), *_]:
                return queue if re.fullmatch(r"[\w.:-]+", queue) else UNKNOWN_QUEUE, name
    except ValueError:
        pass
    return UNKNOWN_QUEUE, "-"


def unstarted(body: str) -> str:
    """Return the run record of a task that was never started."""
    return f" 0 0 0 {named_in(body)[1]}"


def as_looked_up(task: Task, due: int | None) -> Task:
    """Return a waiting task with only those fields that a cancel reads. A task that is scheduled until `due` has a
    ticket, so the cancel reads its counters. For a task in a lane, the cancel reads only the body, because it does not
    search the lanes for the entry.
    """
    if due is not None:
        return replace(task, due=due, ready=0)
    return Task(task.id, named_in(task.body)[0], "", 0, flag="u")
