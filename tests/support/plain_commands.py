"""A connection that sends many plain Redis commands in one exchange. Reading dozens of keys after each step would be
too slow with redis-py.
"""

import socket
from collections.abc import Iterable
from typing import Any, Final

import hiredis

_READ_BYTES: Final = 65536
_PATIENCE_SECONDS: Final = 30.0


class PlainCommands:
    """A connection over the server's Unix socket. Replies are texts, numbers and lists, as in RESP2."""

    def __init__(self, socket_path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_PATIENCE_SECONDS)
        self._socket.connect(socket_path)
        self._reader = hiredis.Reader(encoding="utf-8", replyError=AssertionError)

    def close(self) -> None:
        self._socket.close()

    def run(self, commands: Iterable[tuple[str | int, ...]]) -> list[Any]:
        """Return the replies in the order of the commands. Raises AssertionError if one is an error."""
        packed = [hiredis.pack_command(command) for command in commands]  # type: ignore[arg-type]  # its stub allows one word only
        self._socket.sendall(b"".join(packed))
        return [self._next() for _ in packed]

    def _next(self) -> Any:
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(_READ_BYTES)
            assert data, "the server closed the connection"
            self._reader.feed(data)
        if isinstance(reply, AssertionError):
            raise reply
        return reply
