"""Foreign data in a fleet's keys: bytes that are not UTF-8, invalid or too large numbers, and values of wrong types.
Every function of `rota.protocol.keys` must be listed here, otherwise `every_key` raises an error.
"""

import inspect
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import redis

from rota.protocol.keys import Keys

TYPES: Final = {
    "absent": "string",  # the fleet never writes it, but another program might
    "tasks": "hash",
    "ready_lane": "list",
    "delayed_lane": "list",
    "delayed": "zset",
    "tickets": "hash",
    "former": "hash",
    "doorbell": "list",
    "poller_doorbell": "list",
    "ready": "set",
    "queues": "set",
    "owners": "zset",
    "lives": "string",
    "inflight": "list",
    "orders": "list",
    "scaling": "hash",
    "loads": "hash",
    "rotation": "hash",
    "rates": "hash",
    "rate": "string",
    "counts": "hash",
    "healing": "hash",
    "dead": "zset",
    "epitaphs": "hash",
    "ends": "string",
    "ends_sealed": "list",
    "ends_untold": "string",
    "sealed_ends": "string",
    "unique": "string",
    "unique_keys": "hash",
    "paused": "set",
    "closed": "hash",
    "conditions": "hash",
    "patterns": "hash",
    "idle": "zset",
    "turns": "zset",
    "times": "hash",
    "progress": "hash",
    "served": "hash",
    "shares": "hash",
    "consumers": "hash",
    "totals": "hash",
    "pulse": "hash",
    "sent": "string",
    "nodes": "hash",
    "result": "string",
    "waiters": "hash",
    "replies": "list",
    "members": "hash",
    "groups": "zset",
    "group": "hash",
    "group_members": "set",
    "meta": "hash",
    "events": "stream",
    "events_on": "hash",
    "schedules": "hash",
    "schedules_due": "zset",
    "schedules_declared": "zset",
    "schedules_alive": "hash",
}
"""The type of each key, according to docs/protocol.md."""

FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "rates": ("default", "rated"),
    "counts": ("running:default", "running:capped", "delayed:default", "dead:default"),
    "healing": ("running:default", "nonsense"),
    "served": ("default", "nobody"),
    "shares": ("default", "nobody"),
    "totals": ("nonsense", "accepted:nonsense"),
    "closed": ("default", "nobody"),
    "conditions": ("always", "nobody"),
    "pulse": ("from", "at", "grace_until", "lease", "lease_at", "walks_until", "walker", "adopts_until", "adopter"),
    "meta": ("nonsense", "ended_keep", "ended"),
    "schedules_alive": ("nonsense",),
    "members": ("nonsense",),
    "group": ("phase", "cursor", "total", "done", "ended_us", "awaited"),
}
"""Fields with numbers as values, and fields whose wrong values only do harm if scripts know them."""

DOMAIN: Final = "default"
LIVE: Final = "live"  # the id of a task that lives as long as the fleet
NUMBERS: Final = (b"-5", b"-9223372036854775808", b"9223372036854775807", b"1e300", b"nan", b"-nan", b"inf", b"-inf",
                  b"0x10", b"0.5", b"9999999999999999", b"9" * 400, b"")  # fmt: skip
SCORES: Final = ("-inf", "-5", "0", "1", "1e300", "+inf")
TEXTS: Final = (
    b"\xff\xfe",
    b" ",
    b"\x00\n\r\t",
    b"live default i 1 1 0 0 0 0 \xff",
    b"live\xff default i 1 1 0 0 0 0 -",
    b"gone default\xff i 1 1 0 0 0 0 -",
    b"gone default i " + b"9" * 300 + b" 1 0 0 0 0 -",
    b"gone default i 1 1 " + b"9" * 20 + b" 0 0 0 -",
    b"gone default i 1 1 0 0 0 0 -",
    b"default d " + b"9" * 30 + b" 0 0 0 -",
    b'["\xff","default","note",["x"]]',
    b'{"reason":"\\ud800","error":"half a pair"}',
    b"[" * 20_000,
)


@dataclass(frozen=True, slots=True)
class Place:
    """A key of the protocol: the name of the `Keys` function that returns it, the key itself, and the type of its
    value.
    """

    name: str
    key: str
    kind: str


def every_key(keys: Keys, owner: str) -> list[Place]:
    """Return one key for each function of `Keys`. The keys belong to a served queue, a living owner, or a live task."""
    given = {
        "queue": "default",
        "owner": owner,
        "unique_key": "k",
        "nonce": "n",
        "task_id": LIVE,
        "client": "c",
        "group": "g",
        "domain": DOMAIN,
        "name": "r",
        "number": "1",
        "node": owner.partition(":")[0],
        "pool": DOMAIN,
    }
    found = [Place(name, _key(keys, name, given), TYPES[name]) for name in _functions()]
    assert len(found) == len(TYPES), f"no keys: {sorted(TYPES.keys() - set(_functions()))}"
    return found


def _functions() -> list[str]:
    return [name for name in vars(Keys) if not name.startswith("_") and name != "namespace"]


def _key(keys: Keys, name: str, given: dict[str, str]) -> str:
    found = getattr(keys, name)
    if isinstance(found, str):
        return found
    key: str = found(*(given[word] for word in inspect.signature(found).parameters))
    return key


def plant(server: Any, place: Place, chance: random.Random) -> None:
    """Add foreign data, which includes a few random bytes, to a key."""
    texts = [*TEXTS, chance.randbytes(12)]
    match place.kind:
        case "hash":
            for name, value in _fields(place, texts, chance):
                server.hset(place.key, name, value)
        case "list":
            chance.shuffle(texts)
            server.rpush(place.key, *texts[::2])
            server.lpush(place.key, *texts[1::2])
        case "set":
            server.sadd(place.key, *texts)
        case "zset":
            for text in texts:
                server.execute_command("ZADD", place.key, chance.choice(SCORES), text)
        case "stream":
            for text in texts:
                server.xadd(place.key, {text: chance.choice(texts)})
        case _:
            server.set(place.key, chance.choice((*NUMBERS, *texts)))


def _fields(place: Place, texts: list[bytes], chance: random.Random) -> Iterator[tuple[Any, bytes]]:
    """Yield names and values for fields of a hash: foreign names with foreign values, and the names that Rota uses in
    this key with invalid numbers.
    """
    for text in texts:
        yield text, chance.choice(texts)
    for name in FIELDS.get(place.name, ()):
        yield name, chance.choice(NUMBERS)


class Overwritten:
    """A key that has a wrong type during a block of code. Afterwards its value is restored."""

    def __init__(self, server: "redis.Redis", place: Place) -> None:
        self._server = server
        self._key = place.key
        self._aside = f"aside:{place.key}"
        self._is_string = place.kind == "string"

    def __enter__(self) -> None:
        """Replace the key in one step, so that no other client can create it in between."""
        with self._server.pipeline() as step:
            if self._server.exists(self._key):
                step.rename(self._key, self._aside)
            if self._is_string:
                step.rpush(self._key, "x")
            else:
                step.set(self._key, "x")
            step.execute()

    def __exit__(self, *_: object) -> None:
        with self._server.pipeline() as step:
            step.delete(self._key)
            if self._server.exists(self._aside):
                step.rename(self._aside, self._key)
            step.execute()
