"""A driver for protocol tests of groups and chains."""

from rota.protocol.groups import Added, GroupState, Into, Opening
from rota.protocol.new_tasks import NewMember, NewTask, follow_text
from rota.protocol.outcome import Outcome
from rota.protocol.turns import Claim
from support.protocol import Fleet, body_of, one_tier


class Grouping:
    """Groups with members in the queue `q`, and a worker that runs the members one by one."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.owner = fleet.register()
        self._nonces = 0

    def task(self, task_id: str, due: str = "") -> NewTask:
        return NewTask(task_id, "q", body_of(task_id), due)

    def opening(self, then: str = "", on_dead: str = "") -> Opening:
        return Opening(*(follow_text([self.task(task_id)] if task_id else []) for task_id in (then, on_dead)))

    def add(self, members: list[NewMember], into: Into) -> Added:
        self._nonces += 1
        nonce = f"{self.fleet.keys.namespace}-add-{self._nonces}"
        return self.fleet.run(self.fleet.store.add_members(nonce, members, into))

    def open(self, group: str, *ids: str, then: str = "", on_dead: str = "") -> Added:
        """Create a group whose members are plain tasks with these ids, and close it, so that no more members can be
        added.
        """
        members = [NewMember(self.task(task_id)) for task_id in ids]
        return self.add(members, Into(group, self.opening(then, on_dead), closes=True))

    def chain(self, first: str, *rest: str) -> Added:
        return self.add([NewMember(self.task(first), follow_text(map(self.task, rest)))], Into())

    def claim(self, queue: str = "q") -> Claim:
        return self.fleet.turn(self.owner, one_tier(queue)).claims[0]

    def settle(self, claim: Claim, outcome: Outcome) -> None:
        self.fleet.turn(self.owner, one_tier("q"), (claim, outcome), limit=0)

    def run_one(self, outcome: Outcome, queue: str = "q") -> str:
        """Claim the next task, settle it with this outcome, and return its id."""
        claim = self.claim(queue)
        self.settle(claim, outcome)
        return claim.entry.id

    def state(self, group: str) -> GroupState:
        """Return the state of a group. Raises AssertionError if the group is not known."""
        state = self.fleet.run(self.fleet.store.group(group))
        assert state
        return state

    def kept(self) -> list[str]:
        """Return all keys that hold data of groups and chains."""
        found = self.fleet.redis.scan_iter(match=f"{{{self.fleet.keys.namespace}}}:*", count=1000)
        return [str(key) for key in found if "group" in key or "members" in key]
