"""Waits that have no end yet: what they wait for, which of them are to be asked about, and what wakes which."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import islice, takewhile
from threading import Lock
from typing import Final, NamedTuple, Protocol

from rota.protocol.ends import PURGED
from rota.protocol.groups import Room
from rota.protocol.store import BATCH
from rota.protocol.views import TaskState

_ENDED: Final = frozenset({"done", "dead", "cancelled", "expired", PURGED})
_OF_A_GROUP: Final = "group"


class Goal(StrEnum):
    """What is waited for: that a task starts, that it ends, or its result when it has ended."""

    START = "s"
    END = "e"
    RESULT = "r"


class WaitQuestion(NamedTuple):
    """What the script `wait` is asked about one task."""

    goal: Goal
    task_id: str

    @property
    def subject(self) -> str:
        return f"task {self.task_id}"

    @property
    def event(self) -> str:
        return "started" if self.goal is Goal.START else "ended"


class GroupQuestion(NamedTuple):
    """What is asked about a group: that at most so many of its members have not ended; None: its end."""

    group: str
    most_left: int | None = None

    @property
    def subject(self) -> str:
        return f"group {self.group}"

    @property
    def event(self) -> str:
        return "ended" if self.most_left is None else f"come to {self.most_left:,} members or fewer that have not ended"


Question = WaitQuestion | GroupQuestion
WaitAnswer = TaskState | Room


class OpenWait(Protocol):
    """Who waits, as far as those are concerned who know the end. `is_over`: nobody waits any more."""

    question: Question
    is_over: bool

    def tell(self, found: WaitAnswer | None, why: str = "") -> None:
        """This was found, or, with None, nobody looks any more for this reason."""


class Wait:
    """One thread's wait. The thread sleeps on a lock of its own, out of which the handler of a signal may raise: what
    it leaves behind then `is_over`, and is taken away by whoever keeps it. `why`: why nothing is `found`."""

    __slots__ = ("_asleep", "found", "is_over", "question", "why")

    def __init__(self, question: Question) -> None:
        self.question = question
        self.found: WaitAnswer | None = None
        self.why = ""
        self.is_over = False
        self._asleep = Lock()
        self._asleep.acquire()

    def sleep(self, seconds: float) -> bool:
        """Sleep until the wait is told its end; False when the time was over before. -1 is for as long as it takes."""
        try:
            return self._asleep.acquire(timeout=seconds)
        finally:
            self.is_over = True

    def tell(self, found: WaitAnswer | None, why: str = "") -> None:
        """Wake the thread: this was found, or, with None, nobody looks any more for this reason."""
        self.found, self.why = found, why
        self._asleep.release()


class OpenWaits:
    """The open waits of a client, by what they wait for. One thread's alone.

    `_to_ask`: what is to be asked, in the order in which it came, each with the word that woke it: of a task that
    nobody remembers, this is all that is known of its end.
    """

    def __init__(self) -> None:
        self._waits: dict[Question, list[OpenWait]] = {}
        self._to_ask: dict[Question, str] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, wait: OpenWait) -> None:
        """Keep a wait; it is to be asked about."""
        self._waits.setdefault(wait.question, []).append(wait)
        self._to_ask.setdefault(wait.question, "")

    def wake(self, how: str, task_id: str) -> None:
        """A task was `started`, or has ended as the word says, or something came of a `group`: it is to be asked about.
        Whoever shares the server may have pushed any other word, which says nothing."""
        if how == _OF_A_GROUP:
            of_it = [each for each in self._waits if isinstance(each, GroupQuestion) and each.group == task_id]
            self._to_ask |= dict.fromkeys(of_it, "")
            return
        for question in [WaitQuestion(goal, task_id) for goal in Goal]:
            if question in self._waits:
                self._to_ask[question] = how if how in _ENDED else ""

    def ask_all(self) -> None:
        """Have all be asked about again, and forget those that are over."""
        for question, waits in list(self._waits.items()):
            waits[:] = [wait for wait in waits if not wait.is_over]
            if not waits:
                del self._waits[question]
        self._to_ask = {question: self._to_ask.get(question, "") for question in self._waits}

    def next_questions(self) -> dict[Question, str]:
        """What is to be asked next by one call: about one group, or about no more tasks than the script takes."""
        first = next(iter(self._to_ask), None)
        if isinstance(first, GroupQuestion):
            return {first: ""}
        of_tasks = takewhile(lambda item: isinstance(item[0], WaitQuestion), self._to_ask.items())
        return dict(islice(of_tasks, BATCH))

    def answer(self, asked: Mapping[Question, str], answers: Sequence[WaitAnswer | None]) -> None:
        """Tell those whose wait has an end. What the script had no room to answer stays to be asked."""
        for (question, how), found in zip(asked.items(), answers, strict=False):
            self._to_ask.pop(question, None)
            if how and isinstance(found, TaskState) and found.state == "unknown":
                self._tell(question, replace(found, state=how))
            elif found is not None:
                self._tell(question, found)

    def give_up(self, why: str) -> None:
        """Tell all that nobody looks any more, and why."""
        for waits in self._waits.values():
            for wait in waits:
                wait.tell(None, why)
        self._waits.clear()
        self._to_ask.clear()

    def _tell(self, question: Question, found: WaitAnswer) -> None:
        for wait in self._waits.pop(question, ()):
            wait.tell(found)
