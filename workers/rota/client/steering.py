"""The client's steering side: tasks are waited for, cancelled, revived and forgotten, queues are paused."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

from rota.client.looking import Looking, cancelling
from rota.client.results import result_of
from rota.client.status import TaskStatus, status_of
from rota.client.waits import Goal
from rota.durations import Duration
from rota.protocol.command import Command
from rota.protocol.replies import CancelWord
from rota.protocol.views import TaskState
from rota.tasks.options import check_queue, require_name

T = TypeVar("T")


class Steering(Looking):
    """What is done with tasks and queues that are there. `_run` sends a command once, and raises Unavailable, or
    Uncertain when no answer came; `_await` waits as `wait` says."""

    @abstractmethod
    def _run(self, command: Command[T], ids: Sequence[str] = (), deadline: float | None = None) -> T: ...

    @abstractmethod
    def _await(self, goal: Goal, task_id: str, timeout: Duration | None, /) -> TaskState: ...

    def wait(self, task_id: str, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a task has ended, however that may be, and return its status: `unknown` when nothing is known of
        it (any more). It waits on while the server is away; `timeout` in seconds, None for as long as it takes.

        Raises WaitTimeout, a TimeoutError; InvalidName; or Unavailable when the client is closed meanwhile, or the
        server does not let this user ask.
        """
        return status_of(task_id, self._await(Goal.END, task_id, timeout))

    def wait_started(self, task_id: str, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a worker has the task in hand, or it has ended, and return its status; it may be claimed a little
        before its function is called, and given back without. Waits and raises as `wait`."""
        return status_of(task_id, self._await(Goal.START, task_id, timeout))

    def result(self, task_id: str, timeout: Duration | None = None) -> Any:
        """Wait until a task has ended, and return what its function returned. Waits as `wait`.

        Raises TaskDead (with the `epitaph`), TaskCancelled or TaskExpired; ResultNotStored, saying why, when it is done
        and there is no result; and as `wait`.
        """
        found = self._await(Goal.RESULT, task_id, timeout)
        return result_of(status_of(task_id, found), found.result)

    def cancel(self, task_id: str, kill_after: Duration | None = None) -> CancelWord:
        """End a task that waits (`cancelled`), have `rota.Cancelled` raised in one that runs (`running`); or say that
        it is dead or unknown.

        `kill_after`: so long after it was told its process is killed if it still runs. Raises InvalidName, ValueError
        for a time that is none, Unavailable or Uncertain.
        """
        return self._run(cancelling(self._store, task_id, kill_after), [task_id])

    def pause(self, queue: str) -> bool:
        """Have no worker claim from the queue; False when it was paused already. Raises as `cancel`."""
        check_queue(queue)
        return bool(self._run(self._store.pause(queue)))

    def resume(self, queue: str) -> bool:
        """Have workers claim from the queue again; False when it was not paused. Raises as `cancel`."""
        check_queue(queue)
        return bool(self._run(self._store.resume(queue)))

    def revive(self, task_id: str) -> bool:
        """Put a dead task back in its lane, its failures forgiven; False when it is not dead. Raises as `cancel`."""
        require_name("id", task_id)
        return bool(self._run(self._store.revive([task_id]), [task_id]))

    def purge_dead(self, task_id: str) -> bool:
        """Forget a dead task for good; False when it is not dead. Raises as `cancel`."""
        require_name("id", task_id)
        return bool(self._run(self._store.purge_dead([task_id]), [task_id]))
