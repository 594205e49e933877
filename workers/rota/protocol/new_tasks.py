"""New tasks in the form in which they are enqueued, the tasks that follow them, and the reply for each new task."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from rota.protocol.scripts import Raw
from rota.protocol.wire import text_of

FRONT = "^"  # appended to a due time; the task then goes to the head of its lane


class NewTask(NamedTuple):
    """A task in the form in which `enqueue` sends it."""

    id: str
    queue: str
    body: bytes
    # When the task is due: "" for now, "+N" for N microseconds from now, or "@N" for Unix time in microseconds. With
    # FRONT appended, the task goes to the head of its lane. If one call enqueues several tasks with FRONT, the last of
    # them is first in the lane.
    due: str = ""
    unique_key: str = ""  # "" if the task is not unique
    hold_ms: int = 0  # milliseconds for which the unique key is held; 0 to hold it until the task has ended
    # The task's name if the client has to check that a fleet declares the task; "" if this process declares it outside
    # of its main module. Not sent to Redis.
    foreign: str = ""

    @property
    def size(self) -> int:
        return len(self.body)

    @property
    def how(self) -> str:
        """The due time and the unique key as one argument of a script. It is "" for nearly every task."""
        return f"{self.due} {self.hold_ms} {self.unique_key}" if self.due or self.unique_key else ""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The result for an item that was enqueued. If all fields have their defaults, the task was accepted."""

    duplicate: bool = False  # whether a live task already has the id or the unique key; that task is kept
    holder: str = ""  # if the unique key makes the item a duplicate, id of the task that holds the key
    unserved: bool = False  # accepted, but no running master serves the queue
    unseen: bool = False  # accepted, but no fleet has ever run in this namespace


_ACCEPTED = Enqueued()  # the result of nearly every item
_ENQUEUED = {
    "ok": _ACCEPTED,
    "unserved": Enqueued(unserved=True),
    "unseen": Enqueued(unseen=True),
    "duplicate": Enqueued(duplicate=True),
}


def parse_enqueued(raw: Raw) -> list[Enqueued]:
    """Parse the reply to `enqueue`, which has one status for each item: `ok`, `unserved`, `unseen`, `duplicate` or
    `held ID`."""
    return [_ACCEPTED if status == b"ok" else _parse_status(text_of(status)) for status in raw]


def _parse_status(text: str) -> Enqueued:
    status, _, holder = text.partition(" ")
    if status == "held":
        return Enqueued(duplicate=True, holder=holder)
    if status not in _ENQUEUED:
        raise ValueError(f"enqueue returned {text!r}")
    return _ENQUEUED[status]


MOST_FOLLOWING: Final = 500  # maximum number of tasks in a chain after the first one
NOTHING_FOLLOWS: Final = b""


def follow_text(tasks: "Iterable[NewTask]") -> bytes:
    """Return one text for tasks that are to run one after another, in this order. A due time of "+N" counts from the
    end of the previous task."""
    items = []
    for task in tasks:
        if task.unique_key:
            raise ValueError(f"a task that follows another task cannot be unique: {task.id}")
        items.append(b"%b %b %b %d\n%b" % (*_header(task), len(task.body), task.body))
    if len(items) > MOST_FOLLOWING:
        raise ValueError(f"a chain of {len(items)} following tasks is too long: the limit is {MOST_FOLLOWING}")
    return b"".join(items)


def followers_of(text: bytes) -> "Iterator[NewTask]":
    """Yield the tasks in a text that `follow_text` wrote."""

    while text:
        header, _, rest = text.partition(b"\n")
        task_id, queue, due, size = text_of(header).split(" ")
        yield NewTask(task_id, queue, rest[: int(size)], "" if due == "-" else due)
        text = rest[int(size) :]


def _header(task: "NewTask") -> tuple[bytes, bytes, bytes]:
    return task.id.encode(), task.queue.encode(), task.due.encode() or b"-"


class NewMember(NamedTuple):
    """A member of a group, which is a task or a chain. `following` contains the rest of the chain, in the form that
    `follow_text` writes."""

    task: "NewTask"
    following: bytes = NOTHING_FOLLOWS

    @property
    def id(self) -> str:
        return self.task.id

    @property
    def size(self) -> int:
        return len(self.task.body) + len(self.following)
