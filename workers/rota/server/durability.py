"""What an enqueue waits for beyond the server's answer: a replica, or a disk. Pure.

The promise of each level is in docs/reliability.md. The command that waits goes behind the scripts on the same
connection, in the same round trip: WAIT and WAITAOF speak of what their own connection has written.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast, get_args

from rota.protocol.wire import command, pack

Durability = Literal["none", "wait", "waitaof"]
# Of the time an answer may take, since servers look at their timers each tenth of a second and we want their word.
_WAITING_SHARE: Final = 0.75
_NO_MATTER_SECONDS: Final = 0.01


def level_of(text: str) -> Durability:
    """The text as a level. Raises ValueError naming all."""
    if text not in get_args(Durability):
        expected = ", ".join(f'"{level}"' for level in get_args(Durability))
        raise ValueError(f"durability: expected one of {expected}, got {text!r}")
    return cast("Durability", text)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What is asked behind enqueues.

    `waiting` in wire form, for at most `seconds`; `trial` likewise, refused by a server that can never confirm.
    """

    durability: Durability
    replicas: int
    seconds: float

    @property
    def waiting(self) -> bytes:
        """The command to send behind the scripts."""
        # A timeout of 0 would be for ever.
        return self._command(max(1, round(self.seconds * 1000)))

    @property
    def trial(self) -> bytes:
        """The command on a connection that wrote nothing: answered at once, unless the server knows no such thing."""
        return self._command(1)

    def within(self, seconds: float) -> "Confirmation":
        """The same, to be over when no more than so many seconds are left."""
        share = round(seconds * _WAITING_SHARE, 3)
        return self if self.seconds - share < _NO_MATTER_SECONDS else replace(self, seconds=share)

    def lack(self, reply: Any) -> str:
        """What is missing by the server's answer; "" when all is confirmed."""
        on_disk, replicas = (1, reply) if self.durability == "wait" else reply
        missing = []
        if not on_disk:
            missing.append("the server has not written them to its disk")
        if replicas < self.replicas:
            missing.append(f"no replica has {'them' if self.durability == 'wait' else 'them on its disk'}")
        return " and ".join(missing)

    def _command(self, milliseconds: int) -> bytes:
        words = ("WAIT",) if self.durability == "wait" else ("WAITAOF", 1)
        return command((pack((*words, self.replicas, milliseconds)),))


def confirmation(durability: Durability, *, failover: bool, timeout_seconds: float) -> Confirmation | None:
    """What to ask for; None when the server's answer is enough. `failover`: whether another server may take over."""
    if durability == "none":
        return None
    replicas = 1 if durability == "wait" or failover else 0
    return Confirmation(durability, replicas, timeout_seconds * _WAITING_SHARE)
