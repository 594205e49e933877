"""The choice of a queue by fair rotation in exact fractions, and rate limits."""

from dataclasses import dataclass, field
from fractions import Fraction

from model.items import Share

Domain = frozenset[str]
Time = tuple[Fraction, int]
"""The virtual time of a queue in a domain, and the number of the claim that set it."""
UNIT = 720_720


def name_of(domain: Domain) -> str:
    return ",".join(sorted(domain))


def is_pattern(name: str) -> bool:
    return name.endswith("*")


def _takes_no_turns(domain: Domain) -> bool:
    """Whether a domain has only one queue. Nothing is stored for it."""
    return len(domain) == 1 and not any(map(is_pattern, domain))


@dataclass
class Rotation:
    """Start-time fair queueing. Each queue of each domain has a time, which is counted in entries."""

    clocks: dict[Domain, Time] = field(default_factory=dict)
    times: dict[tuple[Domain, str], Time] = field(default_factory=dict)

    def as_kept(self) -> dict[str, tuple[int, int]]:
        """Return the times that Redis stores. An entry at weight 1 takes `UNIT`."""
        kept = {name_of(domain): state for domain, state in self.clocks.items()}
        kept |= {f"{name_of(domain)} {queue}": state for (domain, queue), state in self.times.items()}
        return {name: (int(time * UNIT), turn) for name, (time, turn) in kept.items()}

    def first(self, domain: Domain, candidates: list[Share]) -> Share:
        """Return the queue to serve: a queue that was never served, else the one with the lowest time. If times are
        equal, it is the least recently served queue.
        """
        new = [share for share in candidates if (domain, share.queue) not in self.times]
        return new[0] if new else min(candidates, key=lambda share: self.times[domain, share.queue])

    def come_back(self, domain: Domain, queue: str) -> None:
        """Restore a queue without a place in a domain with patterns."""
        clock, _ = self.clocks.get(domain, (Fraction(0), 0))
        before = self.times.get((domain, queue), (Fraction(0), 0))
        self.times[domain, queue] = before if before[0] > clock else (clock, 0)

    def charge(self, domain: Domain, share: Share, entries: int) -> None:
        if _takes_no_turns(domain):
            return
        clock, turn = self.clocks.get(domain, (Fraction(0), 0))
        time, _ = self.times.get((domain, share.queue), (Fraction(0), 0))
        start = max(clock, time)
        self.clocks[domain] = (start, turn + 1)
        self.times[domain, share.queue] = (start + Fraction(entries, share.weight), turn + 1)

    def credit(self, domain: Domain, share: Share, entries: int) -> None:
        if _takes_no_turns(domain):
            return
        time, turn = self.times.get((domain, share.queue), (Fraction(0), 0))
        self.times[domain, share.queue] = (max(Fraction(0), time - Fraction(entries, share.weight)), turn)


@dataclass
class Rates:
    """The times at which the starts of each queue will be paid off. The times of the starts are recorded to check the
    bound.
    """

    paid_off: dict[str, int] = field(default_factory=dict)
    starts: dict[str, list[int]] = field(default_factory=dict)

    def debt(self, share: Share, now: int) -> int:
        """Return the debt, which is at most a full burst. A larger value remains from before the clock went back."""
        return min(max(0, self.paid_off.get(share.queue, 0) - now), share.interval_us + share.slack_us)

    def set_right(self, share: Share, now: int) -> None:
        """Limit the debt to a full burst, as each call does when it checks for room."""
        if share.queue in self.paid_off:
            self.paid_off[share.queue] = min(self.paid_off[share.queue], now + share.interval_us + share.slack_us)

    def allowed(self, share: Share, now: int) -> int:
        return (share.slack_us - self.debt(share, now)) // share.interval_us + 1

    def wait(self, share: Share, now: int) -> int:
        """Return the time until the next task may start."""
        return self.debt(share, now) - share.slack_us

    def spend(self, share: Share, now: int, entries: int) -> None:
        self.paid_off[share.queue] = now + self.debt(share, now) + entries * share.interval_us
        self.starts.setdefault(share.queue, []).extend([now] * entries)

    def clock_went_back(self) -> None:
        """Forget the starts, because times before and after the jump cannot be compared."""
        self.starts.clear()
