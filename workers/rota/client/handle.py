"""What an enqueue answers: the id of the task, and two things to do with it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from rota.protocol.replies import CancelWord

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.client.status import TaskStatus

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, init=False)
class Handle(Generic[R_co]):
    """An enqueued task; `R_co` is what its function returns.

    `duplicate`: the id was live already, or the unique key was held; then the first task stays, `id` is its
    id, and this call added nothing.
    """

    id: str
    duplicate: bool
    client: "Client" = field(repr=False, compare=False)

    def __init__(self, id: str, duplicate: bool, client: "Client") -> None:  # noqa: A002 - the name of the field
        # By hand, in half the time: frozen dataclasses set each field through a call.
        fields = self.__dict__
        fields["id"] = id
        fields["duplicate"] = duplicate
        fields["client"] = client

    def status(self) -> "TaskStatus":
        """Where the task stands now. Never raises: see `Client.status`."""
        return self.client.status(self.id)

    def cancel(self) -> CancelWord:
        """End the task if it still waits; mark it if it runs. Raises as `Client.cancel`."""
        return self.client.cancel(self.id)
