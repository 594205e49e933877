"""A parser of replies in RESP2 and RESP3, for applications that only enqueue tasks and have not installed hiredis.

It provides the methods of `hiredis.Reader` that `session` uses. A test checks that both parsers return the same values.
"""

from collections.abc import Callable
from typing import Any, Final

_END: Final = b"\r\n"


class ProtocolError(Exception):
    """Raised if the data is not RESP."""


class PushNotification(list[Any]):
    """A push message of RESP3, which the server sends without a request."""


class _Incomplete(Exception):
    """Raised if a reply is read before all of it has arrived."""


class Reader:
    """A parser that takes bytes as they arrive, and returns complete replies."""

    def __init__(self, replyError: Callable[[str], Any], notEnoughData: object) -> None:  # noqa: N803 - as hiredis has them
        self.error_of = replyError
        self._nothing = notEnoughData
        self._buffer = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Add bytes that were read from the connection."""
        self._buffer += data

    def gets(self) -> Any:
        """Return the next reply if all of it has arrived, or else `notEnoughData`. Raises ProtocolError if the data is
        not RESP."""
        self._at = 0
        try:
            reply = self.reply()
        except _Incomplete:
            return self._nothing
        except ValueError as error:
            raise ProtocolError(str(error)) from None
        del self._buffer[: self._at]
        return reply

    def reply(self) -> Any:
        """Parse the next reply in the buffered bytes."""
        line = self._line()
        kind = line[:1]
        rest = line[1:]
        read = _READ.get(kind)
        if read is None:
            raise ProtocolError(f"no reply begins with {kind!r}")
        return read(self, rest)

    def _line(self) -> bytes:
        end = self._buffer.find(_END, self._at)
        if end < 0:
            raise _Incomplete
        line = bytes(self._buffer[self._at : end])
        self._at = end + len(_END)
        return line

    def bulk(self, length: bytes) -> bytes | None:
        """Parse a string of `length` bytes. Returns None for a null."""
        size = int(length)
        if size < 0:
            return None
        begin = self._at
        self._at = self._at + size + len(_END)
        if len(self._buffer) < self._at:
            raise _Incomplete
        return bytes(self._buffer[begin : begin + size])

    def array(self, length: bytes) -> list[Any] | None:
        """Parse a list of `length` replies. Returns None for a null."""
        size = int(length)
        return None if size < 0 else [self.reply() for _ in range(size)]

    def error(self, text: bytes) -> Any:
        """Return the object that represents an error reply."""
        return self.error_of(text.decode(errors="replace"))


_READ: Final[dict[bytes, Callable[[Reader, bytes], Any]]] = {
    b"+": lambda _, text: text,
    b"-": Reader.error,
    b":": lambda _, text: int(text),
    b"$": Reader.bulk,
    b"*": Reader.array,
    b">": lambda reader, text: PushNotification(reader.array(text) or ()),
    b"_": lambda _, __: None,
    b"#": lambda _, text: text == b"t",
    b",": lambda _, text: float(text),
    b"%": lambda reader, text: {reader.reply(): reader.reply() for _ in range(int(text))},
    b"~": lambda reader, text: set(reader.array(text) or ()),
    b"=": lambda reader, text: (reader.bulk(text) or b"")[len("txt:") :],
}
