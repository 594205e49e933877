"""New tasks in the form that enqueue takes, the tasks that follow each new task, and the reply to each new task."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from rota.protocol.scripts import Raw
from rota.protocol.wire import text_of

FRONT = "^"  # appended to a due time to put the task at the head of its lane


class NewTask(NamedTuple):
    """A task in the form that enqueue takes."""

    id: str
    queue: str
    body: bytes
    # "" for now, "+N" for N microseconds from now, "@N" for Unix time in microseconds. With FRONT appended the task
    # goes to the head of its lane; the last such task of a call is first in the lane.
    due: str = ""
    unique_key: str = ""  # "" for none
    hold_ms: int = 0  # how long the unique key is held, 0 for until the task has ended
    foreign: str = ""  # the task's name unless this process declares it outside of its main module; not sent

    @property
    def size(self) -> int:
        return len(self.body)

    @property
    def how(self) -> str:
        """The due time and the unique key as one argument of a script: "" for nearly every task."""
        return f"{self.due} {self.hold_ms} {self.unique_key}" if self.due or self.unique_key else ""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The result of enqueueing one item."""

    duplicate: bool = False  # whether a live task already has the id; that task is kept
    holder: str = ""  # id of the task that holds the unique key, if that makes the item a duplicate
    unserved: bool = False  # accepted, but no running master serves the queue
    unseen: bool = False  # accepted, but no fleet has ever run in this namespace


_ACCEPTED = Enqueued()  # nearly every reply
_ENQUEUED = {
    "ok": _ACCEPTED,
    "unserved": Enqueued(unserved=True),
    "unseen": Enqueued(unseen=True),
    "duplicate": Enqueued(duplicate=True),
}


def parse_enqueued(raw: Raw) -> list[Enqueued]:
    """Parse one status for each item: `ok`, `unserved`, `unseen`, `duplicate` or `held ID`."""
    return [_ACCEPTED if status == b"ok" else _parse_status(text_of(status)) for status in raw]


def _parse_status(text: str) -> Enqueued:
    status, _, holder = text.partition(" ")
    if status == "held":
        return Enqueued(duplicate=True, holder=holder)
    if status not in _ENQUEUED:
        raise ValueError(f"enqueue returned {text!r}")
    return _ENQUEUED[status]


MOST_FOLLOWING: Final = 500  # maximum number of tasks of a chain after the first
NOTHING_FOLLOWS: Final = b""


def follow_text(tasks: "Iterable[NewTask]") -> bytes:
    """Return the text for tasks that are to follow in this order. A due time of "+N" counts from the end of the
    previous task.

    Raises ValueError if a task has a unique key, because a conflict could not be reported, or if there are more tasks
    than MOST_FOLLOWING.
    """
    items = []
    for task in tasks:
        if task.unique_key:
            raise ValueError(f"a task that follows another task cannot be unique: {task.id}")
        items.append(b"%b %b %b %d\n%b" % (*_header(task), len(task.body), task.body))
    if len(items) > MOST_FOLLOWING:
        raise ValueError(f"{len(items)} tasks follow one another, but at most {MOST_FOLLOWING} may")
    return b"".join(items)


def followers_of(text: bytes) -> "Iterator[NewTask]":
    """Yield the tasks that `follow_text` wrote."""

    while text:
        header, _, rest = text.partition(b"\n")
        task_id, queue, due, size = text_of(header).split(" ")
        yield NewTask(task_id, queue, rest[: int(size)], "" if due == "-" else due)
        text = rest[int(size) :]


def _header(task: "NewTask") -> tuple[bytes, bytes, bytes]:
    return task.id.encode(), task.queue.encode(), task.due.encode() or b"-"


class NewMember(NamedTuple):
    """A member of a group, which is a task or a chain. `following` has the chain's other tasks, written by
    `follow_text`."""

    task: "NewTask"
    following: bytes = NOTHING_FOLLOWS

    @property
    def id(self) -> str:
        return self.task.id

    @property
    def size(self) -> int:
        return len(self.task.body) + len(self.following)
