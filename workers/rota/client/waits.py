"""Waits that have no end yet: what they wait for, when a client asks about them, and what follows from the answers.

No I/O, for threads and asyncio alike.
"""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from itertools import islice, takewhile
from threading import Lock
from typing import Any, Final, NamedTuple

from rota.client.answers import Answer, Answered, NotAccepted
from rota.durations import Backoff, Duration, seconds
from rota.errors import Unavailable, WaitTimeout
from rota.protocol.command import Command, Raw
from rota.protocol.groups import Room
from rota.protocol.outcome import PURGED
from rota.protocol.store import BATCH, Store
from rota.protocol.task_states import WAITING, State
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


class OpenWait:
    """A wait for the answer to a question. A subclass says how the waiting code sleeps, and how it is woken.

    `found` is the answer. If it is None, `why` says why nobody looks for it any more. `is_over`: nobody waits any more.
    """

    __slots__ = ("found", "is_over", "question", "why")

    def __init__(self, question: Question) -> None:
        self.question = question
        self.found: WaitAnswer | None = None
        self.why = ""
        self.is_over = False

    def tell(self, found: WaitAnswer | None, why: str = "") -> None:
        """End the wait, with the answer, or with None and the reason why nobody looks for it any more."""
        self.found, self.why = found, why
        self._wake()

    def outcome(self, limit: float | None, trouble: str, *, in_time: bool) -> WaitAnswer:
        """Return the answer. Raises WaitTimeout if it did not come in time, and Unavailable if nobody looks for it."""
        if not in_time:
            away = f"; the server could not be asked: {trouble}" if trouble else ""
            subject, event = self.question.subject, self.question.event
            raise WaitTimeout(f"{subject} has not {event} within {limit or 0.0:g} s{away}")
        if self.found is None:
            raise Unavailable(f"{self.why} while it waited for {self.question.subject}")
        return self.found

    def _wake(self) -> None:
        raise NotImplementedError


class Wait(OpenWait):
    """One thread's wait. The thread sleeps on a lock of its own, out of which the handler of a signal may raise: then
    the wait `is_over`, and whoever keeps it takes it away."""

    __slots__ = ("_asleep",)

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self._asleep = Lock()
        self._asleep.acquire()

    def sleep(self, seconds: float) -> bool:
        """Sleep until the wait is told its end; False when the time was over before. -1 is for as long as it takes."""
        try:
            return self._asleep.acquire(timeout=seconds)
        finally:
            self.is_over = True

    def _wake(self) -> None:
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


ASK_ALL_SECONDS: Final = 10.0
LINGER_SECONDS: Final = 3.0  # that whoever serves waits stays when nobody waits
CLOSED: Final = "the client was closed"
_FIRST_SECONDS: Final = 0.05
_MOST_SECONDS: Final = 2.0

Answers = Sequence[WaitAnswer | None]


class WaitRounds:
    """The open waits of a client, and when it asks about them.

    `key`: the list to which the server pushes what woke some. `trouble`: why it cannot be asked, "" while it can.
    `retry_at`: when to ask again after that (monotonic).
    """

    def __init__(self, store: Store) -> None:
        self._name_there = os.urandom(8).hex()
        self._store = store
        self.key = store.keys.replies(self._name_there)
        self.open = OpenWaits()
        self.trouble = ""
        self.retry_at = 0.0
        self._backoff = Backoff(_FIRST_SECONDS, _MOST_SECONDS)
        self._ask_all_at = 0.0
        self._idle_at = math.inf

    @property
    def has_more(self) -> bool:
        """Whether somebody waits, or did so lately."""
        return bool(self.open) or time.monotonic() < self._idle_at

    def hear(self, words: Sequence[str]) -> None:
        """Take what was pushed."""
        for word in words:
            how, _, task_id = word.partition(" ")
            self.open.wake(how, task_id)
        self._backoff.reset()

    def next_questions(self) -> dict[Question, str]:
        """What is to be asked now."""
        if time.monotonic() >= self._ask_all_at:
            self.open.ask_all()
            self._ask_all_at = time.monotonic() + ASK_ALL_SECONDS
        return self.open.next_questions()

    def asking(self, asked: Mapping[Question, str]) -> Command[Any]:
        """The command that asks it, and is answered by Answers."""
        of_groups = [question for question in asked if isinstance(question, GroupQuestion)]
        if of_groups:
            return _asking_one(group_command(self._store, self._name_there, of_groups[0]))
        tasks = [(each.goal, each.task_id) for each in asked if isinstance(each, WaitQuestion)]
        return self._store.wait(self._name_there, tasks)

    def answer(self, asked: Mapping[Question, str], answers: Answers) -> None:
        """Tell those whose wait has an end."""
        self.open.answer(asked, answers)
        self.trouble = ""

    def fail(self, why: str) -> None:
        """The server could not be asked: all is to be asked again, later."""
        self.trouble = why
        self._ask_all_at = 0.0
        self.retry_at = time.monotonic() + self._backoff.next_seconds()

    def seconds_to_rest(self, silent_at: float) -> float:
        """How long there is nothing to do, unless something is pushed or somebody comes to wait."""
        now = time.monotonic()
        if self.open:
            self._idle_at = math.inf
        elif self._idle_at == math.inf:
            self._idle_at = now + LINGER_SECONDS
        return max(min(self._ask_all_at, self._idle_at, silent_at), self.retry_at) - now


def group_command(store: Store, client: str, question: GroupQuestion) -> Command[Room]:
    """What asks about a group, and has this client told what comes later."""
    if question.most_left is None:
        return store.await_group_end(client, question.group)
    return store.await_room(client, question.group, question.most_left)


def _asking_one(command: Command[Room]) -> Command[Answers]:
    def parse(raw: Raw) -> Answers:
        room = command.parse(raw)
        return [room if room.has_come else None]

    return Command(command.script, command.key, command.args, parse)


def answered(answer: Answer[Answers]) -> Answers:
    """The answers, if there are any. Raises Unavailable."""
    if isinstance(answer, Answered):
        return answer.value
    raise answer.error if isinstance(answer, NotAccepted) else Unavailable(answer.why)


def has_come(question: WaitQuestion, found: TaskState) -> bool:
    """Whether what was found ends the wait: it does not if the task was pending, and has been enqueued since."""
    return found.state not in WAITING and (found.state != State.RUNNING or question.goal is Goal.START)


def question_before(found: TaskState) -> Question:
    """What a pending task waits for."""
    kind, _, name = found.follows.partition(" ")
    return GroupQuestion(name) if kind == "group" else WaitQuestion(Goal.END, name)


@contextmanager
def pending_named(question: WaitQuestion, found: TaskState, timeout: Duration | None) -> Iterator[None]:
    """Have a wait for what a pending task follows raise WaitTimeout in the name of that task."""
    try:
        yield
    except WaitTimeout as error:
        within = seconds(timeout or 0, "timeout")
        text = f"{question.subject} has not {question.event} within {within:g} s: it follows {found.follows}"
        raise WaitTimeout(text) from error


def limit_of(timeout: Duration | None) -> float | None:
    """For how many seconds to wait, None for as long as it takes. Raises TypeError or ValueError."""
    return None if timeout is None else max(0.0, seconds(timeout, "timeout"))
