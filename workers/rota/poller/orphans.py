"""The scan for in-flight lists whose owner nobody registered.

Scripts never scan keys, so the client does: a few portions of SCAN a second, that a server with a million
keys does not notice, begun anew each lease.
"""

from collections.abc import Iterator
from typing import Final

from rota.protocol.keys import Keys
from rota.server.connection import Connection

SCAN_COUNT: Final = 1000
PORTIONS_A_ROUND: Final = 10
OWNERS_A_CALL: Final = 100


class OrphanScan:
    """One walk over the keys of the server, in portions."""

    def __init__(self, keys: Keys) -> None:
        self._prefix = keys.inflight("")
        self._cursor = b"0"
        self.over = False

    def portion(self, connection: Connection) -> list[str]:
        """Look at the next keys; the owners of the in-flight lists among them. Raises ServerError."""
        owners: list[str] = []
        for _ in range(PORTIONS_A_ROUND):
            self._cursor, keys = connection.execute(
                "SCAN", self._cursor, "MATCH", f"{self._prefix}*", "COUNT", SCAN_COUNT
            )
            owners += [key.decode().removeprefix(self._prefix) for key in keys]
            if self._cursor == b"0":
                self.over = True
                break
        return owners


def in_batches(owners: list[str]) -> Iterator[list[str]]:
    """Owners in lists short enough for one call."""
    for start in range(0, len(owners), OWNERS_A_CALL):
        yield owners[start : start + OWNERS_A_CALL]
