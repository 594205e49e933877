"""The table of children, and what performing an action does to it: the half of performing that is pure."""

from collections.abc import Iterator
from itertools import count

from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child, State
from rota_supervisor.master.planning.actions import Abandon, Action, Drain, Dump, Interrupt, Kill, Start


class Fleet:
    """All children by slot. A slot is free when it has no record here."""

    def __init__(self) -> None:
        self._children: dict[int, Child] = {}
        self._nonces = count(1)

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._children.values()))

    def __len__(self) -> int:
        return len(self._children)

    def get(self, slot: int, nonce: int) -> Child | None:
        """That life of the slot, or None when it is over."""
        child = self._children.get(slot)
        return child if child is not None and child.nonce == nonce else None

    def by_pid(self, pid: int) -> Child | None:
        """The child that is this process; its number is its own until it is reaped."""
        return next((child for child in self if child.pid == pid and child.state is not State.EXITED), None)

    def of(self, role: Role, state: State | None = None) -> list[Child]:
        """The children of a role, in that state when one is given."""
        return [child for child in self if child.role is role and state in (None, child.state)]

    def apply(self, action: Action, now: float) -> Child:
        """Move the child that the action is about; a Start makes it. Answers the child."""
        match action:
            case Start():
                return self._start(action, now)
            case Interrupt(slot):
                child = self._children[slot]
                child.interrupted_for = child.soft_until
                return child
            case Dump(slot):
                child = self._children[slot]
                child.dumped_at = now
                return child
            case Drain():
                child = self._end(action.slot, State.DRAINING, action)
                child.deaf_since = now
                return child
            case Kill():
                return self._end(action.slot, State.KILLED, action)
            case Abandon():
                return self._end(action.slot, State.EXITED, action)

    def forget(self, child: Child) -> None:
        """Free the slot of a child that is EXITED and retired."""
        assert child.state is State.EXITED
        del self._children[child.slot]

    def _start(self, action: Start, now: float) -> Child:
        state = State.REGISTERING if action.role is Role.WORKER else State.BOOTING
        nonce = next(self._nonces)
        child = Child(action.role, action.pool, action.generation, action.slot, nonce, state, now, beat_at=now)
        self._children[action.slot] = child
        return child

    def _end(self, slot: int, state: State, action: Drain | Kill | Abandon) -> Child:
        child = self._children[slot]
        child.move(state)
        child.why = action.reason
        return child
