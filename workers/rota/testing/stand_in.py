"""What answers clients in place of the server."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

from rota.client.interception import Interceptor, interception
from rota.client.open_waits import Goal, WaitQuestion
from rota.client.status import State
from rota.errors import RotaError, WaitTimeout
from rota.protocol.body import decode_body
from rota.protocol.command import Command
from rota.protocol.replies import Enqueued
from rota.protocol.store import NewTask
from rota.protocol.views import TaskState
from rota.protocol.wire import unpack
from rota.testing.books import Books, KeptTask

T = TypeVar("T")

_STARTED: Final = (State.RUNNING, State.DONE, State.DEAD)


Accepted = Callable[[str, Sequence[tuple[NewTask, KeptTask]]], None]
"""Takes the tasks of one call that were accepted, with their namespace."""


class NotRun(WaitTimeout):
    """Something waits for a task that nobody has run: with workers the wait would not have ended, or not in time."""


class NotAnswered(RotaError, NotImplementedError):
    """A stand-in for the server was asked for what only a server can do."""


class StandIn:
    """Takes what clients enqueue, for `accepted`, and answers about it. `how_to_run`: what a test does to have a task
    run."""

    def __init__(self, books: Books, accepted: Accepted, how_to_run: str) -> None:
        self._books = books
        self._accepted = accepted
        self._how_to_run = how_to_run

    def enqueue(self, namespace: str, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Take the tasks of one call; what the server would answer of each."""
        taken = [(new, *self._books.accept(namespace, new)) for new in tasks]
        self._accepted(namespace, [(new, kept) for new, _, kept in taken if kept is not None])
        return [word for _, word, _ in taken]

    def run(self, namespace: str, command: Command[T]) -> T:
        """Answer where a task stands, and cancel one. Raises NotAnswered for any other command."""
        answers: dict[str, Callable[[str, str], Any]] = {"status": self._books.state_of, "cancel": self._books.cancel}
        answer = answers.get(command.script.name)
        if answer is None:
            raise NotAnswered(
                f"{command.script.name!r} needs a server: capture() and eager() answer enqueue, status, wait, result "
                "and cancel alone. The fixture rota_client has one"
            )
        return cast("T", answer(namespace, unpack(command.args)[0].decode()))

    def wait(self, namespace: str, question: WaitQuestion) -> TaskState:
        """What has come of a task. Raises NotRun when nothing has."""
        kept = self._books.find(namespace, question.task_id)
        if kept is None or kept.ended is not None or (question.goal is Goal.START and kept.state in _STARTED):
            return self._books.state_of(namespace, question.task_id)
        raise NotRun(f"task {kept.entry.id} ({decode_body(kept.body).name}) is {kept.state}: {self._how_to_run}")


@contextmanager
def standing_in(interceptor: Interceptor) -> Iterator[None]:
    """Have it answer all clients of this process, until the block ends."""
    before, interception.interceptor = interception.interceptor, interceptor
    try:
        yield
    finally:
        interception.interceptor = before
