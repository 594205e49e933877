"""Watch the configuration's file by what stands in it, and the code in development: who asks for a reload unasked.

Neither may hold the loop up, and a file may lie on a mount that hangs. So each is read and waited for in a thread of
its own, which nobody waits for when the master leaves.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from rota_supervisor.master.effects.background import beside

LOOK_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 0.1  # an editor that writes in place empties the file first
BURST_MS: Final = 200  # a burst of saves ends with so long a silence
LONGEST_BURST_MS: Final = 2000


class ConfigWatch:
    """Asks for a reload when another content stands in the file, once a content.

    What counts is the content that was loaded last: a file replaced, a link that leads elsewhere and a mounted
    ConfigMap are all read anew. A file that is gone is no content.
    """

    def __init__(self, file: Path, loaded: Callable[[], bytes | None], reload: Callable[[], object]) -> None:
        """`loaded`: the content that was loaded last."""
        self._file = file
        self._loaded = loaded
        self._reload = reload
        self._asked: bytes | None = None

    async def watch(self, is_wanted: Callable[[], bool]) -> None:
        """Look about once a second while that is wanted, for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if is_wanted():
                with contextlib.suppress(OSError):  # there may be no further thread now
                    await self.look()

    async def look(self) -> None:
        """Look once."""
        content = await beside(self._read)
        if not self._is_new(content):
            return
        await asyncio.sleep(SETTLE_SECONDS)
        if await beside(self._read) == content and self._is_new(content):
            self._asked = content
            self._reload()

    def _is_new(self, content: bytes | None) -> bool:
        return content is not None and content not in (self._loaded(), self._asked)

    def _read(self) -> bytes | None:
        try:
            return self._file.read_bytes()
        except OSError:
            return None


async def watch_code(folders: Iterable[str], restart: Callable[[], object]) -> None:
    """For development: call `restart` after each burst of changes of Python code below the folders, for ever."""
    stop = threading.Event()
    bursts = _bursts(folders, stop)
    try:
        while await beside(lambda: next(bursts, None)):
            restart()
    finally:
        stop.set()


def _bursts(folders: Iterable[str], stop: threading.Event) -> Iterator[object]:
    from watchfiles import PythonFilter, watch  # noqa: PLC0415 - an extra, and memory that only this is worth

    yield from watch(
        *dict.fromkeys(folders), watch_filter=PythonFilter(), step=BURST_MS, debounce=LONGEST_BURST_MS, stop_event=stop
    )
