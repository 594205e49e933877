"""The client's side of work that follows other work: groups by their ids, and `map`."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from rota.client.on_commit import OnCommit
from rota.client.open_waits import GroupQuestion
from rota.client.sender import Sender, Sending, WithId
from rota.client.steering import Steering
from rota.durations import Duration
from rota.protocol.groups import Room
from rota.tasks.call import MakesCalls

if TYPE_CHECKING:
    from rota.client.flow.doing import Flows
    from rota.client.flow.filling import MapOptions
    from rota.client.flow.handles import GroupHandle

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
        from rota.client.flow.doing import Flows, Ways  # noqa: PLC0415 - as above
        from rota.client.flow.sending import terms_of  # noqa: PLC0415

        terms = terms_of(self._store, self._sender, self._max_payload_kb, self._warned)
        return Flows(self, terms, Ways(self._send_flow, self._follow, self._await_group, self._on_commit))
