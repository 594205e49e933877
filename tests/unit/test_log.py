"""One line a write, at most 4,096 bytes, never blocking, never torn."""

import fcntl
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import rota.telemetry.log as rota_log
from rota.child.settings import LogSettings
from rota.telemetry import events


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def _lines(fd: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in os.read(fd, 1 << 20).splitlines()]


def test_a_line_carries_time_level_event_and_bound_fields_first(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(), fd=pipe[1], slot=3)
    rota_log.logger().info(events.TASK_DONE, task_id="a")
    (line,) = _lines(pipe[0])
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert (line["event"], line["level"], line["slot"], line["task_id"]) == ("task.done", "info", 3, "a")
    assert line["timestamp"].endswith("Z")


def test_a_disabled_level_writes_nothing(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(level="warning"), fd=pipe[1])
    rota_log.logger().info(events.TASK_DONE)
    rota_log.logger().warning(events.TASK_RETRIED)
    assert [line["event"] for line in _lines(pipe[0])] == ["task.retried"]


@pytest.mark.parametrize("text_format", ["json", "console", "logfmt"])
def test_an_endless_traceback_is_cut_to_one_write_and_marked(pipe: tuple[int, int], text_format: str) -> None:
    rota_log.configure(LogSettings(format=text_format), fd=pipe[1])
    rota_log.logger().error(events.TASK_DEAD, task_id="a", exc_info=ValueError("é" * 50_000))
    raw = os.read(pipe[0], 1 << 20)
    assert len(raw) <= rota_log.LINE_BYTES
    assert raw.endswith(b"\n")
    assert b"truncated" in raw
    assert b"task.dead" in raw


def test_hundreds_of_long_fields_still_fit_and_stay_json(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(), fd=pipe[1])
    rota_log.logger().info(events.TASK_DONE, **{f"field{n}": "x" * 200 for n in range(300)})
    (line,) = _lines(pipe[0])
    assert line["event"] == "task.done"
    assert line["truncated"] is True


def test_a_full_pipe_drops_the_line_and_counts_it(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(), fd=pipe[1])
    before = rota_log.counts().dropped
    for _ in range(200):  # a pipe holds 65,536 bytes
        rota_log.logger().info(events.TASK_DONE, filler="x" * 1000)
    assert rota_log.counts().dropped > before
    assert not fcntl.fcntl(pipe[1], fcntl.F_GETFL) & os.O_NONBLOCK, "our flag must not leak to others"


def test_a_socket_as_stderr_is_written_without_blocking() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        rota_log.configure(LogSettings(), fd=ours.fileno())
        rota_log.logger().info(events.TASK_DONE)
        assert b"task.done" in theirs.recv(4096)
        before = rota_log.counts().dropped
        for _ in range(2000):
            rota_log.logger().info(events.TASK_DONE, filler="x" * 1000)
        assert rota_log.counts().dropped > before


def test_a_reader_that_left_is_not_our_problem() -> None:
    reading, writing = os.pipe()
    rota_log.configure(LogSettings(), fd=writing)
    os.close(reading)
    before = rota_log.counts().dropped
    rota_log.logger().info(events.TASK_DONE)
    os.close(writing)
    assert rota_log.counts().dropped == before + 1


_FOREIGN = """
import logging, sys
import rota.telemetry.log as rota_log
from rota.child.settings import LogSettings
if "basic" in sys.argv:
    logging.basicConfig(format="theirs %(message)s")
rota_log.configure(LogSettings(), slot=1)
rota_log.adopt_foreign(LogSettings())
logging.getLogger("shop.db").warning("slow %s %d%%", "query", 50)
print("asyncio.events" in sys.modules, "rich" in sys.modules)
import asyncio
asyncio.run(asyncio.sleep(0))
"""


def _run_foreign(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _FOREIGN, *args], capture_output=True, text=True, check=True)


def test_the_standard_librarys_logging_goes_down_the_same_chain() -> None:
    line = json.loads(_run_foreign().stderr)
    assert (line["event"], line["logger"], line["level"]) == ("slow query 50%", "shop.db", "warning")


def test_an_application_that_set_up_its_logging_keeps_it() -> None:
    assert _run_foreign("basic").stderr == "theirs slow query 50%\n"


def test_logging_brings_neither_asyncio_nor_rich_into_the_process() -> None:
    assert _run_foreign().stdout == "False False\n"


def test_no_color_is_respected_and_an_unknown_format_refused(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(format="console"), fd=pipe[1])
    rota_log.logger().info(events.TASK_DONE, task_id="a")
    assert b"\x1b" not in os.read(pipe[0], 4096)
    with pytest.raises(ValueError, match="xml"):
        rota_log.configure(LogSettings(format="xml"), fd=pipe[1])


def test_foreign_levels_map_to_ours(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(level="debug"), fd=pipe[1])
    handler = rota_log._ForeignHandler()
    for level in (5, 10, 25, 60):
        handler.emit(logging.LogRecord("x", level, "", 0, "100% of %s", ("y",) if level == 25 else None, None))
    assert [line["level"] for line in _lines(pipe[0])] == ["debug", "debug", "info", "critical"]
