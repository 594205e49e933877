"""The duration of script calls, as the server measured it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import redis

import rota
from rota.protocol.scripts import load_script

MICROSECONDS = 1_000_000
_MOST_CALLS = 100_000


class SlowCall(NamedTuple):
    """A slow call of one of Rota's scripts, from the server's slow log."""

    script: str
    seconds: float


@contextmanager
def calls_over_a_millisecond(client: redis.Redis) -> Iterator[list[SlowCall]]:
    """Collect the script calls that took over a millisecond during a block. The list is filled at the end of the
    block.
    """
    kept = {name: client.config_get(name)[name] for name in ("slowlog-log-slower-than", "slowlog-max-len")}
    client.config_set("slowlog-log-slower-than", 1000)
    client.config_set("slowlog-max-len", _MOST_CALLS)
    client.slowlog_reset()
    calls: list[SlowCall] = []
    yield calls
    names = {load_script(path.stem).sha: path.stem for path in Path(rota.__file__).with_name("lua").glob("*.lua")}
    for call in client.slowlog_get(_MOST_CALLS):
        word, *args = call["command"].split(b" ")
        if word == b"EVALSHA":
            calls.append(SlowCall(names[args[0]], call["duration"] / MICROSECONDS))
    for name, value in kept.items():
        client.config_set(name, str(value))
