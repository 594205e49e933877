"""Who lives, by Redis time: leases, the pulse of the pollers, and grace."""

from dataclasses import dataclass, field


@dataclass
class Leases:
    """All leases are of one length. `pulse`: when somebody last swept."""

    length: int
    expires: dict[str, int] = field(default_factory=dict)
    pulse: int | None = None
    grace_until: int = 0

    def begin(self, owner: str, now: int) -> None:
        self.expires[owner] = now + self.length

    def renew(self, owner: str, now: int) -> bool:
        """False for one that is no longer registered: nothing brings it back."""
        if owner not in self.expires:
            return False
        self.begin(owner, now)
        return True

    def sweep(self, now: int) -> list[str]:
        """The owners whose lease ran out, longest ago first. After half a lease without a sweep, or when the clock went
        back, nobody for one lease more."""
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
