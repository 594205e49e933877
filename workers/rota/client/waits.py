"""The open waits of a client: what they wait for, when the client queries the server about them, and how they end.

This module does no I/O, so that threads and asyncio can share it.
"""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from itertools import islice, takewhile
from threading import Lock
from typing import Any, Final, NamedTuple

from rota.client.command_replies import NotAccepted, Replied, Reply
from rota.durations import Backoff, Duration, seconds
from rota.errors import Unavailable, WaitTimeout
from rota.protocol.groups import Room
from rota.protocol.scripts import Raw, ScriptCall
from rota.protocol.store import BATCH, Store
from rota.protocol.task_states import ENDS, WAITING, State
from rota.protocol.views import TaskState

_OF_A_GROUP: Final = "group"


class Goal(StrEnum):
    """The event that a wait for a task waits for: the task has started, the task has ended, or the task has ended and
    its result is needed."""

    START = "s"
    END = "e"
    RESULT = "r"


class TaskQuery(NamedTuple):
    """A query to the script `wait` about one task, for example whether it has ended."""

    goal: Goal
    task_id: str

    @property
    def subject(self) -> str:
        return f"task {self.task_id}"

    @property
    def event(self) -> str:
        return "started" if self.goal is Goal.START else "ended"


class GroupQuery(NamedTuple):
    """A query to a script about a group.

    The wait ends when at most `most_left` members of the group have not ended. If `most_left` is None, the wait ends
    when the whole group has ended.
    """

    group: str
    most_left: int | None = None

    @property
    def subject(self) -> str:
        return f"group {self.group}"

    @property
    def event(self) -> str:
        return "ended" if self.most_left is None else f"dropped to {self.most_left:,} unfinished members"


WaitQuery = TaskQuery | GroupQuery
WaitResult = TaskState | Room


class OpenWait:
    """The wait of a caller for the result of a query. Subclasses define how the caller sleeps and is woken."""

    __slots__ = ("found", "is_over", "query", "why")

    def __init__(self, query: WaitQuery) -> None:
        self.query = query
        self.found: WaitResult | None = None
        self.why = ""  # Why the wait ended without a result, if `found` is None.
        self.is_over = False  # Whether the caller has stopped waiting.

    def finish(self, found: WaitResult | None, why: str = "") -> None:
        """End the wait with the result `found`. None means that the client has given up, for the reason `why`."""
        self.found = found
        self.why = why
        self._wake()

    def outcome(self, limit: float | None, trouble: str, *, in_time: bool) -> WaitResult:
        """Return the result of the wait. Raises WaitTimeout if no result came in time, and Unavailable if the client
        gave up."""
        if not in_time:
            away = f"; the server could not be reached: {trouble}" if trouble else ""
            query = self.query
            raise WaitTimeout(f"{query.subject} has not {query.event} within {limit or 0.0:g} s{away}")
        if self.found is None:
            raise Unavailable(f"{self.why} during the wait for {self.query.subject}")
        return self.found

    def _wake(self) -> None:
        raise NotImplementedError


class Wait(OpenWait):
    """The wait of one thread, which sleeps on its own lock.

    If a signal handler raises an exception during the sleep, `is_over` becomes true, and the client's background thread
    drops the wait later.
    """

    __slots__ = ("_asleep",)

    def __init__(self, query: WaitQuery) -> None:
        super().__init__(query)
        self._asleep = Lock()
        self._asleep.acquire()

    def sleep(self, seconds: float) -> bool:
        """Sleep until the awaited event occurs, and return True. Return False if `seconds` passed first. -1 means no
        limit."""
        try:
            return self._asleep.acquire(timeout=seconds)
        finally:
            self.is_over = True

    def _wake(self) -> None:
        self._asleep.release()


