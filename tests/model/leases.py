"""The model of leases, in Redis time: the living owners, the last sweep of the pollers, and the grace period."""

from dataclasses import dataclass, field


@dataclass
class Leases:
    """The owners, each with the end of its lease. All leases have the same length. `pulse` is the time of the last
    sweep.
    """

    length: int
    expires: dict[str, int] = field(default_factory=dict)
    pulse: int | None = None
    grace_until: int = 0

    def begin(self, owner: str, now: int) -> None:
        self.expires[owner] = now + self.length

    def renew(self, owner: str, now: int) -> bool:
        """Renew a lease. Return False if the owner is no longer registered. Such an owner is never registered again."""
        if owner not in self.expires:
            return False
        self.begin(owner, now)
        return True

    def sweep(self, now: int) -> list[str]:
        """Return the owners whose lease has expired, the oldest first. If there was no sweep for half a lease, or the
        clock was set back, no lease expires for the time of one more lease.
        """
        if self.pulse is None or not self.pulse <= now <= self.pulse + self.length / 2:
            self.grace_until = now + self.length
        self.grace_until = min(self.grace_until, now + self.length)
        self.pulse = now
        for owner, expires in self.expires.items():
            if expires >= now + 2 * self.length:
                self.expires[owner] = now + self.length
        if self.grace_until > now:
            return []
        return sorted((owner for owner in self.expires if self.expires[owner] <= now), key=self._by_expiry)

    def _by_expiry(self, owner: str) -> tuple[int, str]:
        return self.expires[owner], owner

    def may_be_reaped(self, owner: str, now: int) -> bool:
        return owner in self.expires and self.expires[owner] <= now and self.grace_until <= now
