"""The open waits of a client: what they wait for, when the client asks the server about them, and how they end.

No I/O: threads and asyncio share this module.
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
    """The event of a wait: the task starts, it ends, or it ends and its result is needed."""

    START = "s"
    END = "e"
    RESULT = "r"


class WaitQuestion(NamedTuple):
    """A question to the script `wait` about one task."""

    goal: Goal
    task_id: str

    @property
    def subject(self) -> str:
        return f"task {self.task_id}"

    @property
    def event(self) -> str:
        return "started" if self.goal is Goal.START else "ended"


class GroupQuestion(NamedTuple):
    """A question about a group: whether at most `most_left` of its members have not ended.

    If `most_left` is None, whether the group has ended.
    """

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
    """A wait for the answer to a question. A subclass defines how the caller sleeps, and how it is woken."""

    __slots__ = ("found", "is_over", "question", "why")

    def __init__(self, question: Question) -> None:
        self.question = question
        self.found: WaitAnswer | None = None
        self.why = ""  # Why the wait ended without an answer, if `found` is None.
        self.is_over = False  # Whether the caller no longer waits.

    def tell(self, found: WaitAnswer | None, why: str = "") -> None:
        """End the wait, with the answer, or with None and the reason why the client gave up."""
        self.found, self.why = found, why
        self._wake()

    def outcome(self, limit: float | None, trouble: str, *, in_time: bool) -> WaitAnswer:
        """Return the answer. Raises WaitTimeout if it did not come in time, and Unavailable if the client gave up."""
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
    """The wait of one thread, which sleeps on a lock of its own.

    A signal handler may raise out of the sleep. Then the wait `is_over`, and the waiting thread drops it later.
    """

    __slots__ = ("_asleep",)

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self._asleep = Lock()
        self._asleep.acquire()

    def sleep(self, seconds: float) -> bool:
        """Sleep until the wait has ended. Return False if the time expired first. A time of -1 has no limit."""
        try:
            return self._asleep.acquire(timeout=seconds)
        finally:
            self.is_over = True

    def _wake(self) -> None:
        self._asleep.release()


class OpenWaits:
    """The open waits of a client, by their questions. Only one thread may use it."""

    def __init__(self) -> None:
        self._waits: dict[Question, list[OpenWait]] = {}
        # The questions to ask, oldest first, each with the state that the server pushed, or "". If the server no longer
        # remembers the task, this state is all that is known of its end.
        self._to_ask: dict[Question, str] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, wait: OpenWait) -> None:
        """Add a wait, whose question will be asked."""
        self._waits.setdefault(wait.question, []).append(wait)
        self._to_ask.setdefault(wait.question, "")

    def wake(self, how: str, task_id: str) -> None:
        """Schedule the questions about a task or a group that has changed.

        `how` is `started`, the state in which the task ended, or `group`. Other programs that use the server may have
        pushed other texts, which are ignored.
        """
        if how == _OF_A_GROUP:
            of_it = [each for each in self._waits if isinstance(each, GroupQuestion) and each.group == task_id]
            self._to_ask |= dict.fromkeys(of_it, "")
            return
        for question in [WaitQuestion(goal, task_id) for goal in Goal]:
            if question in self._waits:
                self._to_ask[question] = how if how in _ENDED else ""

    def ask_all(self) -> None:
        """Schedule all questions again, and drop the waits that are over."""
        for question, waits in list(self._waits.items()):
            waits[:] = [wait for wait in waits if not wait.is_over]
            if not waits:
                del self._waits[question]
        self._to_ask = {question: self._to_ask.get(question, "") for question in self._waits}

    def next_questions(self) -> dict[Question, str]:
        """Return the questions for the next call: one about a group, or as many about tasks as the script takes."""
        first = next(iter(self._to_ask), None)
        if isinstance(first, GroupQuestion):
            return {first: ""}
        of_tasks = takewhile(lambda item: isinstance(item[0], WaitQuestion), self._to_ask.items())
        return dict(islice(of_tasks, BATCH))

    def answer(self, asked: Mapping[Question, str], answers: Sequence[WaitAnswer | None]) -> None:
        """End the waits that have an answer. Questions for which the script had no room will be asked again."""
        for (question, how), found in zip(asked.items(), answers, strict=False):
            self._to_ask.pop(question, None)
            if how and isinstance(found, TaskState) and found.state == "unknown":
                self._tell(question, replace(found, state=how))
            elif found is not None:
                self._tell(question, found)

    def give_up(self, why: str) -> None:
        """End all waits without an answer, for this reason."""
        for waits in self._waits.values():
            for wait in waits:
                wait.tell(None, why)
        self._waits.clear()
        self._to_ask.clear()

    def _tell(self, question: Question, found: WaitAnswer) -> None:
        for wait in self._waits.pop(question, ()):
            wait.tell(found)


ASK_ALL_SECONDS: Final = 10.0
LINGER_SECONDS: Final = 3.0  # How long the waiting thread, or task, lives without a wait.
CLOSED: Final = "the client was closed"
_FIRST_SECONDS: Final = 0.05
_MOST_SECONDS: Final = 2.0

Answers = Sequence[WaitAnswer | None]


class WaitRounds:
    """The open waits of a client, and the times at which it asks about them."""

    def __init__(self, store: Store) -> None:
        self._name_there = os.urandom(8).hex()
        self._store = store
        self.key = store.keys.replies(self._name_there)  # The list to which the server pushes what has changed.
        self.open = OpenWaits()
        self.trouble = ""  # Why the server does not respond, or "" if it does.
        self.retry_at = 0.0  # When to ask again after trouble (monotonic seconds).
        self._backoff = Backoff(_FIRST_SECONDS, _MOST_SECONDS)
        self._ask_all_at = 0.0
        self._idle_at = math.inf

    @property
    def has_more(self) -> bool:
        """Whether there are waits, or were some a short time ago."""
        return bool(self.open) or time.monotonic() < self._idle_at

    def hear(self, words: Sequence[str]) -> None:
        """Process the messages that the server pushed."""
        for word in words:
            how, _, task_id = word.partition(" ")
            self.open.wake(how, task_id)
        self._backoff.reset()

    def next_questions(self) -> dict[Question, str]:
        """Return the questions to ask now."""
        if time.monotonic() >= self._ask_all_at:
            self.open.ask_all()
            self._ask_all_at = time.monotonic() + ASK_ALL_SECONDS
        return self.open.next_questions()

    def asking(self, asked: Mapping[Question, str]) -> Command[Any]:
        """Return the command that asks the questions, whose reply is Answers."""
        of_groups = [question for question in asked if isinstance(question, GroupQuestion)]
        if of_groups:
            return _asking_one(group_command(self._store, self._name_there, of_groups[0]))
        tasks = [(each.goal, each.task_id) for each in asked if isinstance(each, WaitQuestion)]
        return self._store.wait(self._name_there, tasks)

    def answer(self, asked: Mapping[Question, str], answers: Answers) -> None:
        """End the waits that have an answer."""
        self.open.answer(asked, answers)
        self.trouble = ""

    def fail(self, why: str) -> None:
        """Note that the server did not respond, so that all questions are asked again later."""
        self.trouble = why
        self._ask_all_at = 0.0
        self.retry_at = time.monotonic() + self._backoff.next_seconds()

    def seconds_to_rest(self, silent_at: float) -> float:
        """Return how long there is nothing to do unless a message or a wait arrives."""
        now = time.monotonic()
        if self.open:
            self._idle_at = math.inf
        elif self._idle_at == math.inf:
            self._idle_at = now + LINGER_SECONDS
        return max(min(self._ask_all_at, self._idle_at, silent_at), self.retry_at) - now


def group_command(store: Store, client: str, question: GroupQuestion) -> Command[Room]:
    """Return the command that asks about a group, and has the server notify this client of later changes."""
    if question.most_left is None:
        return store.await_group_end(client, question.group)
    return store.await_room(client, question.group, question.most_left)


def _asking_one(command: Command[Room]) -> Command[Answers]:
    def parse(raw: Raw) -> Answers:
        room = command.parse(raw)
        return [room if room.has_come else None]

    return Command(command.script, command.key, command.args, parse)


def answered(answer: Answer[Answers]) -> Answers:
    """Return the answers. Raises Unavailable if there are none."""
    if isinstance(answer, Answered):
        return answer.value
    raise answer.error if isinstance(answer, NotAccepted) else Unavailable(answer.why)


def has_come(question: WaitQuestion, found: TaskState) -> bool:
    """Whether what was found ends the wait. It does not if the task was pending, and was enqueued meanwhile."""
    return found.state not in WAITING and (found.state != State.RUNNING or question.goal is Goal.START)


def question_before(found: TaskState) -> Question:
    """Return the question about the task or group that a pending task follows."""
    kind, _, name = found.follows.partition(" ")
    return GroupQuestion(name) if kind == "group" else WaitQuestion(Goal.END, name)


@contextmanager
def pending_named(question: WaitQuestion, found: TaskState, timeout: Duration | None) -> Iterator[None]:
    """Change a WaitTimeout in the block to name the pending task, not the task or group that it follows."""
    try:
        yield
    except WaitTimeout as error:
        within = seconds(timeout or 0, "timeout")
        text = f"{question.subject} has not {question.event} within {within:g} s: it follows {found.follows}"
        raise WaitTimeout(text) from error


def limit_of(timeout: Duration | None) -> float | None:
    """Return the timeout in seconds, or None for no limit. Raises TypeError or ValueError."""
    return None if timeout is None else max(0.0, seconds(timeout, "timeout"))
