"""The replacement for the server in tests, and the state of its chains and groups: which tasks follow a task, and which
members of a group have not ended. When a task ends, this does the same as `lua/shared/following.lua`."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar, cast

from rota.client.enqueue_options import Interceptor, interception
from rota.client.waits import Goal, GroupQuery, TaskQuery
from rota.errors import RotaError, WaitTimeout
from rota.protocol.body import decode_body
from rota.protocol.groups import Added, AddStatus, CancelledGroup, GroupPhase, GroupState, Predecessor, Room
from rota.protocol.new_tasks import Enqueued, NewTask, followers_of
from rota.protocol.scripts import ScriptCall
from rota.protocol.task_states import ENDS, State
from rota.protocol.views import TaskState
from rota.protocol.wire import text_of, unpack
from rota.testing.kept_tasks import Accepted, KeptTask, KeptTasks

_FIRST: Final = 7
_FIELDS: Final = 5  # number of script arguments for each member
_REMEMBERED_US: Final = 50_000_000  # as long as the server remembers ended groups: ENDED_MS in lua/shared/following.lua
_OVER: Final = (GroupPhase.CANCELLED, GroupPhase.ENDED)


@dataclass(slots=True)
class KeptGroup:
    """A group, with the state of its members."""

    then: bytes  # the tasks that follow the group, encoded by `follow_text`
    on_dead: bytes  # the tasks that follow instead if a member is dead, encoded by `follow_text`
    opened_us: int
    phase: GroupPhase = GroupPhase.OPEN
    cursor: int = 0  # number of items added so far, if the group is enqueued in several calls
    total: int = 0  # number of members
    live: set[str] = field(default_factory=set)  # ids of members that have not ended
    ended: Counter[str] = field(default_factory=Counter)  # for each outcome, the number of members that ended with it
    is_cancelled: bool = False
    ended_us: int | None = None
    followed_by: str = ""  # id of the task that was enqueued when the group ended; "" for none

    def state(self, group_id: str) -> GroupState:
        """Return the state of the group, as it would be read from a server."""
        return GroupState(
            group_id, self.phase, self.is_cancelled, self.total, len(self.live), self.cursor, self.opened_us,
            self.ended_us, self.followed_by, self._to_come(self.then), self._to_come(self.on_dead),
            {how: self.ended[how] for how in ENDS},
        )  # fmt: skip

    def _to_come(self, following: bytes) -> str:
        first = next(iter(followers_of(following)), None) if self.phase not in _OVER else None
        return first.id if first else ""


class _Links(NamedTuple):
    # The group to which a task belongs ("" for none), and the tasks of its chain that follow the task.
    group: str
    following: Sequence[NewTask]


class KeptGroups:
    """The chains and groups of all namespaces. When the end of a task causes others to be enqueued, `accepted` is
    called with these, as it is with tasks that a client enqueues."""

    def __init__(self, kept_tasks: KeptTasks, accepted: Accepted) -> None:
        self._kept_tasks = kept_tasks
        self._accepted = accepted
        self._links: dict[tuple[str, str], _Links] = {}
        self._groups: dict[tuple[str, str], KeptGroup] = {}
        kept_tasks.on_end = self._ended
        self.handlers: dict[str, Callable[[str, Sequence[bytes]], object]] = {
            "add_members": self._add_members,
            "close_group": self._close,
            "cancel_group": self._cancel,
            "group": self._state_of,
            "pending": self._pending,
        }

    def clear(self) -> None:
        """Remove all chains and groups."""
        self._links.clear()
        self._groups.clear()

    def wait(self, namespace: str, query: GroupQuery) -> Room | None:
        """Return the reply to a query about a group. Returns None if the query waits for the end of the group, which
        has not come yet. A query that waits for room for more members is answered at once, because no task can run
        while the client waits.
        """
        found = self._find(namespace, query.group)
        if found is None or found.phase is GroupPhase.ENDED:
            return Room(has_come=True, left=None)
        return None if query.most_left is None else Room(has_come=True, left=0)

    def follows(self, namespace: str, task_id: str) -> str:
        """Return the task or group that a pending task follows, as `task ID` or `group ID`, or "" if the task follows
        nothing."""
        for (of, before), links in self._links.items():
            if of == namespace and any(new.id == task_id for new in links.following):
                return f"task {before}"
        for (of, group_id), group in self._groups.items():
            last = [new.id for text in (group.then, group.on_dead) for new in followers_of(text)]
            if of == namespace and group.phase not in _OVER and task_id in last:
                return f"group {group_id}"
        return ""

    def _pending(self, namespace: str, args: Sequence[bytes]) -> Predecessor:
        return Predecessor(self.follows(namespace, text_of(args[0])), "")

    def _find(self, namespace: str, group_id: str) -> KeptGroup | None:
        """Return a group unless it is unknown or ended so long ago that the server would have forgotten it."""
        found = self._groups.get((namespace, group_id))
        if found is None or found.ended_us is None or self._kept_tasks.now_us() < found.ended_us + _REMEMBERED_US:
            return found
        return None

    def _add_members(self, namespace: str, args: Sequence[bytes]) -> Added:
        _, name, opens, then, on_dead, cursor, closes = args[:_FIRST]
        group_id = text_of(name)
        found = self._find(namespace, group_id)
        if found is None and opens == b"1":
            found = self._groups[namespace, group_id] = KeptGroup(then, on_dead, self._kept_tasks.now_us())
        if group_id and (found is None or found.phase in _OVER):
            return Added(AddStatus.ENDED, found.cursor if found else 0, ())
        if found is not None and cursor and int(cursor) != found.cursor:
            return Added(AddStatus.CURSOR, found.cursor, ())
        if found is not None:
            found.cursor += (len(args) - _FIRST) // _FIELDS if cursor else 0
            found.phase = GroupPhase.CLOSED if closes == b"1" else found.phase
        return self._take(namespace, group_id, args[_FIRST:])

    def _take(self, namespace: str, group_id: str, args: Sequence[bytes]) -> Added:
        found = self._groups.get((namespace, group_id))
        replies: list[Enqueued] = []
        taken: list[tuple[NewTask, KeptTask]] = []
        for at in range(0, len(args), _FIELDS):
            new, following = _member(args[at : at + _FIELDS])
            reply, kept = self._kept_tasks.accept(namespace, new)
            replies.append(reply)
            if kept is not None:
                taken.append((new, kept))
                self._add_links(namespace, new, _Links(group_id, following))
        if found is not None:
            found.total += len(taken)
        self._accepted(namespace, taken)
        self._end_if_over(namespace, group_id)
        return Added(AddStatus.OK, found.cursor if found else 0, tuple(replies))

    def _add_links(self, namespace: str, new: NewTask, links: _Links) -> None:
        self._links[namespace, new.id] = links
        if links.group:
            self._groups[namespace, links.group].live.add(new.id)

    def _ended(self, kept: KeptTask, how: State) -> None:
        namespace = kept.namespace
        task_id = kept.entry.id
        links = self._links.pop((namespace, task_id), None)
        if links is None:
            return
        goes_on = how is State.DONE and bool(links.following)
        if not links.group:
            if goes_on:
                self._follow(namespace, links)
            return
        found = self._groups[namespace, links.group]
        found.live.discard(task_id)
        if not goes_on:
            found.ended[how] += 1
        elif found.is_cancelled or not self._follow(namespace, links):
            found.ended[State.CANCELLED] += 1
        self._end_if_over(namespace, links.group)

    def _follow(self, namespace: str, links: _Links) -> str:
        """Enqueue the next task of a chain: the first of the tasks in `links`, which the others follow. Returns its id,
        or "" if there is no next task or its id is taken.
        """
        if not links.following:
            return ""
        new, *rest = links.following
        _, kept = self._kept_tasks.accept(namespace, new)
        if kept is None:
            return ""
        self._add_links(namespace, new, _Links(links.group, rest))
        self._accepted(namespace, [(new, kept)])
        return new.id

    def _end_if_over(self, namespace: str, group_id: str) -> None:
        found = self._groups.get((namespace, group_id))
        if found is None or found.live or found.phase in (GroupPhase.OPEN, GroupPhase.ENDED):
            return
        found.phase = GroupPhase.ENDED
        found.ended_us = self._kept_tasks.now_us()
        last = found.on_dead if found.ended[State.DEAD] and found.on_dead else found.then
        if not found.is_cancelled:
            found.followed_by = self._follow(namespace, _Links("", list(followers_of(last))))

    def _close(self, namespace: str, args: Sequence[bytes]) -> bool:
        found = self._find(namespace, text_of(args[0]))
        if found is None or found.phase is GroupPhase.ENDED:
            return False
        found.phase = GroupPhase.CLOSED if found.phase is GroupPhase.OPEN else found.phase
        self._end_if_over(namespace, text_of(args[0]))
        return True

    def _cancel(self, namespace: str, args: Sequence[bytes]) -> CancelledGroup:
        found = self._find(namespace, text_of(args[0]))
        if found is None or found.phase is GroupPhase.ENDED:
            return CancelledGroup(is_known=False, cursor="0", ids=())
        found.phase = GroupPhase.CANCELLED
        found.is_cancelled = True
        ids = tuple(found.live)
        self._end_if_over(namespace, text_of(args[0]))
        return CancelledGroup(is_known=True, cursor="0", ids=ids)

    def _state_of(self, namespace: str, args: Sequence[bytes]) -> GroupState | None:
        found = self._find(namespace, text_of(args[0]))
        return None if found is None else found.state(text_of(args[0]))


def _member(args: Sequence[bytes]) -> tuple[NewTask, list[NewTask]]:
    task_id, queue, how, body, following = args
    due, hold_ms, unique_key = text_of(how).split(" ", 2) if how else ("", "0", "")
    new = NewTask(text_of(task_id), text_of(queue), body, due, unique_key, int(hold_ms))
    return new, list(followers_of(following))


T = TypeVar("T")

_STARTED: Final = (State.RUNNING, State.DONE, State.DEAD)


class NotRun(WaitTimeout):
    """Raised if a test waits for a task that has not been run. With real workers, too, such a wait might not end."""


class NeedsServer(RotaError, NotImplementedError):
    """Raised for a command that only a real server can process."""


class StandIn:
    """Accepts the tasks that clients enqueue, passes them to `accepted`, and replies to queries about them. Error
    messages end with `how_to_run`, which explains what a test must do to run a task."""

    def __init__(self, kept_tasks: KeptTasks, accepted: Accepted, how_to_run: str) -> None:
        self._kept_tasks = kept_tasks
        self._accepted = accepted
        self._how_to_run = how_to_run
        self._groups = KeptGroups(kept_tasks, accepted)

    def clear(self) -> None:
        """Remove everything that was enqueued."""
        self._kept_tasks.clear()
        self._groups.clear()

    def enqueue(self, namespace: str, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Accept the tasks of one call, and return the server's reply for each."""
        taken = [(new, *self._kept_tasks.accept(namespace, new)) for new in tasks]
        self._accepted(namespace, [(new, kept) for new, _, kept in taken if kept is not None])
        return [reply for _, reply, _ in taken]

    def run(self, namespace: str, command: ScriptCall[T]) -> T:
        """Run a command that reports the state of a task, cancels a task, or concerns a group. Raises NeedsServer for
        any other command."""
        args = unpack(command.args)
        name = command.script.name
        if name in ("status", "cancel"):
            handler = self._kept_tasks.state_of if name == "status" else self._kept_tasks.cancel
            return cast("T", handler(namespace, args[0].decode()))
        if name not in self._groups.handlers:
            raise NeedsServer(
                f"{name!r} needs a server: capture() and eager() support only enqueue, status, wait, result, cancel "
                "and the methods of groups. Use the fixture rota_client, which provides a server"
            )
        return cast("T", self._groups.handlers[name](namespace, args))

    def wait(self, namespace: str, query: TaskQuery) -> TaskState:
        """Return the state of a task if it has reached the goal of the query. Raises NotRun if it has not."""
        kept = self._kept_tasks.find(namespace, query.task_id)
        if kept is None and (before := self._groups.follows(namespace, query.task_id)):
            raise NotRun(f"{query.subject} is pending, because it follows {before}: {self._how_to_run}")
        if kept is None or kept.ended is not None or (query.goal is Goal.START and kept.state in _STARTED):
            return self._kept_tasks.state_of(namespace, query.task_id)
        raise NotRun(f"task {kept.entry.id} ({decode_body(kept.body).name}) is {kept.state}: {self._how_to_run}")

    def wait_for_group(self, namespace: str, query: GroupQuery) -> Room:
        """Return the reply to a query about a group. Raises NotRun if it waits for the end of a group that has not
        ended."""
        room = self._groups.wait(namespace, query)
        if room is None:
            raise NotRun(f"group {query.group} has not ended: {self._how_to_run}")
        return room


@contextmanager
def stand_in_installed(interceptor: Interceptor) -> Iterator[None]:
    """Make the interceptor reply to all clients of this process during the `with` block."""
    before = interception.interceptor
    interception.interceptor = interceptor
    try:
        yield
    finally:
        interception.interceptor = before
