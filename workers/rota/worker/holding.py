"""What a worker has in hand: tasks claimed, outcomes finished, tokens swallowed. Pure.

Outcomes stay until an answer has named them, whatever goes wrong in between; an outcome sent twice finds
nothing the second time, one forgotten is a task run twice. Tokens stay until an answer other than `more`:
only such an answer has passed them on.
"""

from collections import deque
from dataclasses import dataclass, field

from rota.protocol.outcome import Release, Settlement, pack_settlements
from rota.protocol.replies import Claim, TurnReply, TurnWord
from rota.protocol.store import Turn
from rota.protocol.wire import NOTHING, Packed
from rota.worker.times import Anchor


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim, and the reading of Redis time that came with it."""

    claim: Claim
    anchor: Anchor


@dataclass(slots=True)
class Holding:
    """The worker's books between two answers."""

    waiting: deque[Claimed] = field(default_factory=deque)
    finished: list[Settlement] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    @property
    def owing(self) -> bool:
        """Whether there is something to tell Redis."""
        return bool(self.finished or self.tokens)

    def packed(self) -> Packed:
        """The finished outcomes as `turn` and the slot take them."""
        return pack_settlements(self.finished) if self.finished else NOTHING

    def turn(self, limit: int) -> Turn:
        """The turn to make now; the same again until it is answered."""
        held = tuple(claimed.claim.entry.id for claimed in self.waiting)
        return Turn(limit, held, tuple(self.tokens), self.packed())

    def answered(self, reply: TurnReply, anchor: Anchor) -> None:
        """An answer has come: what it named is off the books, what it brought is on them."""
        self.finished.clear()
        if reply.word is not TurnWord.MORE:
            self.tokens.clear()
        self.waiting.extend(Claimed(claim, anchor) for claim in reply.claims)

    def give_back(self) -> list[Settlement]:
        """Turn what was not started into releases; the last claimed first, so that their order is kept."""
        released = [Settlement(claimed.claim.entry, Release()) for claimed in reversed(self.waiting)]
        self.waiting.clear()
        self.finished += released
        return released
