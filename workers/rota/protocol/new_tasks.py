"""New tasks as enqueue takes them, with those that follow each of them, and what became of each."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from rota.protocol.command import Raw
from rota.protocol.wire import text_of

FRONT = "^"  # behind a due: for the head of its lane


class NewTask(NamedTuple):
    """A task as enqueue takes it.

    `due`: "" for at once, "+N" for N microseconds from now, "@N" for Unix time in microseconds; FRONT behind it for
    the head of its lane, where of one call the last stands first.
    `unique_key` "" for none; `hold_ms` 0 holds the key for the life of the task. `foreign`: the name of a task that
    is not declared in this process, or in its main module alone; not sent.
    """

    id: str
    queue: str
    body: bytes
    due: str = ""
    unique_key: str = ""
    hold_ms: int = 0
    foreign: str = ""

    @property
    def size(self) -> int:
        return len(self.body)

    @property
    def how(self) -> str:
        """When it is due and what it holds, as one argument of a script: "" for nearly every task."""
        return f"{self.due} {self.hold_ms} {self.unique_key}" if self.due or self.unique_key else ""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of one enqueued item.

    `duplicate`: the id is live, the first one stays. `holder`: the id of the task that holds the unique
    key, else "". `unserved`: accepted, though no running master serves the queue. `unseen`: accepted, though there was
    never a fleet in this namespace.
    """

    duplicate: bool = False
    holder: str = ""
    unserved: bool = False
    unseen: bool = False


_ACCEPTED = Enqueued()  # nearly every answer
_ENQUEUED = {
    "ok": _ACCEPTED,
    "unserved": Enqueued(unserved=True),
    "unseen": Enqueued(unseen=True),
    "duplicate": Enqueued(duplicate=True),
}


def parse_enqueued(raw: Raw) -> list[Enqueued]:
    """One word an item: `ok`, `unserved`, `unseen`, `duplicate` or `held ID`."""
    return [_ACCEPTED if word == b"ok" else _parse_enqueued_word(text_of(word)) for word in raw]


def _parse_enqueued_word(text: str) -> Enqueued:
    word, _, holder = text.partition(" ")
    if word == "held":
        return Enqueued(duplicate=True, holder=holder)
    if word not in _ENQUEUED:
        raise ValueError(f"enqueue answered {text!r}")
    return _ENQUEUED[word]


MOST_FOLLOWING: Final = 500  # tasks of one chain, behind the first
NOTHING_FOLLOWS: Final = b""


def follow_text(tasks: "Iterable[NewTask]") -> bytes:
    """What is to follow, in this order, as text. A due of "+N" counts from the end of the one before. Raises ValueError
    for a unique key, which nobody could be told of, and for more than MOST_FOLLOWING."""
    items = []
    for task in tasks:
        if task.unique_key:
            raise ValueError(f"what follows another task cannot be unique: {task.id}")
        items.append(b"%b %b %b %d\n%b" % (*_header(task), len(task.body), task.body))
    if len(items) > MOST_FOLLOWING:
        raise ValueError(f"{len(items)} tasks are to follow one another: at most {MOST_FOLLOWING} can")
    return b"".join(items)


def followers_of(text: bytes) -> "Iterator[NewTask]":
    """The tasks that `follow_text` wrote down."""

    while text:
        header, _, rest = text.partition(b"\n")
        task_id, queue, due, size = text_of(header).split(" ")
        yield NewTask(task_id, queue, rest[: int(size)], "" if due == "-" else due)
        text = rest[int(size) :]


def _header(task: "NewTask") -> tuple[bytes, bytes, bytes]:
    return task.id.encode(), task.queue.encode(), task.due.encode() or b"-"


class NewMember(NamedTuple):
    """A task with what follows it, by `follow_text`: a chain, or with nothing behind it one task, of a group."""

    task: "NewTask"
    following: bytes = NOTHING_FOLLOWS

    @property
    def id(self) -> str:
        return self.task.id

    @property
    def size(self) -> int:
        return len(self.task.body) + len(self.following)
