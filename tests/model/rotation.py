"""The model of fair rotation, with exact fractions, and of rate limits."""

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
    """Whether a domain, which has the queues and patterns of one tier, consists of a single queue. Such a domain has
    nothing to rotate, so Redis stores no times for it.
    """
    return len(domain) == 1 and not any(map(is_pattern, domain))


@dataclass
class Rotation:
    """Start-time fair queueing. The queues and patterns of one tier are a domain. Each queue has a virtual time in each
    domain. The time grows by 1 / weight for each entry that is claimed from the queue.
    """

    clocks: dict[Domain, Time] = field(default_factory=dict)
    times: dict[tuple[Domain, str], Time] = field(default_factory=dict)

    def as_kept(self) -> dict[str, tuple[int, int]]:
        """Return the times as Redis stores them: as whole numbers, which grow by `UNIT` for each entry of a queue with
        weight 1.
        """
        kept = {name_of(domain): state for domain, state in self.clocks.items()}
        kept |= {f"{name_of(domain)} {queue}": state for (domain, queue), state in self.times.items()}
        return {name: (int(time * UNIT), turn) for name, (time, turn) in kept.items()}

    def first(self, domain: Domain, candidates: list[Share]) -> Share:
        """Return the queue to serve next. Queues that were never served come first, followed by the queue with the
        lowest time. If several queues have the same time, the least recently served one is next.
        """
        new = [share for share in candidates if (domain, share.queue) not in self.times]
        return new[0] if new else min(candidates, key=lambda share: self.times[domain, share.queue])

    def come_back(self, domain: Domain, queue: str) -> None:
        """Set the virtual time of a queue that belongs to a pattern, when the queue becomes ready again. The queue
        keeps its earlier time, or gets the current time of the domain if that is later, so that it gains nothing from a
        pause.
        """
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
    """The rate limits of queues. Each start costs one interval. `paid_off` has the time at which all starts of a queue
    will have been paid for. `starts` has the times of the starts, so that a test can check the rate.
    """

    paid_off: dict[str, int] = field(default_factory=dict)
    starts: dict[str, list[int]] = field(default_factory=dict)

    def debt(self, share: Share, now: int) -> int:
        """Return the number of microseconds until the starts of a queue will have been paid for. The result is at most
        the debt of a full burst, because a larger value can only come from a clock that was set back.
        """
        return min(max(0, self.paid_off.get(share.queue, 0) - now), share.interval_us + share.slack_us)

    def set_right(self, share: Share, now: int) -> None:
        """Reduce the stored time if it exceeds the debt of a full burst. Every script does this when it checks whether
        the rate permits a start.
        """
        if share.queue in self.paid_off:
            self.paid_off[share.queue] = min(self.paid_off[share.queue], now + share.interval_us + share.slack_us)

    def allowed(self, share: Share, now: int) -> int:
        return (share.slack_us - self.debt(share, now)) // share.interval_us + 1

    def wait(self, share: Share, now: int) -> int:
        """Return the time in us until the next task may start. If a task may start now, the result is 0 or less."""
        return self.debt(share, now) - share.slack_us

    def spend(self, share: Share, now: int, entries: int) -> None:
        self.paid_off[share.queue] = now + self.debt(share, now) + entries * share.interval_us
        self.starts.setdefault(share.queue, []).extend([now] * entries)

    def clock_went_back(self) -> None:
        """Forget the starts, because times before and after the jump cannot be compared."""
        self.starts.clear()
