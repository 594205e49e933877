"""The master's watch on the contents of the configuration file. A hanging file system does not block the master's
loop.
"""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from rota_supervisor.master.effects.background import beside
from rota_supervisor.master.shell import file_watch
from rota_supervisor.master.shell.file_watch import ConfigWatch


class Watch:
    """A watched configuration file, the content that the master has loaded, and the number of requested reloads."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.loaded: bytes | None = b"workers = 1"
        self.reloads = 0
        file.write_bytes(b"workers = 1")
        self._watch = ConfigWatch(file, lambda: self.loaded, self._reload)

    def _reload(self) -> None:
        self.reloads += 1

    def follow(self) -> None:
        """Watch until a reload is requested."""

        async def follow() -> None:
            async with asyncio.timeout(30):
                watching_it = asyncio.ensure_future(self._watch.watch(lambda: True))
                while not self.reloads and not watching_it.done():
                    await asyncio.sleep(0.001)
                watching_it.cancel()

        asyncio.run(follow())

    def check(self, times: int = 1) -> int:
        """Check the file `times` times, and return how many reloads were requested in the meantime."""
        before = self.reloads

        async def check() -> None:
            for _ in range(times):
                await self._watch.check()

        asyncio.run(check())
        return self.reloads - before


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    monkeypatch.setattr(file_watch, "SETTLE_SECONDS", 0.0)
    return Watch(tmp_path / "rota.toml")


def test_changed_configuration_content_causes_one_reload(watch: Watch) -> None:
    assert watch.check(3) == 0
    watch.file.write_bytes(b"workers = 2")
    # Only one reload is requested, even if the new content is not loaded, for example because the reload was refused.
    assert watch.check(3) == 1
    watch.loaded = b"workers = 2"
    assert watch.check(3) == 0


def test_an_unchanged_or_missing_configuration_file_causes_no_reload(watch: Watch) -> None:
    os.utime(watch.file, (1, 1))
    assert watch.check() == 0
    fresh = watch.file.with_name("fresh")
    fresh.write_bytes(watch.file.read_bytes())
    fresh.replace(watch.file)
    assert watch.check() == 0
    watch.file.unlink()
    assert watch.check() == 0
    watch.file.write_bytes(b"workers = 2")
    assert watch.check() == 1


def test_restoring_earlier_configuration_content_causes_a_reload(watch: Watch) -> None:
    watch.file.write_bytes(b"workers = -1")
    assert watch.check() == 1
    watch.loaded = b"workers = -1"  # the master has read the file and rejected it
    watch.file.write_bytes(b"workers = 1")
    assert watch.check() == 1


def test_configuration_content_that_is_already_loaded_causes_no_reload(watch: Watch) -> None:
    watch.file.write_bytes(b"workers = 2")
    watch.loaded = b"workers = 2"
    assert watch.check(2) == 0


def test_replacing_the_symlinks_of_a_kubernetes_config_map_causes_a_reload(tmp_path: Path, watch: Watch) -> None:
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "rota.toml").write_text(version)
    (tmp_path / "..data").symlink_to("one")
    watch.file.unlink()
    watch.file.symlink_to("..data/rota.toml")
    assert watch.check(2) == 1
    (tmp_path / "swap").symlink_to("two")
    (tmp_path / "swap").replace(tmp_path / "..data")
    assert watch.check(2) == 1


def test_a_configuration_file_is_loaded_only_after_writing_has_stopped(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write_on(_: float) -> None:
        watch.file.write_bytes(b"workers = 2\ntiers = [['a']]")

    watch.file.write_bytes(b"workers = 2")
    monkeypatch.setattr(asyncio, "sleep", write_on)
    assert watch.check() == 0
    assert watch.check() == 1


def test_the_config_watch_survives_a_failure_to_start_a_thread(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = 2
    start = threading.Thread.start

    def start_or_not(thread: threading.Thread) -> None:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_not)
    monkeypatch.setattr(file_watch, "CHECK_SECONDS", 0.001)
    watch.file.write_bytes(b"workers = 2")
    watch.follow()
    assert (watch.reloads, refusals) == (1, 0)


def test_hanging_background_work_delays_neither_the_loop_nor_its_end() -> None:
    hung = threading.Event()

    async def start() -> str:
        waiting = asyncio.create_task(beside(hung.wait))
        await beside(lambda: None)  # let the loop run once
        assert not waiting.done()
        waiting.cancel()
        return "over"

    assert asyncio.run(start()) == "over"  # if the thread belonged to asyncio, `run` would wait for it
    hung.set()


def test_an_exception_of_a_background_thread_is_raised_in_the_loop() -> None:
    def fail() -> None:
        raise OSError("no more watches")

    with pytest.raises(OSError, match="no more watches"):
        asyncio.run(beside(fail))
