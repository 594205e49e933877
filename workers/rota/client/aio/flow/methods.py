"""The asyncio client's side of work that follows other work: as `rota.client.flow.methods`."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from rota.client.aio.steering import AsyncSteering
from rota.client.client_warnings import ClientWarnings
from rota.client.enqueue_options import OnCommitOption
from rota.client.sender import Sender, Sending, WithId
from rota.client.waits import GroupQuestion
from rota.durations import Duration
from rota.protocol.groups import Room
from rota.tasks.call import MakesCalls

if TYPE_CHECKING:
    from rota.client.aio.flows import AsyncFlows
    from rota.client.aio.handles import AsyncGroupHandle
    from rota.client.flow.map_steps import MapOptions

H = TypeVar("H", bound=WithId)


class AsyncFlowing(AsyncSteering):
    """What is done with chains and groups, by `AsyncFlows`."""

    _max_payload_kb: int
    _sender: Sender[Any, Any, Any]
    _warned: ClientWarnings

    @abstractmethod
    async def _send_flow(self, sending: Sending[H], /) -> list[H]: ...

    @abstractmethod
    async def _await_group(self, question: GroupQuestion, timeout: Duration | None, /) -> Room: ...

    @abstractmethod
    def _check_nothing_waits(self, on_commit: OnCommitOption, /) -> None: ...

    def group(self, group_id: str) -> "AsyncGroupHandle":
        """The handle of a group, to look at it, add to it, wait for it, cancel it. Asks nothing. Raises InvalidName."""
        return self._flows.group(group_id)

    async def map(self, task: MakesCalls, items: Iterable[Any], **options: "Unpack[MapOptions]") -> "AsyncGroupHandle":
        """Enqueue a task for each item, as a group, as room comes: see `rota.map`, which takes and raises the same."""
        return await self._flows.map(task, items, options)

    @property
    def _flows(self) -> "AsyncFlows":
        from rota.client.aio.flows import AsyncFlows, AsyncWays  # noqa: PLC0415 - as in Client
        from rota.client.flow.transfer import terms_of  # noqa: PLC0415 - as above

        terms = terms_of(self._store, self._sender, self._max_payload_kb, self._warned)
        ways = AsyncWays(self._send_flow, self._follow, self._await_group, self._check_nothing_waits)
        return AsyncFlows(self, terms, ways)
