"""The parts of the configuration that scripts receive. They are the tiers of queues that a turn serves
(rota/lua/shared/tiers.lua), the conditions that open and close queues (rota/lua/shared/condition.lua), and limits with
their defaults."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from rota.protocol.keys import fits, is_pattern
from rota.protocol.scripts import sha1_of
from rota.protocol.wire import Packed, pack, text_of, unpack

DEFAULT_CRASH_LIMIT: Final = 3
MOST_CRASHES: Final = 1000  # the highest crash limit that a task may have
DEFAULT_LOSS_LIMIT: Final = 5
# The same number as KEEP in lua/shared/ending.lua, which applies until a master has set a value.
DEFAULT_ENDED_KEEP: Final = 10_000
MOST_ENDED_KEEP: Final = 1_000_000
DEFAULT_FORGET_SECONDS: Final = 300.0  # how long a queue of a pattern must be empty before it is forgotten

MOST_CONDITION_CHARACTERS = 2000  # longest chunk of Lua; the server takes some 30 ns per character to compile it
Interval = tuple[int, int]
"""An interval in which a queue is open, in Unix microseconds. Its end is exclusive."""


class QueueCondition(NamedTuple):
    """A named condition that opens and closes queues. `text` is the result of `text_of_hours` if the kind is `hours`,
    and a chunk of Lua if the kind is `lua`."""

    name: str
    kind: Literal["hours", "lua"]
    text: str


def text_of_hours(known_until_us: int, intervals: Iterable[Interval]) -> str:
    """Return the text of a condition of kind `hours`: the time up to which the intervals were computed, followed by the
    intervals in which the queues are open."""
    return "".join([str(known_until_us), *(f" {start}-{end}" for start, end in intervals)])


# Matches each queue in a text of settings, together with its `share_text`.
_SETTING: Final = re.compile(r" ([^ =]+)=([^=]*)(?= [^ =]+=|$)")
LONGEST_DOMAIN = 64
VIRTUAL_UNIT = 720_720  # virtual time of one entry at weight 1; divisible by every weight up to 16


@dataclass(frozen=True, slots=True)
class QueueShare:
    """The settings with which a pool serves a queue. If `name` is a pattern, the values apply to each queue that
    matches it."""

    name: str
    weight: float = 1.0  # weight of the queue within its tier
    cap: int = 0  # maximum number of entries that run at once in the fleet; 0 for no cap
    interval_us: int = 0  # microseconds from one start to the next; 0 for no rate limit
    burst: int = 1  # number of tasks that may start at once after a time without starts
    condition: str = ""  # name of the condition that decides whether the queue is open; "" if it is always open

    @property
    def is_pattern(self) -> bool:
        """Whether the name is a pattern, which stands for many queues."""
        return is_pattern(self.name)


@dataclass(frozen=True, slots=True)
class Domain:
    """The queues that a pool serves in one tier. Claims rotate fairly between these queues."""

    name: str
    queues: tuple[QueueShare, ...]
    # Names and patterns that match a pattern of this domain but are served in another tier, so their queues do not
    # belong to this domain.
    excluded: tuple[str, ...] = ()

    @property
    def has_patterns(self) -> bool:
        """Whether the domain has patterns, so that some of its queues are not known by name. Redis stores the order in
        which the queues of such a domain are served."""
        return any(share.is_pattern for share in self.queues)


def domain_of(queues: Sequence[QueueShare], others: Iterable[str] = ()) -> Domain:
    """Return the domain of these queues. Pools that serve the same set of queues share a domain, regardless of the
    order in which they list the queues. `others` has the names and patterns of all tiers. Those that match a pattern of
    this domain but are served in another tier are excluded from the domain."""
    names = {share.name for share in queues}
    patterns = [share.name for share in queues if share.is_pattern]
    excluded = sorted({name for name in others if name not in names and any(fits(each, name) for each in patterns)})
    name = ",".join([*sorted(names), *(f"-{each}" for each in excluded)])
    if len(name) > LONGEST_DOMAIN:  # Redis stores the name in a field for each queue, so it should be short
        name = sha1_of(name.encode())
    return Domain(name, tuple(queues), tuple(excluded))


def pack_tiers(tiers: Iterable[Domain]) -> Packed:
    """Return the tiers, highest first, in the form that `turn` and `reap` take. A worker packs them only once."""
    return pack(tier_args(tiers))


def tier_args(tiers: Iterable[Domain]) -> list[str | int]:
    """Return the tiers as a list of arguments, which `pack_tiers` packs."""
    domains = list(tiers)
    args: list[str | int] = [len(domains)]
    for domain in domains:
        args += [domain.name, settings_of_domain(domain), len(domain.queues), *(share.name for share in domain.queues)]
    return args


def settings_of_domain(domain: Domain) -> str:
    """Return the settings of a domain's queues as a text for the scripts. For a domain without patterns, this is the
    result of `settings_of`. For a domain with patterns, the text lists all its queues and patterns, even those with
    default settings, and ` NAME=-` for each excluded queue or pattern. So this text alone determines which queues
    belong to the domain, and how they are served."""
    if not domain.has_patterns:
        return settings_of(domain.queues)
    return "".join([*map(_setting, domain.queues), *(f" {name}=-" for name in domain.excluded)])


def settings_of(shares: Iterable[QueueShare]) -> str:
    """Return the settings of queues as a text for the scripts. For each queue whose settings differ from the defaults,
    the text has ` QUEUE=` and the queue's `share_text`."""
    return "".join(_setting(share) for share in shares if share != QueueShare(share.name))


