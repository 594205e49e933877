"""The items in lanes: tasks, and items of other programs that have not been accepted as tasks yet."""

from dataclasses import dataclass

UNKNOWN_QUEUE = "unknown"
"""The queue of items in the delayed set that name no valid queue and therefore become dead."""


def marked_text(text: str) -> str:
    """Return an entry with the start mark. The mark is the letter `b` in the entry's flag, in front of the capital
    letter for the last crash.
    """
    head, _, flag = text.rpartition(" ")
    kept, mark = (flag[:-1], flag[-1]) if flag[-1].isupper() else (flag, "")
    return text if "b" in flag else f"{head} {kept.replace('-', '')}b{mark}"


@dataclass
class Task:
    """One live task, with the counters of its entry. `starts` is the number of its claims. `order` is the position of
    the task among all accepted tasks. `incarnation` is the number of cancelled earlier tasks with the same id, each of
    which is a tombstone. `is_front` is set if the task was put at the head of its lane, or will be put there when it is
    due.
    """

    id: str
    queue: str
    body: str
    order: int
    kind: str = "i"
    due: int = 0
    ready: int = 0
    failures: int = 0
    crashes: int = 0
    losses: int = 0
    releases: int = 0
    flag: str = "-"
    cancelled: bool = False
    starts: int = 0
    incarnation: int = 0
    is_tombstone: bool = False
    is_front: bool = False

    @property
    def text(self) -> str:
        """The entry of the task."""
        counters = f"{self.failures} {self.crashes} {self.losses} {self.releases}"
        return f"{self.id} {self.queue} {self.kind} {self.due} {self.ready} {counters} {self.flag}"

    @property
    def ticket(self) -> str:
        """The text that Redis stores for the task while it is delayed or dead."""
        counters = f"{self.failures} {self.crashes} {self.losses} {self.releases}"
        return f"{self.queue} {self.kind} {counters} {self.flag}"

    @property
    def stored_body(self) -> str:
        return "" if self.cancelled or self.is_tombstone else self.body

    @property
    def lane(self) -> str:
        return "ready" if self.kind == "i" else "delayed"

    @property
    def is_marked_started(self) -> bool:
        """Whether the task has a start mark. A task with a start mark may be started at most once, and has no outcome
        yet.
        """
        return "b" in self.flag

    @property
    def suspicious(self) -> bool:
        """Whether the task must run alone, because it has crashed or was lost before."""
        return self.crashes + self.losses > 0


@dataclass(frozen=True)
class LegacyItem:
    """An item that was pushed by a program in another language. `id` and `queue` are read from the text of the item.
    Each is "" if the text does not have it.
    """

    text: str
    id: str = ""
    queue: str = ""


@dataclass(frozen=True)
class New:
    """A task that is about to be enqueued. `due` is the argument of the script: for example `@` followed by a time, `+`
    followed by a delay, or "". If `hold_ms` is 0, the task holds its unique key until it ends.
    """

    id: str
    queue: str
    body: str
    due: str = ""
    unique_key: str = ""
    hold_ms: int = 0

    def due_at(self, now: int) -> int:
        due = self.due.removesuffix("^")
        return int(due[1:]) + (now if due[0] == "+" else 0) if due else now


@dataclass(frozen=True)
class Share:
    """A queue or a pattern that a pool serves, with its weight and its limits. `pattern` is the pattern with which the
    queue was found, or "".
    """

    queue: str
    weight: int = 1
    cap: int = 0
    interval_us: int = 0
    burst: int = 1
    condition: str = ""
    pattern: str = ""

    @property
    def slack_us(self) -> int:
        return slack_us(self.interval_us, self.burst)


def slack_us(interval_us: int, burst: int) -> int:
    """Return by how many microseconds a task may start before the time at which it would start if all starts under this
    rate were evenly spaced.
    """
    return max((burst - 1) * interval_us, min(50_000, interval_us // 2))


Serving = tuple[tuple[Share, ...], ...]
"""Tiers, highest first."""


def shares_of(serving: Serving) -> dict[str, Share]:
    return {share.queue: share for tier in serving for share in tier}
