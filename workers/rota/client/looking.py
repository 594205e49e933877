"""The client's looking side: where tasks stand, what happens to them, and what is claimed next."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from rota.client.events import TaskEvents, WantedEvents
from rota.client.interception import interception
from rota.client.peek import DEFAULT_LIMIT, QueuedTask, WantedTasks, find, place_named
from rota.client.prepare import require_name
from rota.client.status import State, TaskStatus, status_of
from rota.durations import Duration, seconds
from rota.errors import RotaError
from rota.habits import OF_A_CLIENT, KnowsHabits
from rota.options import check_queue
from rota.protocol.command import Command
from rota.protocol.order import DEFAULT_CLAIMS
from rota.protocol.store import Store
from rota.server.address import Address

if TYPE_CHECKING:
    from rota.client.explain import Explanation

T = TypeVar("T")


class Looking(KnowsHabits, ABC):
    """What only looks. `_run` sends a command, once, and raises Unavailable or Uncertain."""

    _habits = OF_A_CLIENT
    _store: Store
    _address: Address
    _timeout_seconds: float

    @abstractmethod
    def _run(self, command: Command[T], ids: Sequence[str] = ()) -> T: ...

    def status(self, task_id: str, *, args: bool = False) -> TaskStatus:
        """Where a task stands, with its arguments if they are asked for. Never raises: what cannot be found out is
        `unknown`, with the reason in `error`."""
        try:
            require_name("id", task_id)
            return status_of(task_id, self._run(self._store.status(task_id)), args=args)
        except RotaError as error:
            return TaskStatus(task_id, State.UNKNOWN, error=str(error))

    def peek(
        self, queue: str | None = None, state: str = State.READY, *, task: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> list[QueuedTask]:
        """The first tasks that stand in a queue, or in all: those that are `ready` in their order, `scheduled` (next
        due first), `running` or `dead` (latest first); of the name `task` alone where it is given.

        Nothing is looked at beyond those; where some are left out, the search ends after 10,000. Raises ValueError for
        a state or a limit that is none (TypeError for one that is no number), else as `cancel`.
        """
        _check_chosen(queue, task)
        wanted = WantedTasks(place_named(state), queue or "", task or "", limit)
        return find(self._run, self._store, wanted).tasks

    def explain(
        self, n: int = DEFAULT_CLAIMS, *, queue: str | None = None, task_id: str | None = None, pool: str | None = None
    ) -> "Explanation":
        """The next `n` claims in order, up to 1,000, of each pool or of the one named, and why it is these; of a queue
        or a task why it is not among them, and when it could be.

        The claim itself is run over a copy: nothing is changed. Raises InvalidName, TypeError, ValueError for a number
        that is none or a pool that no master has, else as `cancel`.
        """
        # Imported only here, as the consumer is.
        from rota.client.explain import WantedClaims, explain  # noqa: PLC0415

        _check_chosen(queue, pool)
        if task_id is not None:
            require_name("id", task_id)
        return explain(self._run, self._store, WantedClaims(n, queue or "", task_id or "", pool or ""))

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
        _check_chosen(queue, task)
        waits = None if timeout is None else seconds(timeout, "timeout")
        if (interceptor := interception.interceptor) is not None:
            interceptor.run(self._store.keys.namespace, self._store.events("$"))  # raises: it has none
        wanted = WantedEvents(after, queue or "", task or "", waits)
        return TaskEvents(self._address, self._timeout_seconds, self._store, wanted)


def _check_chosen(queue: str | None, task: str | None) -> None:
    """What of all is wanted; None for all. Raises InvalidName."""
    if queue is not None:
        check_queue(queue)
    if task is not None:
        require_name("task name", task)
