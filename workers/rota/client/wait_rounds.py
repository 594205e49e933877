"""When a client asks about what is waited for, and what follows from the answers, in threads and in asyncio. No I/O."""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rota.backoff import Backoff
from rota.client.answers import Answer, Answered, NotAccepted
from rota.client.open_waits import Goal, GroupQuestion, OpenWaits, Question, WaitAnswer, WaitQuestion
from rota.durations import Duration, seconds
from rota.errors import Unavailable, WaitTimeout
from rota.protocol.command import Command, Raw
from rota.protocol.groups import Room
from rota.protocol.store import Store
from rota.protocol.task_states import WAITING, State
from rota.protocol.views import TaskState

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


class TimeLeft:
    """One timeout for several waits."""

    def __init__(self, timeout: Duration | None) -> None:
        self._until = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")

    def seconds(self) -> float | None:
        """What is left of it, None for no limit."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())


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


def too_late(question: Question, limit: float, trouble: str) -> WaitTimeout:
    """What was waited for has not come in time."""
    away = f"; the server could not be asked: {trouble}" if trouble else ""
    return WaitTimeout(f"{question.subject} has not {question.event} within {limit:g} s{away}")


def given_up(question: Question, why: str) -> Unavailable:
    """Nobody looks any more."""
    return Unavailable(f"{why} while it waited for {question.subject}")