def _setting(share: QueueShare) -> str:
    return f" {share.name}={share_text(share)}"


def share_text(share: QueueShare) -> str:
    """Return the settings of one queue as a text for the scripts, without the queue's name. The text is `COST CAP
    INTERVAL BURST`, followed by `:CONDITION` if the queue has a condition. Only `read_share` and
    rota/lua/shared/share_text.lua parse this text."""
    cost = max(1, round(VIRTUAL_UNIT / share.weight))
    condition = f":{share.condition}" if share.condition else ""
    return f"{cost} {share.cap} {share.interval_us} {share.burst}{condition}"


def read_share(name: str, text: bytes) -> QueueShare:
    """Return the share of a queue from the `share_text` that masters published. If the text is empty because masters
    published no settings, return the defaults."""
    if not text:
        return QueueShare(name)
    numbers, _, condition = text.decode().partition(":")
    cost, cap, interval_us, burst = map(int, numbers.split())
    return QueueShare(name, VIRTUAL_UNIT / cost, cap, interval_us, burst, condition)


def read_tiers(packed: Packed) -> list[list[QueueShare]]:
    """Return the queues of each tier, highest first, from the result of `pack_tiers`.

    Raises ValueError or IndexError if the arguments do not have this form, for example because another program wrote
    the heartbeat that contains them.
    """
    args = unpack(packed)
    tiers = []
    at = 1
    for _ in range(int(args[0])):
        settings, number = args[at + 1], int(args[at + 2])
        if number < 1:
            raise ValueError("a tier without queues")
        texts = dict(_SETTING.findall(text_of(settings)))
        names = map(text_of, args[at + 3 : at + 3 + number])
        tiers.append([read_share(name, texts.get(name, "").encode()) for name in names])
        at += 3 + number
    return tiers


NO_TIERS = pack_tiers(())


def pack_limits(limits: Mapping[str, int]) -> Packed:
    """Return the limits of certain queues as one argument. From each of these queues, a turn may claim this many
    entries instead of the turn's `limit`. All limits are one argument, because a script searches a text faster than it
    reads a hundred arguments."""
    return pack(("".join(f" {queue}={limit}" for queue, limit in limits.items()),))


NO_LIMITS = pack_limits({})
