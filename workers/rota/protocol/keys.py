"""The names that people choose, and all keys of the protocol. No other module contains the text of a key.

The rules for names apply to queues, tasks, task ids, namespaces and nodes. Names become parts of keys and fields of
space-separated entries, so they contain no spaces, braces or characters that are special in Lua patterns.

A pattern, for example `tenant-*`, stands for every queue whose name begins with `tenant-`. A queue is served under its
own name if that name is in the tiers, and otherwise under the longest pattern that matches its name. A queue is
therefore served in the same tier in every pool. The scripts match names in the same way; see
rota/lua/shared/matching.lua.

A script declares two keys: the `tasks` hash (KEYS[1]), and `absent` (KEYS[2]), which never exists. It computes all
other keys from the prefix of KEYS[1]. All keys of a namespace share the hash tag `{namespace}`, so in a cluster they
are in the same slot. While a slot is being moved to another node, its old node has only some of the keys, and a script
that needed one of the others would fail in the middle. But the node refuses a command in advance if one of the declared
keys is missing. Because `absent` is always missing, the node refuses every script until the slot has moved.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rota.display_text import HIDDEN

MOST_CHARACTERS: Final = 128
NAME = re.compile(rf"[A-Za-z0-9_.:-]{{1,{MOST_CHARACTERS}}}", re.ASCII)
# Replaces the task's name in metrics and logs if the task is not registered or its body has not been read yet.
UNKNOWN_TASK: Final = "_unknown"
DELAYED_SUFFIX = "-delayed"
# Do not quote a URL that someone gave in place of a name, because it may contain a password.
_MAY_BE_SECRET: Final = re.compile(r"@|//")


def is_name(text: str) -> bool:
    """Whether the text is a valid name for a task, an id, a namespace or a node."""
    return NAME.fullmatch(text) is not None


def fault_in_name(what: str, text: str, most: int = MOST_CHARACTERS) -> str | None:
    """Return why a name is not valid, or None if it is valid. `what` is the kind of name for the message, for example
    "queue name"."""
    if is_name(text) and len(text) <= most:
        return None
    shown = HIDDEN if _MAY_BE_SECRET.search(text) else repr(text)
    return f"{what} {shown} is not valid: a name has 1 to {most} of the characters A-Z a-z 0-9 _ . : -"


def fault_in_queue_name(text: str) -> str | None:
    """Return why a queue name is not valid, or None if it is valid."""
    if "*" in text:
        return f"queue name {text!r} is a pattern, which is allowed only in tiers and pools: name a single queue"
    if text.endswith(DELAYED_SUFFIX):
        return f"queue name {text!r} may not end in {DELAYED_SUFFIX!r}: that suffix names the delayed lane of a queue"
    return fault_in_name("queue name", text)


STAR = "*"


def is_pattern(name: str) -> bool:
    """Whether a name in a tier is a pattern."""
    return name.endswith(STAR)


def fault_in_pattern(text: str) -> str | None:
    """Return why a pattern is not valid, or None if it is valid."""
    prefix = text.removesuffix(STAR)
    if STAR in prefix:
        return f"pattern {text!r} is not valid: {STAR} may appear only at its end"
    return fault_in_name("pattern", prefix)


def fits(pattern: str, queue: str) -> bool:
    """Whether the pattern matches `queue`, which is the name of a queue or a longer pattern."""
    return queue != pattern and queue.startswith(pattern.removesuffix(STAR))


def served_as(queue: str, names: Iterable[str]) -> str | None:
    """Return the name or pattern in `names` under which a queue is served: its own name, or else the longest pattern
    that matches this name. Returns None if no name matches."""
    fitting = [name for name in names if name == queue or (is_pattern(name) and fits(name, queue))]
    return queue if queue in fitting else max(fitting, key=len, default=None)


PROTOCOL_VERSION: Final = 1


class _Single:
    """A key that exists once in a namespace, as an attribute of `Keys`. `rest` is the part of the key after the hash
    tag."""

    def __init__(self, rest: str) -> None:
        self._rest = rest

    def __get__(self, keys: "Keys", _: object = None) -> str:
        return keys._key(self._rest)  # noqa: SLF001 - both classes form one unit


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one namespace."""

    namespace: str

    tasks = _Single("tasks")
    absent = _Single("absent")
    delayed = _Single("delayed")
    tickets = _Single("tickets")
    former = _Single("former")
    poller_doorbell = _Single("doorbell")
    ready = _Single("ready")
    queues = _Single("queues")
    owners = _Single("owners")
    lives = _Single("lives")
    rotation = _Single("rotation")
    rates = _Single("rates")
    counts = _Single("counts")
    healing = _Single("healing")
    dead = _Single("dead")
    epitaphs = _Single("epitaphs")
    unique_keys = _Single("keys")
    paused = _Single("paused")
    closed = _Single("closed")
    conditions = _Single("conditions")
    patterns = _Single("patterns")
    idle = _Single("idle")
    progress = _Single("progress")
    served = _Single("served")
    shares = _Single("shares")
    consumers = _Single("consumers")
    totals = _Single("totals")
    ends = _Single("ends")
    ends_sealed = _Single("ends-sealed")
    ends_untold = _Single("ends-untold")
    pulse = _Single("pulse")
    nodes = _Single("nodes")
    meta = _Single("meta")
    events = _Single("events")
    events_on = _Single("events-on")
    waiters = _Single("waiters")
    members = _Single("members")
    groups = _Single("groups")
    schedules = _Single("schedules")
    schedules_due = _Single("schedules-due")
    schedules_declared = _Single("schedules-declared")
    schedules_alive = _Single("schedules-alive")

    def _key(self, rest: str) -> str:
        return f"{{{self.namespace}}}:{rest}"

    def ready_lane(self, queue: str) -> str:
        return self._key(f"queue:{queue}")

    def delayed_lane(self, queue: str) -> str:
        return self._key(f"queue:{queue}-delayed")

    def doorbell(self, queue: str) -> str:
        return self._key(f"doorbell:{queue}")

    def inflight(self, owner: str) -> str:
        return self._key(f"inflight:{owner}")

    def turns(self, domain: str) -> str:
        return self._key(f"turns:{domain}")

    def times(self, domain: str) -> str:
        return self._key(f"times:{domain}")

    def scaling(self, pool: str) -> str:
        return self._key(f"scaling:{pool}")

    def loads(self, pool: str) -> str:
        return self._key(f"loads:{pool}")

    def orders(self, node: str) -> str:
        return self._key(f"orders:{node}")

    def unique(self, unique_key: str) -> str:
        return self._key(f"unique:{unique_key}")

    def rate(self, name: str) -> str:
        return self._key(f"rate:{name}")

    def sent(self, name: str) -> str:
        return self._key(f"sent:{name}")

    def result(self, task_id: str) -> str:
        return self._key(f"result:{task_id}")

    def group(self, group: str) -> str:
        return self._key(f"group:{group}")

    def group_members(self, group: str) -> str:
        return self._key(f"group-members:{group}")

    def sealed_ends(self, number: int | str) -> str:
        return self._key(f"ends:{number}")

    def replies(self, client: str) -> str:
        return self._key(f"replies:{client}")


