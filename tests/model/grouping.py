"""The model of the calls that producers and operators make for groups and chains."""

from collections.abc import Sequence
from dataclasses import dataclass

from model.groups import Chain, Group
from model.items import New
from model.model import Model


@dataclass(frozen=True)
class Target:
    """The group to which a call adds members. If the call opens the group, `opening` has two chains: one that follows
    the group, and one that follows it if a member is dead. Otherwise, `opening` is None. `cursor` is the number of
    members that the group must have received before this call, or None to accept any number.
    """

    group: str
    opening: tuple[Chain, Chain] | None
    cursor: int | None
    closes: bool


Member = tuple[New, Chain]


class GroupModel(Model):
    """The model of the fleet, extended by the calls for groups."""

    @property
    def groups(self) -> dict[str, Group]:
        return self.places.dependents.groups

    def add_members(self, now: int, nonce: str, members: Sequence[Member], to: Target) -> tuple[str, int, list[str]]:
        """Add members. Return the status of the call, the cursor of the group (the number of members that it has
        received so far), and the status of each enqueued member.
        """
        self.places.at(now)
        group, is_repeated = self.groups.get(to.group), nonce in self.nonces
        before = group.cursor if group else 0
        if to.group and not is_repeated:
            if not (group.takes_members if group else to.opening):
                return "ended", before, []
            if to.cursor not in {None, before}:
                return "cursor", before, []
        statuses = self.enqueue(now, nonce, [new for new, _ in members])
        if not is_repeated:
            self._take_up(members, statuses, to)
        return "ok", self._cursor(to, len(statuses)), statuses

    def _cursor(self, to: Target, added: int) -> int:
        """Return the cursor of the group after the call, which is the number of members that it has received. If the
        group has ended and is forgotten, the call repeats an earlier call, and the cursor is calculated from the
        arguments.
        """
        if to.group in self.groups:
            return self.groups[to.group].cursor
        return 0 if to.cursor is None or not to.group else to.cursor + added

    def _take_up(self, members: Sequence[Member], statuses: Sequence[str], to: Target) -> None:
        if to.group and to.group not in self.groups:
            self.groups[to.group] = Group(*(to.opening or ((), ())), self.places.now)
        accepted = [
            (new.id, chain)
            for (new, chain), status in zip(members, statuses, strict=True)
            if status in {"ok", "unserved"}
        ]
        self.places.dependents.join(to.group, accepted)
        if to.group:
            group = self.groups[to.group]
            group.cursor += 0 if to.cursor is None else len(members)
            group.phase = "closed" if to.closes else group.phase
            self.places.dependents.end_if_over(self.places, to.group)

    def close_group(self, now: int, group_id: str) -> bool:
        self.places.at(now)
        group = self.groups.get(group_id)
        if not group or group.ended is not None:
            return False
        group.phase = "closed" if group.phase == "open" else group.phase
        self.places.dependents.end_if_over(self.places, group_id)
        return True

    def cancel_group(self, now: int, group_id: str) -> tuple[bool, set[str]]:
        """Cancel a group. Return whether the group is known and has not ended, and return its live members."""
        self.places.at(now)
        group = self.groups.get(group_id)
        if not group or group.ended is not None:
            return False, set()
        group.phase = "cancelled"
        members = set(group.live)
        self.places.dependents.end_if_over(self.places, group_id)
        return True, members
