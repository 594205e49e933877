"""The client's steering side: tasks are cancelled, revived and forgotten, queues are paused."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from rota.client.looking import Looking, cancelling
from rota.client.prepare import require_name
from rota.durations import Duration
from rota.options import check_queue
from rota.protocol.command import Command
from rota.protocol.replies import CancelWord

T = TypeVar("T")


class Steering(Looking):
    """What changes how it is with tasks and queues that are there. `_run` sends a command once, and raises Unavailable,
    or Uncertain when no answer came."""

    @abstractmethod
    def _run(self, command: Command[T], ids: Sequence[str] = (), deadline: float | None = None) -> T: ...

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
