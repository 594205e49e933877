# Generated from rota/client/aio/flows.py by `make blocking`: change that, not this.
"""The methods of a client for chains and groups."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from rota.client.blocking.driver import MAP_AT_ONCE, Driver, in_chunks, once_committed
from rota.client.blocking.handles import ChainHandle, GroupHandle, Handle, TaskAccess
from rota.client.command_replies import Uncertain
from rota.client.enqueue_options import OnCommit, OnCommitOption, check_nothing_waits, progress_reporter
from rota.client.flow_sender import (
    Filling,
    FlowContext,
    GroupSending,
    Items,
    MapOptions,
    MapSteps,
    MembersSending,
    caller_of,
    count_of,
    filled,
    flow_of,
    group_ended,
    ids_of,
    noting_how_to_continue,
    plan_of,
)
from rota.client.inquiries import cancel_group_steps, group_status_steps
from rota.client.preparation import fresh_id
from rota.client.status import GroupStatus
from rota.client.waits import GroupQuery
from rota.durations import Duration
from rota.errors import Unavailable
from rota.protocol.groups import Room
from rota.protocol.new_tasks import Enqueued, NewMember
from rota.tasks.call import Call, CallChain, members_of
from rota.tasks.options import require_name


class Flows:
    """A client's methods for chains and groups. Their errors are documented at the public methods that call them."""

    def __init__(self, client: TaskAccess, driver: Driver, context: FlowContext, on_commit: OnCommit | None) -> None:
        self.client = client
        self._driver = driver
        self._context = context
        self._on_commit = on_commit

    def enqueue(self, what: Any, on_commit: OnCommitOption) -> ChainHandle | GroupHandle:
        """Enqueue a chain or a group. Raises TypeError if `what` is neither."""
        members = in_chunks(self._context.checks.all_of(what))
        flow = flow_of(what, members, self._context, self._chain_handle, self._group_handle)
        on_commit = self._on_commit if on_commit is ... else on_commit
        if on_commit is None:
            handle: ChainHandle | GroupHandle = (self._send(flow))[0]
        else:
            [handle] = once_committed(on_commit, flow, self._send, lambda: [flow.expected])
        return handle

    def group(self, group_id: str) -> GroupHandle:
        """Return the handle of a group: see `Client.group`."""
        return GroupHandle(require_name("id", group_id), duplicate=False, flows=self)

    def map(self, task: Any, items: Iterable[Any], options: MapOptions) -> GroupHandle:
        """Enqueue a task for each item: see `rota.map`."""
        plan = plan_of(options)
        count = count_of(items)
        if self._on_commit is not None:
            check_nothing_waits(self._on_commit, MAP_AT_ONCE)
        of_task = Items(caller_of(task), items, self._context.checks)
        filling = Filling(self._context, plan.id or fresh_id(), self._context.checks.opening(plan.then, plan.on_dead))
        with noting_how_to_continue(filling, "mapped"), progress_reporter(plan.progress, count) as report:
            self._take(filled(filling, of_task, plan, report))
        if filling.has_ended and (self.status(filling.group_id)).is_cancelled:
            raise group_ended(filling.group_id, "it was cancelled")
        return GroupHandle(filling.group_id, not filling.is_new, self)

    def add(self, group_id: str, members: Iterable[Call[Any] | CallChain]) -> list[Handle[Any] | ChainHandle]:
        """Add members to a group: see `GroupHandle.add`."""
        prepared = in_chunks(self._context.checks.members(members_of(members)))
        return self._driver.send(MembersSending(self._context, prepared, self._member_handle, group_id).send())

    def status(self, group_id: str) -> GroupStatus:
        """Return the status of a group: see `GroupHandle.status`."""
        return self._driver.follow(group_status_steps(self._context.store, group_id))

    def wait(self, group_id: str, timeout: Duration | None) -> GroupStatus:
        """Wait until a group has ended: see `GroupHandle.wait`."""
        self._driver.wait_for_group(GroupQuery(group_id), timeout)
        return self.status(group_id)

    def cancel(self, group_id: str) -> bool:
        """Cancel a group: see `GroupHandle.cancel`."""
        steps = cancel_group_steps(self._context.store, group_id)
        reply: Any = None
        try:
            while True:  # Each command has the full timeout of a call, because a large group takes many commands.
                reply = self._driver.run(steps.send(reply))
        except StopIteration as end:
            is_known: bool = end.value
            return is_known

    def _send(self, flow: MembersSending[Any] | GroupSending[Any]) -> list[Any]:
        return self._driver.send(flow.send())

    def _take(self, steps: MapSteps) -> None:
        room: Room | None = None
        failure: Unavailable | Uncertain | None = None
        with suppress(StopIteration):
            while True:
                step = steps.send(room) if failure is None else steps.throw(failure)
                room = failure = None
                try:
                    if isinstance(step, GroupQuery):
                        room = self._driver.wait_for_group(step, None)
                    else:
                        self._driver.send(step)
                except (Unavailable, Uncertain) as error:
                    failure = error

    def _group_handle(self, group_id: str, *, duplicate: bool) -> GroupHandle:
        return GroupHandle(group_id, duplicate, self)

    def _chain_handle(self, member: NewMember, reply: Enqueued) -> ChainHandle:
        return ChainHandle(ids_of(member, reply), reply.duplicate, self.client)

    def _member_handle(self, member: NewMember, reply: Enqueued) -> Handle[Any] | ChainHandle:
        if member.following:
            return self._chain_handle(member, reply)
        return Handle(reply.holder or member.id, reply.duplicate, self.client)
