"""The handle of a task, which an enqueue returns."""

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from rota.client.status import TaskStatus
from rota.durations import Duration
from rota.foreign_names import KnowsForeignNames
from rota.protocol.replies import CancelWord

R_co = TypeVar("R_co", covariant=True)


class TaskAccess(Protocol):
    """A client, as far as the handle of a task needs it."""

    def status(self, task_id: str, *, args: bool = False) -> TaskStatus: ...
    def wait(self, task_id: str, timeout: Duration | None = None) -> TaskStatus: ...
    def wait_started(self, task_id: str, timeout: Duration | None = None) -> TaskStatus: ...
    def result(self, task_id: str, timeout: Duration | None = None) -> Any: ...
    def cancel(self, task_id: str, kill_after: Duration | None = None) -> CancelWord: ...


@dataclass(frozen=True, init=False)
class Handle(KnowsForeignNames, Generic[R_co], place="handle"):
    """An enqueued task; `R_co` is what its function returns.

    `duplicate`: the id was live already, or the unique key was held; then the first task stays, `id` is its
    id, and this call added nothing.
    """

    id: str
    duplicate: bool
    client: TaskAccess = field(repr=False, compare=False)

    def __init__(self, id: str, duplicate: bool, client: TaskAccess) -> None:  # noqa: A002 - the name of the field
        # By hand, in half the time: frozen dataclasses set each field through a call.
        fields = self.__dict__
        fields["id"] = id
        fields["duplicate"] = duplicate
        fields["client"] = client

    def status(self) -> TaskStatus:
        """Where the task stands now. Never raises: see `Client.status`."""
        return self.client.status(self.id)

    def wait(self, timeout: Duration | None = None) -> TaskStatus:
        """Wait until the task has ended, however that may be; returns its status. Waits and raises as `Client.wait`."""
        return self.client.wait(self.id, timeout)

    def wait_started(self, timeout: Duration | None = None) -> TaskStatus:
        """Wait until a worker has the task in hand, or it has ended; returns its status. See `Client.wait_started`."""
        return self.client.wait_started(self.id, timeout)

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the task has ended, and return what its function returned. Waits and raises as `Client.result`."""
        returned: R_co = self.client.result(self.id, timeout)
        return returned

    def cancel(self, kill_after: Duration | None = None) -> CancelWord:
        """End the task if it still waits, have `rota.Cancelled` raised in it if it runs: see `Client.cancel`."""
        return self.client.cancel(self.id, kill_after)
