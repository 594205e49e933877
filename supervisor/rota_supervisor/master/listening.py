"""The exporter's listening socket: the master's, so that no scrape is refused while the exporter is replaced."""

import errno
import socket
from typing import Final

from rota.telemetry import events, log
from rota_supervisor.exits import ExitCode, Failure

BACKLOG: Final = 128


class Listening:
    """The socket in use, and the one bound for a configuration that is not in force yet."""

    def __init__(self) -> None:
        self._wanted = ""
        self._socket: socket.socket | None = None
        self._prepared: tuple[str, socket.socket] | None = None

    def prepare(self, wanted: str) -> None:
        """Bind a place without using it yet; "" and the place in use need nothing. Raises Failure."""
        self._drop_prepared()
        if wanted and wanted != self._wanted:
            self._prepared = (wanted, bind(wanted))

    def use(self, wanted: str) -> None:
        """Listen there from now on, and nowhere for ""; the exporter at the old place has its own copy."""
        if wanted == self._wanted:
            return
        if wanted and (self._prepared is None or self._prepared[0] != wanted):
            try:
                self.prepare(wanted)
            except Failure as error:  # going back to a place that is taken meanwhile: stay where we are
                log.logger().error(events.CONFIG_WARNING, path="http.listen", warning=str(error))
                return
        self._close()
        self._wanted = wanted
        if wanted and self._prepared is not None:
            self._socket, self._prepared = self._prepared[1], None

    @property
    def fd(self) -> int | None:
        """What the next exporter inherits, or None when there is nothing to listen at."""
        return None if self._socket is None else self._socket.fileno()

    @property
    def place(self) -> str:
        """`host:port` as it is, with the port that was picked; "" for none."""
        if self._socket is None:
            return ""
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """Close everything."""
        self._drop_prepared()
        self._close()

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _drop_prepared(self) -> None:
        if self._prepared is not None:
            self._prepared[1].close()
            self._prepared = None


def bind(listen: str) -> socket.socket:
    """Listen at `host:port`. Raises Failure 73 when the place is taken, 78 when there is no such place."""
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


def _cannot_listen(listen: str, error: Exception) -> Failure:
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno == errno.EADDRINUSE):
        return Failure(
            ExitCode.TAKEN,
            f"http.listen = {listen!r}: {error.strerror}: stop what listens there, choose another port, "
            'or turn it off with ""',
        )
    return Failure(ExitCode.CONFIG, f"http.listen = {listen!r} cannot be listened at: {error}")
