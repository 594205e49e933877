"""Every key of the protocol, as a function: nothing else spells one.

All keys of a fleet share the hash tag `{namespace}`, so that a script's computed keys are on the
shard of the one key it is given (KEYS[1], always the `tasks` hash; Lua cuts the prefix from it).
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rota.protocol.names import DELAYED_SUFFIX, fault_in_queue_name

PROTOCOL_VERSION: Final = 1


class _Single:
    """A key of which a namespace has one: `rest` is what follows the tag."""

    def __init__(self, rest: str) -> None:
        self._rest = rest

    def __get__(self, keys: "Keys", _: object = None) -> str:
        return keys._key(self._rest)  # noqa: SLF001 - two halves of one thing


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one namespace."""

    namespace: str

    tasks = _Single("tasks")
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


def pattern_of_all(keys: Keys) -> str:
    """What SCAN finds every key of a namespace by."""
    return keys._key("*")  # noqa: SLF001 - as above


def pattern_of_lists(keys: Keys) -> str:
    """Return the SCAN pattern of lanes, in-flight lists and keys that look like lanes; few other keys match it. A
    namespace has no special characters of patterns."""
    return f"*{keys.namespace}*[iq]*"


def fault_of_lane(keys: Keys, key: str) -> str:
    """Return why a key that looks like a lane of the namespace is not one; "" for a lane and for any other key."""
    lane = keys.ready_lane("")
    looks = _lookalike(keys.namespace).fullmatch(key)
    queue = key.removeprefix(lane) if key.startswith(lane) else looks["queue"] if looks else ""
    if not queue:
        return ""
    fault = fault_in_queue_name(queue.removesuffix(DELAYED_SUFFIX))
    if fault is not None:
        return fault
    return "" if key.startswith(lane) else f"the key of that queue is {lane}{queue}"


@lru_cache(maxsize=1)
def _lookalike(namespace: str) -> re.Pattern[str]:
    return re.compile(rf"\{{?{re.escape(namespace)}\}}?:?queues?:(?P<queue>[^{{}}]+)\}}?", re.DOTALL)
