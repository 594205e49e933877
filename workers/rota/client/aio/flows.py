"""What an asyncio client does with chains and groups: as `rota.client.blocking.flows`."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

from rota.client.aio.driver import in_portions
from rota.client.aio.handles import AsyncChainHandle, AsyncGroupHandle, AsyncHandle, AsyncTaskAccess
from rota.client.aio.looking import FollowAsync
from rota.client.blocking.flows import cancelling_group
from rota.client.enqueue_options import OnCommitOption, telling
from rota.client.failures import Uncertain
from rota.client.flow.group_status import GroupStatus, looking_at_group
from rota.client.flow.map_steps import Items, MapOptions, MapSteps, caller_of, count_of, filled, filling_of, plan_of
from rota.client.flow.transfer import AddSending, FlowTerms, flow_of, going_on, group_ended, ids_of
from rota.client.sender import Sending, WithId
from rota.client.waits import GroupQuestion
from rota.durations import Duration
from rota.errors import Unavailable
from rota.protocol.command import ask
from rota.protocol.groups import Room
from rota.protocol.new_tasks import Enqueued, NewMember
from rota.tasks.call import Call
from rota.tasks.call_flows import CallChain, members_of
from rota.tasks.options import require_name

H = TypeVar("H", bound=WithId)
T = TypeVar("T")


class SendAsync(Protocol):
    """Sends, and returns the handles."""

    async def __call__(self, sending: Sending[H], /) -> list[H]: ...


class AwaitGroup(Protocol):
    """Waits for what is asked about a group."""

    async def __call__(self, question: GroupQuestion, timeout: Duration | None, /) -> Room: ...


class AsyncWays(NamedTuple):
    """How a client sends, asks and waits."""

    send: SendAsync
    follow: FollowAsync
    wait: AwaitGroup
    check_nothing_waits: Callable[[OnCommitOption], None]


class AsyncFlows:
    """Chains and groups through one client, which says what it raises."""

    def __init__(self, client: AsyncTaskAccess, terms: FlowTerms, ways: AsyncWays) -> None:
        self.client = client
        self._terms = terms
        self._ways = ways

    async def enqueue(self, what: Any, on_commit: OnCommitOption) -> AsyncChainHandle | AsyncGroupHandle:
        """Enqueue a chain or a group. Raises TypeError for what is neither."""
        members = await in_portions(self._terms.checks.all_of(what))
        flow = flow_of(what, members, self._terms, self._chain_handle, self._group_handle)
        self._ways.check_nothing_waits(on_commit)
        handle: AsyncChainHandle | AsyncGroupHandle = (await self._ways.send(flow.send()))[0]
        return handle

    def group(self, group_id: str) -> AsyncGroupHandle:
        """See `Client.group`."""
        return AsyncGroupHandle(require_name("id", group_id), duplicate=False, flows=self)

    async def map(self, task: Any, items: Iterable[Any], options: MapOptions) -> AsyncGroupHandle:
        """See `rota.map`."""
        plan, count = plan_of(options), count_of(items)
        self._ways.check_nothing_waits(...)
        of_task = Items(caller_of(task), items, self._terms.checks)
        filling = filling_of(self._terms, plan)
        with going_on(filling, "mapped"), telling(plan.progress, count) as tell:
            await self._take(filled(filling, of_task, plan, tell))
        if filling.has_ended and (await self.status(filling.group_id)).is_cancelled:
            raise group_ended(filling.group_id, "it was cancelled")
        return AsyncGroupHandle(filling.group_id, not filling.is_new, self)

    async def add(
        self, group_id: str, members: Iterable[Call[Any] | CallChain]
    ) -> list[AsyncHandle[Any] | AsyncChainHandle]:
        """See `GroupHandle.add`."""
        prepared = await in_portions(self._terms.checks.members(members_of(members)))
        return await self._ways.send(AddSending(self._terms, group_id, prepared, self._member_handle).send())

    async def status(self, group_id: str) -> GroupStatus:
        """See `GroupHandle.status`."""
        return await self._ways.follow(looking_at_group(self._terms.store, group_id))

    async def wait(self, group_id: str, timeout: Duration | None) -> GroupStatus:
        """See `GroupHandle.wait`."""
        await self._ways.wait(GroupQuestion(group_id), timeout)
        return await self.status(group_id)

    async def cancel(self, group_id: str) -> bool:
        """See `GroupHandle.cancel`."""
        steps, answer = cancelling_group(self._terms.store, group_id), None
        try:
            while True:  # as in Flows
                answer = await self._ways.follow(ask(steps.send(answer)))
        except StopIteration as end:
            is_known: bool = end.value
            return is_known

    async def _take(self, steps: MapSteps) -> None:
        answer: Room | None = None
        failure: Unavailable | Uncertain | None = None
        with suppress(StopIteration):
            while True:
                asked = steps.send(answer) if failure is None else steps.throw(failure)
                answer = failure = None
                try:
                    if isinstance(asked, GroupQuestion):
                        answer = await self._ways.wait(asked, None)
                    else:
                        await self._ways.send(asked)
                except (Unavailable, Uncertain) as error:
                    failure = error

    def _group_handle(self, group_id: str, duplicate: bool) -> AsyncGroupHandle:
        return AsyncGroupHandle(group_id, duplicate, self)

    def _chain_handle(self, member: NewMember, word: Enqueued) -> AsyncChainHandle:
        return AsyncChainHandle(ids_of(member, word), word.duplicate, self.client)

    def _member_handle(self, member: NewMember, word: Enqueued) -> AsyncHandle[Any] | AsyncChainHandle:
        if member.following:
            return self._chain_handle(member, word)
        return AsyncHandle(word.holder or member.id, word.duplicate, self.client)
