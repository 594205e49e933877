"""Automatic reloads after a change of the configuration file or, in development, of the code.

A file can be on a mount that hangs, but the master's loop must not block. Files are therefore read in separate threads,
for which the master does not wait when it exits.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from rota_supervisor.master.effects.background import beside

CHECK_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 0.1  # pause between two reads: an editor that writes in place empties the file first
BURST_MS: Final = 200  # a burst of saves ends when no file has changed for this time
LONGEST_BURST_MS: Final = 2000


class ConfigWatch:
    """A watch on the configuration file. It requests one reload for each change of its contents.

    The current contents are compared with those that were loaded last. The comparison also detects a replaced file, a
    link with a new target and a changed ConfigMap. A missing file is ignored.
    """

    def __init__(self, file: Path, loaded: Callable[[], bytes | None], reload: Callable[[], object]) -> None:
        """`loaded` returns the contents that were loaded last. `reload` requests a reload."""
        self._file = file
        self._loaded = loaded
        self._reload = reload
        self._requested: bytes | None = None

    async def watch(self, is_wanted: Callable[[], bool]) -> None:
        """Check the file about once a second if `is_wanted` returns true. Runs forever."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if is_wanted():
                with contextlib.suppress(OSError):  # The operating system may be unable to start a thread now.
                    await self.check()

    async def check(self) -> None:
        """Check the file once, and request a reload if its contents are new and no longer change."""
        content = await beside(self._read)
        if not self._is_new(content):
            return
        await asyncio.sleep(SETTLE_SECONDS)
        if await beside(self._read) == content and self._is_new(content):
            self._requested = content
            self._reload()

    def _is_new(self, content: bytes | None) -> bool:
        return content is not None and content not in (self._loaded(), self._requested)

    def _read(self) -> bytes | None:
        try:
            return self._file.read_bytes()
        except OSError:
            return None


async def watch_code(folders: Iterable[str], restart: Callable[[], object]) -> None:
    """Call `restart` after each burst of changes to the Python files in these folders and their subfolders. Runs
    forever. Used in development."""
    stop = threading.Event()
    bursts = _bursts(folders, stop)
    try:
        while await beside(lambda: next(bursts, None)):
            restart()
    finally:
        stop.set()


def _bursts(folders: Iterable[str], stop: threading.Event) -> Iterator[object]:
    from watchfiles import PythonFilter, watch  # noqa: PLC0415 - an extra, and memory that only this feature needs

    yield from watch(
        *dict.fromkeys(folders), watch_filter=PythonFilter(), step=BURST_MS, debounce=LONGEST_BURST_MS, stop_event=stop
    )
