"""How long scripts took, as the server saw it."""

from collections.abc import Iterator
from contextlib import contextmanager

import redis

MICROSECONDS = 1_000_000


@contextmanager
def calls_over_a_millisecond(client: redis.Redis) -> Iterator[list[float]]:
    """What scripts took meanwhile, filled in at the end: those over a millisecond."""
    kept = {name: client.config_get(name)[name] for name in ("slowlog-log-slower-than", "slowlog-max-len")}
    client.config_set("slowlog-log-slower-than", 1000)
    client.config_set("slowlog-max-len", 100_000)
    client.slowlog_reset()
    seconds: list[float] = []
    yield seconds
    slow = client.slowlog_get(100_000)
    seconds += [call["duration"] / MICROSECONDS for call in slow if b"EVALSHA" in call["command"]]
    for name, value in kept.items():
        client.config_set(name, str(value))
