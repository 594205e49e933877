"""What a worker of many tasks has claimed and owes an answer for. Pure.

Each task it runs has a place. Outcomes stay until an answer names them, as with one task at a time (`claims`).
"""

from dataclasses import dataclass, field

from rota.protocol.turns import Turn, TurnReply, TurnWord
from rota.worker.claims import NAMED_EVERY_NS, Outcomes


@dataclass(slots=True)
class Ledger(Outcomes):
    """The books of `places` tasks at once. `asked`: something may be held that is not on them, as work was asked for
    and no answer has come, or as something was forgotten. `alone`: for which entry this worker empties its hands."""

    places: int
    tokens: list[str] = field(default_factory=list)
    asked: bool = False
    alone: bytes = b""
    _held: dict[int, str] = field(default_factory=dict)
    _free: list[int] = field(init=False)
    _sent_tokens: int = 0
    _named_ns: int | None = None
    _forgot: bool = False

    def __post_init__(self) -> None:
        self._free = list(reversed(range(self.places)))  # the first places first: those never used take no memory

    @property
    def running(self) -> int:
        """How many places are taken."""
        return len(self._held)

    @property
    def free(self) -> int:
        """How many are not."""
        return len(self._free)

    @property
    def unconfirmed(self) -> bool:
        """Whether there are outcomes or tokens that no answer has named."""
        return bool(self.has_outcomes or self.tokens)

    def turn(self, picks: int, at_ns: int) -> Turn:
        """The turn to make now, for so many tasks. What is held is named only when it may not be known to be just that,
        as the script compares it with the list."""
        held = tuple(self._held.values()) if self._names_held(at_ns) else None
        self.asked |= picks > 0
        self._forgot = False
        self._sent_tokens = len(self.tokens)
        settlements, plain = self.tell()
        return Turn(
            min(picks, 1),
            held,
            tuple(self.tokens),
            settlements,
            plain=plain,
            picks=max(picks, 1),
            alone=self.alone,
        )

    def answered(self, reply: TurnReply) -> None:
        """An answer to that turn has come."""
        self.asked = self._forgot  # what was forgotten since the turn was made, the answer tells nothing of
        self.alone = reply.alone
        if reply.word is not TurnWord.MORE:
            del self.tokens[: self._sent_tokens]
        self.named()

    def seat(self, task_id: str) -> int:
        """Give a claimed task a place; returns that."""
        place = self._free.pop()
        self._held[place] = task_id
        return place

    def leave(self, place: int) -> None:
        """The task in this place has ended, or was not started and is another's now."""
        del self._held[place]
        self._free.append(place)

    def forget(self, place: int) -> None:
        """It was not started after all, and is still held: an answer will bring it again."""
        self.leave(place)
        self.asked = self._forgot = True

    def _names_held(self, at_ns: int) -> bool:
        is_due = self._named_ns is None or at_ns - self._named_ns >= NAMED_EVERY_NS
        if is_due or self.asked or self.alone:
            self._named_ns = at_ns
            return True
        return False