HELD_WITH_TASKS: Final = frozenset({"tasks", "tickets", "epitaphs", "keys", "members", "delayed", "dead"})
"""The keys, apart from lists, whose content an export stores with the tasks."""

COPIED: Final[Mapping[str, str]] = {
    "former": "hash",
    "queues": "set",
    "paused": "set",
    "rates": "hash",
    "rate:": "string",
    "unique:": "string",
    "lives": "string",
    "meta": "hash",
    "totals": "hash",
    "sent:": "string",
    "result:": "string",
    "groups": "zset",
    "group:": "hash",
    "group-members:": "set",
    "schedules": "hash",
    "schedules-due": "zset",
    "schedules-declared": "zset",
    "schedules-alive": "hash",
    "ends": "string",
    "ends:": "string",
    "ends-untold": "string",
    "ends-sealed": "list",
}
"""The keys that an export copies unchanged, with their types. A name that ends with a colon stands for all keys that
begin with it."""

REBUILT: Final = frozenset(
    {
        *("doorbell", "doorbell:", "ready", "owners", "rotation", "counts", "healing", "closed", "conditions"),
        *("patterns", "turns:", "times:", "idle", "progress", "served", "shares", "consumers", "pulse", "nodes"),
        *("events", "events-on", "waiters", "replies:", "orders:", "scaling:", "loads:"),
    }
)
"""The keys that no export contains, because a fleet or the import writes them again."""


def family_of(name: str) -> str:
    """Return the family of a key, which is given without its prefix. The family is the part up to the first colon, for
    example `group:`, or the whole key if it has no colon."""
    return name if ":" not in name else name[: name.index(":") + 1]


def prefix_of(keys: Keys) -> str:
    """Return the prefix with which all keys of a namespace begin."""
    return keys._key("")  # noqa: SLF001 - `_key` belongs to this module


def pattern_of_all(keys: Keys) -> str:
    """Return the SCAN pattern that matches every key of a namespace."""
    return keys._key("*")  # noqa: SLF001 - `_key` belongs to this module


def pattern_of_lists(keys: Keys) -> str:
    """Return the SCAN pattern of lanes, in-flight lists and keys that look like lanes. It matches few other keys. The
    namespace needs no escapes, because its name has no characters that are special in patterns."""
    return f"*{keys.namespace}*[iq]*"


def fault_of_lane(keys: Keys, key: str) -> str:
    """Return what is wrong with a key that looks like a lane of the namespace but is not one, for example because its
    prefix is misspelt. Returns "" for a lane, and for any other key."""
    lane = keys.ready_lane("")
    looks = _lookalike(keys.namespace).fullmatch(key)
    queue = key.removeprefix(lane) if key.startswith(lane) else looks["queue"] if looks else ""
    if not queue:
        return ""
    fault = fault_in_queue_name(queue.removesuffix(DELAYED_SUFFIX))
    if fault is not None:
        return fault
    return "" if key.startswith(lane) else f"the key of queue {queue} is {lane}{queue}"


@lru_cache(maxsize=1)
def _lookalike(namespace: str) -> re.Pattern[str]:
    return re.compile(rf"\{{?{re.escape(namespace)}\}}?:?queues?:(?P<queue>[^{{}}]+)\}}?", re.DOTALL)