class OpenWaits:
    """The open waits of a client, grouped by query. Only one thread may use an instance."""

    def __init__(self) -> None:
        self._waits: dict[WaitQuery, list[OpenWait]] = {}
        # The queries to send, oldest first. Each has the state that a message from the server named, or "". If the
        # server no longer remembers the task when the query arrives, this state is all that is known about the task's
        # end.
        self._pending: dict[WaitQuery, str] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, wait: OpenWait) -> None:
        """Add a wait, whose query is sent with the next call."""
        self._waits.setdefault(wait.query, []).append(wait)
        self._pending.setdefault(wait.query, "")

    def wake(self, how: str, task_id: str) -> None:
        """Plan to send the queries of all waits for a task or a group, because the server has pushed a message that it
        has changed.

        `how` is `started`, the state in which the task ended, or `group`, in which case `task_id` is the id of a group.
        Any other text is ignored, because other programs that use the server may have pushed it.
        """
        if how == _OF_A_GROUP:
            of_it = [each for each in self._waits if isinstance(each, GroupQuery) and each.group == task_id]
            self._pending |= dict.fromkeys(of_it, "")
            return
        for query in [TaskQuery(goal, task_id) for goal in Goal]:
            if query in self._waits:
                self._pending[query] = how if how in ENDS else ""

    def query_all(self) -> None:
        """Plan to send the queries of all waits again, and drop the waits whose callers have stopped waiting."""
        for query, waits in list(self._waits.items()):
            waits[:] = [wait for wait in waits if not wait.is_over]
            if not waits:
                del self._waits[query]
        self._pending = {query: self._pending.get(query, "") for query in self._waits}

    def next_queries(self) -> dict[WaitQuery, str]:
        """Return the queries for the next call. Return either one query about a group, or as many queries about tasks
        as the script accepts."""
        first = next(iter(self._pending), None)
        if isinstance(first, GroupQuery):
            return {first: ""}
        of_tasks = takewhile(lambda item: isinstance(item[0], TaskQuery), self._pending.items())
        return dict(islice(of_tasks, BATCH))

    def resolve(self, queries: Mapping[WaitQuery, str], results: Sequence[WaitResult | None]) -> None:
        """End the waits that have a result. A query whose result did not fit into the reply is sent again."""
        for (query, how), found in zip(queries.items(), results, strict=False):
            self._pending.pop(query, None)
            if how and isinstance(found, TaskState) and found.state == "unknown":
                self._finish(query, replace(found, state=how))
            elif found is not None:
                self._finish(query, found)

    def give_up(self, why: str) -> None:
        """End all waits without a result, for this reason."""
        for waits in self._waits.values():
            for wait in waits:
                wait.finish(None, why)
        self._waits.clear()
        self._pending.clear()

    def _finish(self, query: WaitQuery, found: WaitResult) -> None:
        for wait in self._waits.pop(query, ()):
            wait.finish(found)


QUERY_ALL_SECONDS: Final = 10.0
LINGER_SECONDS: Final = 3.0  # How long the thread or asyncio task that serves waits keeps running when there are none.
CLOSED: Final = "the client was closed"
_FIRST_SECONDS: Final = 0.05
_MAX_SECONDS: Final = 2.0

WaitResults = Sequence[WaitResult | None]


