"""What is settled before anything is spawned: names, the listening socket, the server."""

import errno
import os
import re
import socket
from pathlib import Path
from typing import Final

from rota.child.slots import SlotMemory
from rota.protocol.store import Store
from rota.server.address import parse_address, redact
from rota.server.aio_connection import AioConnection, Watch
from rota.server.server_errors import ConnectionLost, PushedBack, ServerError
from rota_supervisor import server_check
from rota_supervisor.config.model import Config
from rota_supervisor.layout import SLOTS
from rota_supervisor.master.exits import CannotRun, MasterExit
from rota_supervisor.master.reload import oversized_pools

BACKLOG: Final = 128
_STDERR: Final = 2
_HOST_CHARACTERS: Final = 64
_STRANGE: Final = re.compile(r"[^A-Za-z0-9_.-]")


def node_name() -> str:
    """The host's name, and something that no other master's life has: a name is never used twice."""
    host = _STRANGE.sub("-", socket.gethostname())[:_HOST_CHARACTERS] or "host"
    return f"{host}.{os.urandom(4).hex()}"


def keep_to_ourselves() -> None:
    """Mark every descriptor that our parent left open, so that no child inherits it."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > _STDERR:
            _close_on_exec(int(entry.name))


def _close_on_exec(fd: int) -> None:
    try:
        os.set_inheritable(fd, False)
    except OSError:  # the descriptor of the listing itself
        return


def make_slots() -> SlotMemory:
    """The shared memory of the fleet; slot 0 is taken by this process."""
    memory = SlotMemory.create(SLOTS)
    own = memory.slot(0)
    own.begin(1)
    own.enter(1, os.getpid())
    return memory


def check_sizes(config: Config) -> None:
    """Raises CannotRun 78 for pools that no zygote could be told of."""
    faults = oversized_pools(config)
    if faults:
        raise CannotRun(MasterExit.CONFIG, *map(str, faults))


def bind(listen: str) -> socket.socket:
    """Listen at `host:port`. Raises CannotRun 73 when the place is taken, 78 when there is no such place."""
    host, _, port = listen.rpartition(":")
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((bare, int(port)))
        listening.listen(BACKLOG)
    except (OSError, ValueError, OverflowError) as error:
        listening.close()
        raise _cannot_listen(listen, error) from None
    return listening


def _cannot_listen(listen: str, error: Exception) -> CannotRun:
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno == errno.EADDRINUSE):
        return CannotRun(
            MasterExit.TAKEN,
            f"http.listen = {listen!r}: {error.strerror}: stop what listens there, choose another port, "
            'or turn it off with ""',
        )
    return CannotRun(MasterExit.CONFIG, f"http.listen = {listen!r} cannot be listened at: {error}")


def connect(config: Config, watch: Watch) -> AioConnection:
    """The master's connection; nothing is sent yet."""
    return AioConnection(parse_address(config.redis_url), "rota:master", watch=watch)


async def check_server(connection: AioConnection, store: Store, config: Config) -> None:
    """See that the server can be reached and is fit. Raises CannotRun, 69 or 78."""
    where = redact(config.redis_url)
    try:
        faults = await _faults_of_server(connection, store, config.namespace)
    except (ConnectionLost, PushedBack) as error:
        advice = "start it, or set redis_url (or ROTA_REDIS_URL) to the right place"
        raise CannotRun(MasterExit.UNREACHABLE, f"Redis at {where} is not reachable: {error}: {advice}") from None
    except ServerError as error:
        advice = "check the user, the password and its permissions in redis_url"
        raise CannotRun(MasterExit.UNREACHABLE, f"Redis at {where} cannot be used: {error}: {advice}") from None
    if faults:
        raise CannotRun(MasterExit.CONFIG, *(f"Redis at {where}: {text}" for text in faults))


async def _faults_of_server(connection: AioConnection, store: Store, namespace: str) -> list[str]:
    info = server_check.parse_info((await connection.execute("INFO")).decode(errors="replace"))
    faults = server_check.faults_of_server(info)
    if faults:  # judged before any script runs: an old server cannot even read their first line
        return faults
    fault = server_check.fault_of_protocol(await connection.run(store.open()), namespace)
    return [fault] if fault else []
