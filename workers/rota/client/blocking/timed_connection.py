"""A client's blocking connections: the fleet's own, of which all that is waited for ends by one deadline."""

import math
import os
import select
import time
from contextlib import suppress
from typing import Any, Final

from rota.server.connection import ConnectionOptions, wait_for
from rota.server.endpoint import Endpoint
from rota.server.server_errors import REASON_NETWORK, REASON_SILENT, ConnectionLost

_NAME: Final = "rota:client"


class TimedConnection:
    """A connection for commands that write. Each step of what is said on it ends by the deadline (monotonic): each
    address that is tried, what sentinels are asked, the handshakes, the greeting, and each answer. The look-up of a
    host's name alone is bound by resolv.conf. `is_known`: there was an exchange by it already."""

    def __init__(self, endpoint: Endpoint, seconds: float, deadline: float = math.inf) -> None:
        """Connect; no step takes more than so many seconds. Raises ServerError."""
        self.is_known = False
        self._pid = os.getpid()
        self._deadline = _Deadline(deadline)
        self._connection = endpoint.connect(ConnectionOptions(_NAME, seconds, seconds, self._deadline.wait))
        if time.monotonic() >= deadline:  # of an application's pool, which has timeouts of its own
            self._connection.give_back()
            raise ConnectionLost("there was a connection only when the time was over", REASON_SILENT)
        self.send = self._connection.send
        self.receive = self._connection.receive
        self.try_receive = self._connection.try_receive
        self.fileno = self._connection.fileno
        self._news = select.poll()
        self._news.register(self, select.POLLIN)

    def __del__(self) -> None:
        with suppress(AttributeError):  # it never came to a connection
            self._connection.close()  # nobody is to be warned of a client that was not closed

    def allow(self, deadline: float) -> None:
        """Have what follows end by then."""
        self._deadline.at = deadline

    @property
    def is_quiet(self) -> bool:
        """Whether it is of this process, and there is nothing to read that nobody asked for: no answer that was left
        unread, and no end."""
        return self._pid == os.getpid() and self.fileno() >= 0 and not self._news.poll(0)

    def ask(self, data: bytes) -> Any:
        """Send a command and wait for its reply. Raises ServerError: error replies too."""
        self.send(data)
        return self.receive()

    def give_back(self) -> None:
        """Return the connection to the pool that lent it: all that was sent on it is answered."""
        self._connection.give_back()

    def close(self) -> None:
        """Close it, whoever waits on it; of the parent of a fork this process's copy alone. May be repeated."""
        self._connection.close(everywhere=self._pid == os.getpid())


class _Deadline:
    def __init__(self, at: float) -> None:
        self.at = at

    def wait(self, fd: int, events: int, seconds: float) -> bool:
        """The `Wait` of a connection, which ends by then."""
        if fd < 0:
            raise ConnectionLost("another thread closed the client", REASON_NETWORK)
        return wait_for(fd, events, min(seconds, self.at - time.monotonic()))