class WaitRounds:
    """The open waits of a client, and the times at which to query the server about them."""

    def __init__(self, store: Store) -> None:
        self._name_there = os.urandom(8).hex()
        self._store = store
        # The Redis list to which scripts push the changes that the client waits for.
        self.key = store.keys.replies(self._name_there)
        self.open = OpenWaits()
        self.trouble = ""  # Why the server does not respond, or "" if it does.
        self.retry_at = 0.0  # When to query the server again after an error (monotonic seconds).
        self._backoff = Backoff(_FIRST_SECONDS, _MAX_SECONDS)
        self._query_all_at = 0.0
        self._idle_at = math.inf

    @property
    def has_more(self) -> bool:
        """Whether there are open waits, or there were some within the last LINGER_SECONDS."""
        return bool(self.open) or time.monotonic() < self._idle_at

    def receive(self, messages: Sequence[str]) -> None:
        """Process the messages that the server pushed."""
        for message in messages:
            how, _, task_id = message.partition(" ")
            self.open.wake(how, task_id)
        self._backoff.reset()

    def next_queries(self) -> dict[WaitQuery, str]:
        """Return the queries to send now."""
        if time.monotonic() >= self._query_all_at:
            self.open.query_all()
            self._query_all_at = time.monotonic() + QUERY_ALL_SECONDS
        return self.open.next_queries()

    def query_command(self, queries: Mapping[WaitQuery, str]) -> ScriptCall[Any]:
        """Return the command that sends the queries. Its reply has the results in the same order."""
        of_groups = [query for query in queries if isinstance(query, GroupQuery)]
        if of_groups:
            return _in_list(group_query(self._store, self._name_there, of_groups[0]))
        tasks = [(each.goal, each.task_id) for each in queries if isinstance(each, TaskQuery)]
        return self._store.wait(self._name_there, tasks)

    def resolve(self, queries: Mapping[WaitQuery, str], results: WaitResults) -> None:
        """End the waits that have a result."""
        self.open.resolve(queries, results)
        self.trouble = ""

    def fail(self, why: str) -> None:
        """Record that the server did not respond, and plan to send all queries again after a pause."""
        self.trouble = why
        self._query_all_at = 0.0
        self.retry_at = time.monotonic() + self._backoff.next_seconds()

    def seconds_to_rest(self, silent_at: float) -> float:
        """Return how many seconds the client may sleep. A message or a new wait ends the sleep earlier."""
        now = time.monotonic()
        if self.open:
            self._idle_at = math.inf
        elif self._idle_at == math.inf:
            self._idle_at = now + LINGER_SECONDS
        return max(min(self._query_all_at, self._idle_at, silent_at), self.retry_at) - now


def group_query(store: Store, client: str, query: GroupQuery) -> ScriptCall[Room]:
    """Return the command that queries a group, and makes the server notify this client of later changes."""
    if query.most_left is None:
        return store.await_group_end(client, query.group)
    return store.await_room(client, query.group, query.most_left)


def _in_list(command: ScriptCall[Room]) -> ScriptCall[WaitResults]:
    def parse(raw: Raw) -> WaitResults:
        room = command.parse(raw)
        return [room if room.has_come else None]

    return ScriptCall(command.script, command.keys, command.args, parse)


def results_in(reply: Reply[WaitResults]) -> WaitResults:
    """Return the results in a reply. Raises Unavailable if the server refused the query or did not reply."""
    if isinstance(reply, Replied):
        return reply.value
    raise reply.error if isinstance(reply, NotAccepted) else Unavailable(reply.why)


def has_come(query: TaskQuery, found: TaskState) -> bool:
    """Whether `found`, the task's current state, shows that the event has happened for which the query waits. It has
    not if, for example, a pending task of a chain has only been enqueued."""
    return found.state not in WAITING and (found.state != State.RUNNING or query.goal is Goal.START)


def query_before(found: TaskState) -> WaitQuery:
    """Return the query with which to wait until the task or group has ended that a pending task follows."""
    kind, _, name = found.follows.partition(" ")
    return GroupQuery(name) if kind == "group" else TaskQuery(Goal.END, name)


@contextmanager
def pending_named(query: TaskQuery, found: TaskState, timeout: Duration | None) -> Iterator[None]:
    """Run a block that waits for the task or group that a pending task follows. If the block raises WaitTimeout, change
    the message, so that it names the pending task, for which the caller waits."""
    try:
        yield
    except WaitTimeout as error:
        within = seconds(timeout or 0, "timeout")
        text = f"{query.subject} has not {query.event} within {within:g} s, because it follows {found.follows}"
        raise WaitTimeout(text) from error


def limit_of(timeout: Duration | None) -> float | None:
    """Return the timeout in seconds, or None for no limit. Raises TypeError or ValueError."""
    return None if timeout is None else max(0.0, seconds(timeout, "timeout"))
