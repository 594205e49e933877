"""What the scripts are given of the configuration: the tiers of queues that a turn serves (rota/lua/shared/tiers.lua),
the conditions by which queues open and close (rota/lua/shared/condition.lua), and limits with their defaults."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from rota.protocol.command import sha1_of
from rota.protocol.keys import fits, is_pattern
from rota.protocol.wire import Packed, pack

DEFAULT_CRASH_LIMIT: Final = 3
MOST_CRASHES: Final = 1000  # that a task may be allowed
DEFAULT_LOSS_LIMIT: Final = 5
DEFAULT_ENDED_KEEP: Final = 10_000  # as KEEP in lua/shared/ending.lua, which goes by it before a master has spoken
MOST_ENDED_KEEP: Final = 1_000_000
DEFAULT_FORGET_SECONDS: Final = 300.0  # after which an empty queue of a pattern leaves nothing

MOST_CONDITION_CHARACTERS = 2000  # of a chunk: compiling one takes the server some 30 ns a character
Interval = tuple[int, int]
"""From when to when something is open, Unix time in microseconds; the end is no part of it."""


class QueueCondition(NamedTuple):
    """A condition by its name. `text` of the kind `hours`: see `text_of_hours`; of the kind `lua`: the chunk."""

    name: str
    kind: Literal["hours", "lua"]
    text: str


def text_of_hours(known_until_us: int, intervals: Iterable[Interval]) -> str:
    """When something is open, in order, as far as that is known."""
    return "".join([str(known_until_us), *(f" {start}-{end}" for start, end in intervals)])


LONGEST_DOMAIN = 64
VIRTUAL_UNIT = 720_720  # one entry at weight 1, in units of virtual time: divisible by every weight to 16


@dataclass(frozen=True, slots=True)
class QueueShare:
    """A queue as a pool serves it: `weight` in its tier, `cap` running at once over the fleet (0: no
    cap), `interval_us` microseconds from one start to the next (0: no rate limit), `burst` starts that
    may come at once after a pause, `condition` the name of what decides whether it is open ("": it always is).
    Where the name is a pattern, that is said of each queue that it stands for."""

    name: str
    weight: float = 1.0
    cap: int = 0
    interval_us: int = 0
    burst: int = 1
    condition: str = ""

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for every queue of a pattern."""
        return is_pattern(self.name)


@dataclass(frozen=True, slots=True)
class Domain:
    """The queues a pool serves in one tier: among these the rotation is fair. `excluded`: names and patterns that fit a
    pattern of this domain and are served elsewhere, so that their queues are none of this one's."""

    name: str
    queues: tuple[QueueShare, ...]
    excluded: tuple[str, ...] = ()

    @property
    def has_patterns(self) -> bool:
        """Whether its queues are not known by name: then Redis keeps them in the order of their turns."""
        return any(share.is_pattern for share in self.queues)


def domain_of(queues: Sequence[QueueShare], others: Iterable[str] = ()) -> Domain:
    """The domain of these queues. Pools that serve the same set share it, whatever the order. `others`: all the names
    and patterns of the tiers, of which those count that take queues out of a pattern of this domain."""
    names = {share.name for share in queues}
    patterns = [share.name for share in queues if share.is_pattern]
    excluded = sorted({name for name in others if name not in names and any(fits(each, name) for each in patterns)})
    name = ",".join([*sorted(names), *(f"-{each}" for each in excluded)])
    if len(name) > LONGEST_DOMAIN:  # it stands in a field of each of its queues
        name = sha1_of(name.encode())
    return Domain(name, tuple(queues), tuple(excluded))


def pack_tiers(tiers: Iterable[Domain]) -> Packed:
    """The tiers, highest first, as `turn` and `retire` take them; packed once a life."""
    return pack(tier_words(tiers))


def tier_words(tiers: Iterable[Domain]) -> list[str | int]:
    """The same, before it is packed."""
    domains = list(tiers)
    words: list[str | int] = [len(domains)]
    for domain in domains:
        words += [domain.name, settings_of_domain(domain), len(domain.queues), *(share.name for share in domain.queues)]
    return words


def settings_of_domain(domain: Domain) -> str:
    """What the scripts read of its queues: ` QUEUE=COST CAP INTERVAL BURST` for those that are not plain. With patterns
    it is that of all, and ` NAME=-` of what is excluded: then this text alone says which queues it serves and how."""
    if not domain.has_patterns:
        return settings_of(domain.queues)
    return "".join([*map(_written, domain.queues), *(f" {name}=-" for name in domain.excluded)])


def settings_of(shares: Iterable[QueueShare]) -> str:
    """What the scripts read of those queues that are not plain: ` QUEUE=COST CAP INTERVAL BURST` each, and
    `:CONDITION` behind it where there is one."""
    return "".join(_written(share) for share in shares if share != QueueShare(share.name))


def _written(share: QueueShare) -> str:
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
