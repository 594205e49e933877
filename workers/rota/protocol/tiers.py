"""The tiers of queues that a turn serves, as values and as the scripts take them: see rota/lua/shared/tiers.lua."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rota.protocol.scripts import sha1_of
from rota.protocol.wire import Packed, pack

LONGEST_DOMAIN = 64
VIRTUAL_UNIT = 720_720  # one entry at weight 1, in units of virtual time: divisible by every weight to 16


@dataclass(frozen=True, slots=True)
class QueueShare:
    """A queue as a pool serves it: `weight` in its tier, `cap` running at once over the fleet (0: no
    cap), `interval_us` microseconds from one start to the next (0: no rate limit), `burst` starts that
    may come at once after a pause, `condition` the name of what decides whether it is open ("": it always is)."""

    name: str
    weight: float = 1.0
    cap: int = 0
    interval_us: int = 0
    burst: int = 1
    condition: str = ""


@dataclass(frozen=True, slots=True)
class Domain:
    """The queues a pool serves in one tier: among these the rotation is fair."""

    name: str
    queues: tuple[QueueShare, ...]


def domain_of(queues: Sequence[QueueShare]) -> Domain:
    """The domain of these queues. Pools that serve the same set share it, whatever the order."""
    name = ",".join(sorted(share.name for share in queues))
    if len(name) > LONGEST_DOMAIN:  # it stands in a field of each of its queues
        name = sha1_of(name.encode())
    return Domain(name, tuple(queues))


def pack_tiers(tiers: Iterable[Domain]) -> Packed:
    """The tiers, highest first, as `turn` and `retire` take them; packed once a life."""
    return pack(tier_words(tiers))


def tier_words(tiers: Iterable[Domain]) -> list[str | int]:
    """The same, before it is packed."""
    domains = list(tiers)
    words: list[str | int] = [len(domains)]
    for domain in domains:
        words += [domain.name, settings_of(domain.queues), len(domain.queues), *(share.name for share in domain.queues)]
    return words


def settings_of(shares: Iterable[QueueShare]) -> str:
    """What the scripts read of those queues that are not plain: ` QUEUE=COST CAP INTERVAL BURST` each, and
    `:CONDITION` behind it where there is one."""
    return "".join(map(_settings, shares))


def _settings(share: QueueShare) -> str:
    if share == QueueShare(share.name):
        return ""
    cost = max(1, round(VIRTUAL_UNIT / share.weight))
    condition = f":{share.condition}" if share.condition else ""
    return f" {share.name}={cost} {share.cap} {share.interval_us} {share.burst}{condition}"


def read_share(name: str, settings: bytes) -> QueueShare:
    """The share that masters published of a queue, as `settings_of` says it; a plain one when they did not."""
    if not settings:
        return QueueShare(name)
    numbers, _, condition = settings.decode().partition(":")
    cost, cap, interval_us, burst = map(int, numbers.split())
    return QueueShare(name, VIRTUAL_UNIT / cost, cap, interval_us, burst, condition)


NO_TIERS = pack_tiers(())


def pack_limits(limits: Mapping[str, int]) -> Packed:
    """How many entries of each of these queues a turn may claim, instead of its `limit`. One text, since a script finds
    a word in it sooner than it reads a hundred arguments."""
    return pack(("".join(f" {queue}={limit}" for queue, limit in limits.items()),))


NO_LIMITS = pack_limits({})
