"""Where a stand-in for the server steps in, as that of `rota.testing`: each client asks here before it sends anything.

What is handed over has passed every check of a call, and is what the server would be sent. Nothing is lost by asking:
without a stand-in it is one comparison.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from rota.client.waits import GroupQuestion, WaitQuestion
    from rota.protocol.command import Command
    from rota.protocol.groups import Room
    from rota.protocol.new_tasks import Enqueued, NewTask
    from rota.protocol.views import TaskState

T = TypeVar("T")

NO_SERVER: Final = "redis://no-server.invalid"  # of a default client that nobody configured; never connected to


class Interceptor(Protocol):
    """Answers in place of the server, in whichever thread a client is used; what it raises reaches the caller."""

    def enqueue(self, namespace: str, tasks: "Sequence[NewTask]") -> "list[Enqueued]":
        """Take the tasks of one call, in the order in which they would be sent."""

    def run(self, namespace: str, command: "Command[T]") -> T:
        """Answer any other command. Raises for one that it knows no answer to."""

    def wait(self, namespace: str, question: "WaitQuestion") -> "TaskState":
        """Answer a wait, at once. Raises when what is waited for has not come."""

    def wait_for_group(self, namespace: str, question: "GroupQuestion") -> "Room":
        """Answer a wait for room in a group, or for its end, likewise."""


class Interception:
    """Holds the interceptor of this process, None but in tests."""

    def __init__(self) -> None:
        self.interceptor: Interceptor | None = None


interception: Final = Interception()
