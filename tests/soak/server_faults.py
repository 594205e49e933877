"""Faults of the server: it forgets scripts, closes connections, pauses, stalls, runs out of memory, loses keys, or is
killed.
"""

import contextlib
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rota.protocol.keys import Keys
from soak.act import Act
from soak.faults import Fault
from soak.load import ORDER, TIERS
from soak.node import NAMESPACE
from support.servers import Server

_TIMEOUT_SECONDS: Final = 1.0
_KEYS: Final = Keys(NAMESPACE)


def choose(fault: Fault, server: Server, seconds: float, _random: Random) -> Act:
    """Return the steps of a fault that affects the server."""
    return _ACTS[fault](server, seconds)


def _execute(server: Server, *command: Any) -> None:
    """Send a command on a separate connection, and ignore errors."""
    with (
        contextlib.suppress(redis.exceptions.RedisError, OSError),
        redis.Redis.from_url(server.url, socket_timeout=_TIMEOUT_SECONDS, retry=Retry(NoBackoff(), 0)) as client,
    ):
        client.execute_command(*command)


def _repeated(*command: Any) -> Callable[[Server, float], Act]:
    def make(server: Server, _seconds: float) -> Act:
        def execute() -> None:
            _execute(server, *command)

        return Act(execute, again=execute, detail=" ".join(map(str, command)))

    return make


def _once(*command: Any) -> Callable[[Server, float], Act]:
    return lambda server, _seconds: Act(lambda: _execute(server, *command), detail=" ".join(map(str, command)))


def _pause_writes(server: Server, seconds: float) -> Act:
    pause = ("CLIENT", "PAUSE", round(seconds * 1000), "WRITE")
    return Act(lambda: _execute(server, *pause), undo=lambda: _execute(server, "CLIENT", "UNPAUSE"))


def _sleep(server: Server, seconds: float) -> Act:
    # The reply comes only at the end of the pause, and nobody reads it.
    client = redis.Redis.from_url(server.url, socket_timeout=seconds + _TIMEOUT_SECONDS)

    def do() -> None:
        connection = client.connection_pool.get_connection()
        connection.send_command("DEBUG", "SLEEP", seconds)  # type: ignore[no-untyped-call]  # redis-py does not type it

    return Act(do, undo=client.close)


def _kill(server: Server, _seconds: float) -> Act:
    return Act(server.kill, undo=server.start, pids=(server.pid,))


def _fill(server: Server, _seconds: float) -> Act:
    return Act(
        lambda: _execute(server, "CONFIG", "SET", "maxmemory", "1"),
        undo=lambda: _execute(server, "CONFIG", "SET", "maxmemory", "0"),
    )


def _bells() -> Iterable[str]:
    return [_KEYS.poller_doorbell, *(_KEYS.doorbell(queue) for queue in (*sum(TIERS, ()), ORDER))]


_ACTS: Final[dict[Fault, Callable[[Server, float], Act]]] = {
    Fault.FLUSH_SCRIPTS: _repeated("SCRIPT", "FLUSH"),
    Fault.KILL_CLIENTS: _repeated("CLIENT", "KILL", "TYPE", "normal"),
    Fault.PAUSE_WRITES: _pause_writes,
    Fault.SERVER_SLEEP: _sleep,
    Fault.KILL_SERVER: _kill,
    Fault.LONG_OUTAGE: _kill,
    Fault.FILL_MEMORY: _fill,
    Fault.DELETE_DOORBELLS: _repeated("DEL", *_bells()),
    Fault.DELETE_SERVED: _once("DEL", _KEYS.served),
    Fault.DELETE_OWNERS: _once("DEL", _KEYS.owners),
}
