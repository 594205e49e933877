# Generated from rota/client/aio/flows.py by `make blocking`: change that, not this.
"""The methods of a client for chains and groups."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from rota.client.blocking.driver import MAP_AT_ONCE, Driver, in_portions, once_committed
from rota.client.blocking.handles import ChainHandle, GroupHandle, Handle, TaskAccess
from rota.client.command_replies import Uncertain
from rota.client.enqueue_options import OnCommit, OnCommitOption, check_nothing_waits, telling
from rota.client.flow_sending import (
    Filling,
    FlowTerms,
    GroupSending,
    Items,
    MapOptions,
    MapSteps,
    MembersSending,
    caller_of,
    count_of,
    filled,
    flow_of,
    going_on,
    group_ended,
    ids_of,
    plan_of,
)
from rota.client.inquiries import cancelling_group, looking_at_group
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
    """Chains and groups through one client, whose docstrings name the errors."""

    def __init__(self, client: TaskAccess, driver: Driver, terms: FlowTerms, on_commit: OnCommit | None) -> None:
        self.client = client
        self._driver = driver
        self._terms = terms
        self._on_commit = on_commit

    def enqueue(self, what: Any, on_commit: OnCommitOption) -> ChainHandle | GroupHandle:
        """Enqueue a chain or a group. Raises TypeError if `what` is neither."""
        members = in_portions(self._terms.checks.all_of(what))
        flow = flow_of(what, members, self._terms, self._chain_handle, self._group_handle)
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
        plan, count = plan_of(options), count_of(items)
        if self._on_commit is not None:
            check_nothing_waits(self._on_commit, MAP_AT_ONCE)
        of_task = Items(caller_of(task), items, self._terms.checks)
        filling = Filling(self._terms, plan.id or fresh_id(), self._terms.checks.opening(plan.then, plan.on_dead))
        with going_on(filling, "mapped"), telling(plan.progress, count) as tell:
            self._take(filled(filling, of_task, plan, tell))
        if filling.has_ended and (self.status(filling.group_id)).is_cancelled:
            raise group_ended(filling.group_id, "it was cancelled")
        return GroupHandle(filling.group_id, not filling.is_new, self)

    def add(self, group_id: str, members: Iterable[Call[Any] | CallChain]) -> list[Handle[Any] | ChainHandle]:
        """Add members to a group: see `GroupHandle.add`."""
        prepared = in_portions(self._terms.checks.members(members_of(members)))
        return self._driver.send(MembersSending(self._terms, prepared, self._member_handle, group_id).send())

    def status(self, group_id: str) -> GroupStatus:
        """Return the status of a group: see `GroupHandle.status`."""
        return self._driver.follow(looking_at_group(self._terms.store, group_id))

    def wait(self, group_id: str, timeout: Duration | None) -> GroupStatus:
        """Wait until a group has ended: see `GroupHandle.wait`."""
        self._driver.wait_for_group(GroupQuery(group_id), timeout)
        return self.status(group_id)

    def cancel(self, group_id: str) -> bool:
        """Cancel a group: see `GroupHandle.cancel`."""
        steps, answer = cancelling_group(self._terms.store, group_id), None
        try:
            while True:  # Each command has the full timeout of a call, since a large group takes many commands.
                answer = self._driver.run(steps.send(answer))
        except StopIteration as end:
            is_known: bool = end.value
            return is_known

    def _send(self, flow: MembersSending[Any] | GroupSending[Any]) -> list[Any]:
        return self._driver.send(flow.send())

    def _take(self, steps: MapSteps) -> None:
        answer: Room | None = None
        failure: Unavailable | Uncertain | None = None
        with suppress(StopIteration):
            while True:
                asked = steps.send(answer) if failure is None else steps.throw(failure)
                answer = failure = None
                try:
                    if isinstance(asked, GroupQuery):
                        answer = self._driver.wait_for_group(asked, None)
                    else:
                        self._driver.send(asked)
                except (Unavailable, Uncertain) as error:
                    failure = error

    def _group_handle(self, group_id: str, duplicate: bool) -> GroupHandle:
        return GroupHandle(group_id, duplicate, self)

    def _chain_handle(self, member: NewMember, word: Enqueued) -> ChainHandle:
        return ChainHandle(ids_of(member, word), word.duplicate, self.client)

    def _member_handle(self, member: NewMember, word: Enqueued) -> Handle[Any] | ChainHandle:
        if member.following:
            return self._chain_handle(member, word)
        return Handle(word.holder or member.id, word.duplicate, self.client)
