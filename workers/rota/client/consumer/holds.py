"""What a consumer holds, and how each of it is settled.

A settlement names the entry, which is its fencing token. So it may be sent until there is an answer: whatever came
late, or twice, finds nothing to change.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from rota.client.answers import Uncertain, is_denial
from rota.client.consumer.lease import OwnerLife
from rota.client.consumer.leased_task import Fate
from rota.durations import Backoff
from rota.errors import LeaseLost, Unavailable
from rota.protocol.command import Command, RunCommand
from rota.protocol.entry import Entry
from rota.protocol.outcome import Settlement, join_settlements, pack_settlement
from rota.protocol.store import Store
from rota.protocol.turns import Turn, TurnReply, TurnWord
from rota.protocol.wire import Packed

_FIRST_PAUSE_SECONDS: Final = 0.05
_MOST_PAUSE_SECONDS: Final = 1.0


class HeldTask:
    """The hold of one task, as `task.Hold` has it. `sent`: an outcome that was sent, and to which no answer came."""

    def __init__(self, entry: Entry, life: OwnerLife, holds: "Holds") -> None:
        self.entry = entry
        self.life = life
        self.fate = Fate.HELD
        self.sent: bytes | None = None
        self.settling = threading.Lock()
        self._holds = holds

    @property
    def owner(self) -> str:
        return self.life.owner

    @property
    def cancelled(self) -> bool:
        return self.entry.text in self.life.cancelled

    def settle(self, settlement: Settlement) -> None:
        with self.settling:
            self._holds.settle(self, pack_settlement(settlement))


class Holds:
    """All tasks that a consumer has handed out. `changed` is called when there is one less."""

    def __init__(self, store: Store, run: RunCommand, patience_seconds: float, changed: Callable[[], None]) -> None:
        self._store = store
        self._run = run
        self._patience_seconds = patience_seconds
        self._changed = changed
        self._held: dict[bytes, HeldTask] = {}
        self._closed = threading.Event()

    def __len__(self) -> int:
        return len(self._held)

    def ids_of(self, life: OwnerLife) -> tuple[str, ...]:
        """What a turn has to name: what this life holds. One that was lost may hold an earlier entry of the same id."""
        return tuple(hold.entry.id for hold in list(self._held.values()) if hold.life is life)

    def add(self, hold: HeldTask) -> None:
        """Hold a task that is handed out."""
        self._held[hold.entry.text] = hold

    def settle(self, hold: HeldTask, packed: bytes) -> None:
        """End a hold by telling the server. Raises LeaseLost, Unavailable, Uncertain or RuntimeError."""
        self._check(hold)
        life = hold.life
        turn = Turn(0, self.ids_of(life), settlements=join_settlements([packed]))
        reply = self._ask(self._store.turn(life.owner, life.tiers, turn), hold, packed)
        life.lost |= reply.word is TurnWord.LOST
        # While an owner lives, only outcomes of its own take an entry off its list: then one sent before has counted.
        counted_before = hold.sent is not None and not life.lost
        if hold.entry.text not in reply.stale or counted_before:
            self._end(hold, Fate.SETTLED)
            return
        self._end(hold, Fate.LOST)
        raise self._doubt(hold) if hold.sent else self._loss(hold)

    def close(self) -> Packed:
        """Hold nothing any more. Returns the outcomes that may not have reached the server."""
        self._closed.set()
        left = list(self._held.values())
        for hold in left:
            self._end(hold, Fate.LOST)
        return join_settlements([hold.sent for hold in left if hold.sent])

    def _check(self, hold: HeldTask) -> None:
        if hold.fate is Fate.SETTLED:
            raise RuntimeError(f"task {hold.entry.id} was settled before")
        if hold.fate is Fate.HELD and hold.life.lost and not hold.sent:
            self._end(hold, Fate.LOST)
        if hold.fate is Fate.LOST:
            raise self._loss(hold)

    def _ask(self, command: Command[TurnReply], hold: HeldTask, packed: bytes) -> TurnReply:
        """Repeat the call until it is answered, for about as long as a lease lasts."""
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS)
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                return self._run(command)
            except Uncertain:
                hold.sent = packed
                failure: Exception = self._doubt(hold)
            except Unavailable as error:
                failure = self._doubt(hold) if hold.sent else error
                if is_denial(error):
                    raise failure from error
            if self._closed.wait(backoff.next_seconds()) or time.monotonic() > deadline:
                raise failure

    def _end(self, hold: HeldTask, fate: Fate) -> None:
        hold.fate = fate
        self._held.pop(hold.entry.text, None)
        self._changed()

    def _loss(self, hold: HeldTask) -> LeaseLost:
        why = "the consumer was closed" if self._closed.is_set() else "its lease ran out"
        return LeaseLost(f"task {hold.entry.id} is not held any more, {why}: nothing was changed, and it runs again")

    def _doubt(self, hold: HeldTask) -> Uncertain:
        task_id = hold.entry.id
        return Uncertain(f"task {task_id} was to be settled, and no answer came: it may have been", [task_id])
