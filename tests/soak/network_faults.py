"""Faults of a link: the link cuts or refuses connections, drops, holds back or delays data, or loses replies."""

from collections.abc import Callable
from random import Random
from typing import Final

from soak.act import Act
from soak.faults import Fault
from support.faulty_link import FaultyLink

_SCRIPTS: Final = (None, None, "turn", "turn", "enqueue", "reap", "register", "renew", "promote", "sweep")


def choose(fault: Fault, link: FaultyLink, random: Random) -> Act:
    """Return the steps of a fault that affects a link."""
    return _ACTS[fault](link, random)


def _cut(link: FaultyLink, _random: Random) -> Act:
    return Act(link.cut)


def _refuse(link: FaultyLink, _random: Random) -> Act:
    def do() -> None:
        link.refuse()
        link.cut()

    return Act(do, undo=link.heal)


def _silence(link: FaultyLink, _random: Random) -> Act:
    return Act(lambda: link.silence(requests=True, replies=True), undo=link.heal)


def _silence_replies(link: FaultyLink, _random: Random) -> Act:
    return Act(lambda: link.silence(replies=True), undo=link.heal)


def _hold(link: FaultyLink, random: Random) -> Act:
    requests, replies = random.choice([(True, False), (False, True), (True, True)])
    detail = f"requests {requests}, replies {replies}"
    return Act(lambda: link.hold(requests=requests, replies=replies), undo=link.heal, detail=detail)


def _delay(link: FaultyLink, random: Random) -> Act:
    seconds = random.uniform(0.01, 0.3)
    return Act(lambda: link.delay(seconds, seconds / 2), undo=link.heal, detail=f"{seconds:.3f} s")


def _stall(link: FaultyLink, random: Random) -> Act:
    share = random.uniform(0.01, 0.1)
    return Act(lambda: link.stall_some(share), undo=link.heal, detail=f"{share:.0%}")


def _lose_replies(link: FaultyLink, random: Random) -> Act:
    of = random.choice(_SCRIPTS)
    cut = random.random() < 0.7
    count = random.randint(1, 8)
    detail = f"{count} of {of or 'any script'}, {'cut' if cut else 'silent'}"
    return Act(lambda: link.lose_replies(count, of=of, cut=cut), undo=link.heal, detail=detail)


_ACTS: Final[dict[Fault, Callable[[FaultyLink, Random], Act]]] = {
    Fault.CUT: _cut,
    Fault.REFUSE: _refuse,
    Fault.SILENCE: _silence,
    Fault.SILENCE_REPLIES: _silence_replies,
    Fault.HOLD: _hold,
    Fault.DELAY: _delay,
    Fault.STALL: _stall,
    Fault.LOSE_REPLIES: _lose_replies,
}
