"""The model of groups and chains: which tasks follow when a task or a group ends."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from model.items import New

if TYPE_CHECKING:
    from model.places import Places

ENDED_US = 50_000_000
"""The time in microseconds for which a group is known after its end."""

Chain = tuple[New, ...]


@dataclass
class Group:
    """A group. `live` has the ids of the members that have not ended. If a member is a chain, its id in `live` is that
    of the chain's current task.
    """

    then: Chain
    on_dead: Chain
    opened: int
    phase: str = "open"
    total: int = 0
    cursor: int = 0
    live: set[str] = field(default_factory=set)
    ends: Counter[str] = field(default_factory=Counter)
    ended: int | None = None
    followed_by: str = ""

    @property
    def takes_members(self) -> bool:
        return self.ended is None and self.phase != "cancelled"

    @property
    def is_over(self) -> bool:
        return self.ended is None and self.phase != "open" and not self.live


@dataclass
class Dependents:
    """All groups, and all tasks that belong to a group or a chain. For each task, `members` has its group (or "") and
    the tasks that follow it in its chain.
    """

    members: dict[str, tuple[str, Chain]] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)

    def member_texts(self) -> dict[str, str]:
        """Return the text that Redis stores for each member."""
        return {
            task_id: "\n".join([group or "-", *([text] if (text := "".join(map(_text_of, chain))) else [])])
            for task_id, (group, chain) in self.members.items()
        }

    def join(self, group_id: str, members: Sequence[tuple[str, Chain]]) -> None:
        """Add accepted tasks to a group, and store their chains. `group_id` is "" for chains that belong to no
        group.
        """
        for task_id, chain in members:
            if group_id or chain:
                self.members[task_id] = (group_id, chain)
        if group_id:
            group = self.groups[group_id]
            group.live.update(task_id for task_id, _ in members)
            group.total += len(members)

    def ended(self, places: "Places", how: str, ids: Sequence[str], still_there: Collection[str] = ()) -> None:
        """Process these tasks, which ended together with the outcome `how`, and enqueue the tasks that follow them. The
        ids in `still_there` are freed only at the end of the script, so a following task cannot use them.
        """
        gone = [(task_id, *self.members.pop(task_id)) for task_id in ids if task_id in self.members]
        for task_id, group_id, chain in gone:
            if group_id and not (how == "done" and chain):
                self._leave(group_id, task_id, how)
        for task_id, group_id, chain in gone:
            if how == "done" and chain:
                self._go_on(places, task_id, group_id, chain, still_there)
        for group_id in dict.fromkeys(group_id for _, group_id, _ in gone if group_id):
            self.end_if_over(places, group_id, still_there)

    def _leave(self, group_id: str, task_id: str, how: str) -> None:
        self.groups[group_id].live.remove(task_id)
        self.groups[group_id].ends[how] += 1

    def _go_on(self, places: "Places", task_id: str, group_id: str, chain: Chain, still_there: Collection[str]) -> None:
        is_cancelled = group_id and self.groups[group_id].phase == "cancelled"
        follows = not is_cancelled and self._put_in(places, group_id, chain, still_there)
        if group_id and follows:
            self.groups[group_id].live.remove(task_id)
        elif group_id:
            self._leave(group_id, task_id, "cancelled")

    def _put_in(self, places: "Places", group_id: str, chain: Chain, still_there: Collection[str]) -> str:
        """Enqueue the first task of the chain. Return its id, or "" if the chain is empty or the id is taken."""
        if not chain or chain[0].id in still_there or chain[0].id in places.tasks:
            return ""
        new, *rest = chain
        if group_id or rest:
            self.members[new.id] = (group_id, tuple(rest))
        if group_id:
            self.groups[group_id].live.add(new.id)
        places.accept(new)
        if new.due_at(places.now) <= places.now:
            places.look_at(new.queue)
        return new.id

    def end_if_over(self, places: "Places", group_id: str, still_there: Collection[str] = ()) -> None:
        group = self.groups[group_id]
        if not group.is_over:
            return
        group.ended = places.now
        following = group.on_dead if group.on_dead and group.ends["dead"] else group.then
        if group.phase != "cancelled":
            group.followed_by = self._put_in(places, "", following, still_there)

    def expire(self, now: int) -> list[str]:
        """Delete the groups that ended long enough ago, and return their ids."""
        gone = [
            name for name, group in self.groups.items() if group.ended is not None and group.ended + ENDED_US <= now
        ]
        for name in gone:
            del self.groups[name]
        return gone


def _text_of(new: New) -> str:
    return f"{new.id} {new.queue} {new.due or '-'} {len(new.body.encode())}\n{new.body}"
