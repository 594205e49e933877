"""Look up a server's name beside an event loop, in a thread that nobody waits for at the end.

asyncio's own lookup runs in the loop's default executor, which `asyncio.run` joins: a resolver that hung for 20 s held
a master's TERM for as long, beyond every deadline.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Final

_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)

Found = list[str] | OSError


class Resolver:
    """Looks up names. Whoever asks for a name that is being looked up waits for the same answer, so a resolver that
    hangs takes one thread a name, however often it is asked again."""

    def __init__(self) -> None:
        self._going: dict[str, asyncio.Future[Found]] = {}

    async def addresses_of(self, host: str) -> list[str]:
        """The addresses of a host, the best first; its own text when that is one. Raises OSError."""
        if _is_address(host):
            return [host]
        going = self._going.get(host) or self._begin(host)
        found = await asyncio.shield(going)  # whoever gives up leaves it to the others
        if isinstance(found, OSError):
            raise found
        return found

    def _begin(self, host: str) -> "asyncio.Future[Found]":
        loop = asyncio.get_running_loop()

        def tell(found: Found) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._end, host, found)

        try:
            threading.Thread(target=_look_up, args=(host, tell), daemon=True, name="rota-resolver").start()
        except RuntimeError as error:  # there may be no further thread now
            raise OSError(str(error)) from error
        self._going[host] = going = loop.create_future()
        return going

    def _end(self, host: str, found: Found) -> None:
        going = self._going.pop(host)
        if not going.done():
            going.set_result(found)


def _look_up(host: str, tell: Callable[[Found], None]) -> None:
    found: Found
    try:
        found = list(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)))
    except OSError as error:
        found = error
    except UnicodeError as error:  # a label that is empty or too long
        found = OSError(f"{host!r} is no host name: {error}")
    tell(found)


def _is_address(host: str) -> bool:
    for family in _FAMILIES:
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return True
    return False
