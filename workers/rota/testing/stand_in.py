"""What answers clients in place of the server."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar, cast

from rota.client.interception import Interceptor, interception
from rota.client.waits import Goal, GroupQuestion, WaitQuestion
from rota.errors import RotaError, WaitTimeout
from rota.protocol.body import decode_body
from rota.protocol.command import Command
from rota.protocol.groups import Room
from rota.protocol.new_tasks import Enqueued, NewTask
from rota.protocol.task_states import State
from rota.protocol.views import TaskState
from rota.protocol.wire import unpack
from rota.testing.kept_groups import KeptGroups
from rota.testing.kept_tasks import Accepted, Books

T = TypeVar("T")

_STARTED: Final = (State.RUNNING, State.DONE, State.DEAD)


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
        self._groups = KeptGroups(books, accepted)

    def clear(self) -> None:
        """Forget all that was taken."""
        self._books.clear()
        self._groups.clear()

    def enqueue(self, namespace: str, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Take the tasks of one call; what the server would answer of each."""
        taken = [(new, *self._books.accept(namespace, new)) for new in tasks]
        self._accepted(namespace, [(new, kept) for new, _, kept in taken if kept is not None])
        return [word for _, word, _ in taken]

    def run(self, namespace: str, command: Command[T]) -> T:
        """Answer where a task stands, cancel one, and whatever is asked and done about groups. Raises NotAnswered for
        any other command."""
        args, name = unpack(command.args), command.script.name
        if name in ("status", "cancel"):
            answer = self._books.state_of if name == "status" else self._books.cancel
            return cast("T", answer(namespace, args[0].decode()))
        if name not in self._groups.answers:
            raise NotAnswered(
                f"{name!r} needs a server: capture() and eager() answer enqueue, status, wait, result and cancel, and "
                "what is done with groups, alone. The fixture rota_client has one"
            )
        return cast("T", self._groups.answers[name](namespace, args))

    def wait(self, namespace: str, question: WaitQuestion) -> TaskState:
        """What has come of a task. Raises NotRun when nothing has."""
        kept = self._books.find(namespace, question.task_id)
        if kept is None and (before := self._groups.follows(namespace, question.task_id)):
            raise NotRun(f"{question.subject} is pending, as it follows {before}: {self._how_to_run}")
        if kept is None or kept.ended is not None or (question.goal is Goal.START and kept.state in _STARTED):
            return self._books.state_of(namespace, question.task_id)
        raise NotRun(f"task {kept.entry.id} ({decode_body(kept.body).name}) is {kept.state}: {self._how_to_run}")

    def wait_for_group(self, namespace: str, question: GroupQuestion) -> Room:
        """That there is room in a group, or that it has ended. Raises NotRun when it has not."""
        room = self._groups.wait(namespace, question)
        if room is None:
            raise NotRun(f"group {question.group} has not ended: {self._how_to_run}")
        return room


@contextmanager
def standing_in(interceptor: Interceptor) -> Iterator[None]:
    """Have it answer all clients of this process, until the block ends."""
    before, interception.interceptor = interception.interceptor, interceptor
    try:
        yield
    finally:
        interception.interceptor = before
