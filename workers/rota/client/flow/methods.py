"""The client's side of work that follows other work: groups by their ids, and `map`."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from rota.client.enqueue_options import OnCommit
from rota.client.sender import Sender, Sending, WithId
from rota.client.steering import Steering
from rota.client.waits import GroupQuestion
from rota.durations import Duration
from rota.protocol.groups import Room
from rota.tasks.call import MakesCalls

if TYPE_CHECKING:
    from rota.client.blocking.flows import Flows
    from rota.client.blocking.handles import GroupHandle
    from rota.client.flow.map_steps import MapOptions

H = TypeVar("H", bound=WithId)


class Flowing(Steering):
    """What is done with chains and groups, by `Flows`."""

    _max_payload_kb: int
    _sender: Sender[Any, Any, Any]
    _on_commit: OnCommit | None

    @abstractmethod
    def _send_flow(self, sending: Sending[H], /) -> list[H]: ...

    @abstractmethod
    def _await_group(self, question: GroupQuestion, timeout: Duration | None, /) -> Room: ...

    def group(self, group_id: str) -> "GroupHandle":
        """The handle of a group, to look at it, add to it, wait for it, cancel it. Asks nothing. Raises InvalidName."""
        return self._flows.group(group_id)

    def map(self, task: MakesCalls, items: Iterable[Any], **options: "Unpack[MapOptions]") -> "GroupHandle":
        """Enqueue a task for each item, as a group, as room comes: see `rota.map`, which takes and raises the same."""
        return self._flows.map(task, items, options)

    @property
    def _flows(self) -> "Flows":
        # Imported only here: it brings what a program that only enqueues tasks does without.
        from rota.client.blocking.flows import Flows, Ways  # noqa: PLC0415 - as above
        from rota.client.flow.transfer import terms_of  # noqa: PLC0415

        terms = terms_of(self._store, self._sender, self._max_payload_kb, self._warned)
        return Flows(self, terms, Ways(self._send_flow, self._follow, self._await_group, self._on_commit))
