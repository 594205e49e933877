"""The client's looking side: where tasks stand, what happens to them, and what is claimed next."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from rota.client.blocking.event_stream import TaskEvents
from rota.client.client_warnings import ClientWarnings
from rota.client.event_pages import WantedEvents
from rota.client.interception import interception
from rota.client.queues import DEFAULT_LIMIT, QueueCounts, QueuedTask, WantedTasks, find, find_queues, listed_state
from rota.client.status import TaskStatus, status_of
from rota.durations import Duration, positive_milliseconds, seconds
from rota.errors import RotaError
from rota.foreign_names import KnowsForeignNames
from rota.protocol.command import Command, Steps, ask
from rota.protocol.replies import CancelWord
from rota.protocol.store import BATCH, Store
from rota.protocol.task_states import State
from rota.protocol.turns import DEFAULT_CLAIMS
from rota.protocol.walks import find_task
from rota.server.endpoint import Endpoint
from rota.tasks.options import check_queue, require_name

if TYPE_CHECKING:
    from rota.client.explanation import Explanation

T = TypeVar("T")


class Looking(KnowsForeignNames, ABC, place="client"):
    """What only looks. `_follow` sends each command once, all by one deadline, and raises Unavailable or Uncertain."""

    _store: Store
    _endpoint: Endpoint
    _timeout_seconds: float
    _warned: ClientWarnings

    @abstractmethod
    def _follow(self, steps: Steps[T], /) -> T: ...

    def status(self, task_id: str, *, args: bool = False) -> TaskStatus:
        """Where a task stands, with its arguments if they are asked for. Never raises: what cannot be found out is
        `unknown`, with the reason in `error`."""
        try:
            return self._follow(looking_at(self._store, task_id, args=args))
        except RotaError as error:
            return unknown_for(task_id, error)

    def peek(
        self, queue: str | None = None, state: str = State.READY, *, task: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> list[QueuedTask]:
        """The first tasks that stand in a queue, or in all: those that are `ready` in their order, `scheduled` (next
        due first), `running` or `dead` (latest first); of the name `task` alone where it is given.

        Nothing is looked at beyond those; where some are left out, the search ends after 10,000. Raises ValueError for
        a state or a limit that is none (TypeError for one that is no number), else as `cancel`.
        """
        return self._follow(peeking(self._store, queue, state, task, limit))

    def queues(self) -> list[QueueCounts]:
        """All queues that have or had tasks, by name, with how many tasks stand where. Raises as `cancel`."""
        return self._follow(find_queues(self._store))

    def explain(
        self, n: int = DEFAULT_CLAIMS, *, queue: str | None = None, task_id: str | None = None, pool: str | None = None
    ) -> "Explanation":
        """The next `n` claims in order, up to 1,000, of each pool or of the one named, and why it is these; of a queue
        or a task why it is not among them, and when it could be.

        The claim itself is run over a copy: nothing is changed. Raises InvalidName, TypeError, ValueError for a number
        that is none or a pool that no master has, else as `cancel`.
        """
        return self._follow(explaining(self._store, n, queue, task_id, pool))

    def events(
        self,
        after: str | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        timeout: Duration | None = None,
    ) -> TaskEvents:
        """Follow the task events of the fleet, of one queue or one task if that is named, on a connection of its own.

        `after`: the `id` of the last event that was dealt with, to go on behind it; "0" for all that are kept; None for
        what happens from now on. `timeout`: how long to wait for the next one, None for ever, 0 to give what is there.
        Raises InvalidName; ValueError for an `after` that is none, EventsOff, or Unavailable; later as `TaskEvents`
        says.
        """
        wanted = wanted_events(after, queue, task, timeout)
        self._warned.of_blocking()
        if interception.interceptor is not None:
            self._follow(ask(self._store.events("$", BATCH)))  # raises: it answers no such question
        return TaskEvents(self._endpoint, self._timeout_seconds, self._store, wanted)


# What is asked, for clients that block and those that do not.


def looking_at(store: Store, task_id: str, *, args: bool) -> Steps[TaskStatus]:
    """`status`, but that it raises."""
    require_name("id", task_id)
    return status_of(task_id, (yield from find_task(store, task_id)), args=args)


def unknown_for(task_id: str, error: RotaError) -> TaskStatus:
    """The status of a task that could not be asked for."""
    return TaskStatus(task_id, State.UNKNOWN, error=str(error))


def peeking(store: Store, queue: str | None, state: str, task: str | None, limit: int) -> Steps[list[QueuedTask]]:
    """`peek`."""
    _check_chosen(queue, task)
    found = yield from find(store, WantedTasks(listed_state(state), queue or "", task or "", limit))
    return found.tasks


def explaining(store: Store, n: int, queue: str | None, task_id: str | None, pool: str | None) -> "Steps[Explanation]":
    """`explain`."""
    # Imported only here, as the consumer is.
    from rota.client.explanation import WantedClaims, explain  # noqa: PLC0415

    _check_chosen(queue, pool)
    if task_id is not None:
        require_name("id", task_id)
    return explain(store, WantedClaims(n, queue or "", task_id or "", pool or ""))


def cancelling(store: Store, task_id: str, kill_after: Duration | None) -> Command[CancelWord]:
    """`cancel`."""
    require_name("id", task_id)
    kill_after_ms = None if kill_after is None else positive_milliseconds(kill_after, "kill_after")
    return store.cancel(task_id, kill_after_ms)


def wanted_events(after: str | None, queue: str | None, task: str | None, timeout: Duration | None) -> WantedEvents:
    """What readers of `events` give."""
    _check_chosen(queue, task)
    waits = None if timeout is None else seconds(timeout, "timeout")
    return WantedEvents(after, queue or "", task or "", waits)


def _check_chosen(queue: str | None, task: str | None) -> None:
    """What of all is wanted; None for all. Raises InvalidName."""
    if queue is not None:
        check_queue(queue)
    if task is not None:
        require_name("task name", task)
