"""Log lines. Each write has at most 4,096 bytes, never blocks, and is never torn."""

import fcntl
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rota.telemetry.log as rota_log
from rota.child.child_settings import Format, LogSettings
from rota.child.slot_layout import PROCESS_ROW_BYTES, REGION_BYTES
from rota.child.slots import Slot
from rota.telemetry import log_events
from rota.telemetry.log import ForeignHandler, OnceAMinute, PrintedLines
from rota.telemetry.log_lines import LINE_BYTES, Clock, Counts, Form, JsonLines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def _lines(fd: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in os.read(fd, 1 << 20).splitlines()]


def test_a_log_line_begins_with_time_level_and_event(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(), fd=pipe[1], slot=3)
    rota_log.logger().info(log_events.TASK_DONE, task_id="a")
    (line,) = _lines(pipe[0])
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert (line["event"], line["level"], line["slot"], line["task_id"]) == ("task.done", "info", 3, "a")
    assert line["timestamp"].endswith("Z")


def test_a_disabled_log_level_writes_nothing(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(level="warning"), fd=pipe[1])
    rota_log.logger().info(log_events.TASK_DONE)
    rota_log.logger().warning(log_events.TASK_RETRIED)
    assert [line["event"] for line in _lines(pipe[0])] == ["task.retried"]


@pytest.mark.parametrize("text_format", ["json", "console", "logfmt"])
def test_a_very_long_traceback_in_the_log_is_truncated_and_marked(pipe: tuple[int, int], text_format: Format) -> None:
    rota_log.configure(LogSettings(format=text_format), fd=pipe[1])
    rota_log.logger().error(log_events.TASK_DEAD, task_id="a", exc_info=ValueError("é" * 50_000))
    raw = os.read(pipe[0], 1 << 20)
    assert len(raw) <= LINE_BYTES
    assert raw.endswith(b"\n")
    assert b"truncated" in raw
    assert b"task.dead" in raw


def test_a_log_line_with_hundreds_of_long_fields_is_truncated_to_valid_json(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(), fd=pipe[1])
    rota_log.logger().info(log_events.TASK_DONE, **{f"field{n}": "x" * 200 for n in range(300)})
    (line,) = _lines(pipe[0])
    assert line["event"] == "task.done"
    assert line["truncated"] is True


def test_a_log_line_is_dropped_and_counted_if_the_pipe_is_full(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(), fd=pipe[1])
    before = rota_log.counts().dropped
    for _ in range(200):  # a pipe holds 65,536 bytes
        rota_log.logger().info(log_events.TASK_DONE, filler="x" * 1000)
    assert rota_log.counts().dropped > before
    assert not fcntl.fcntl(pipe[1], fcntl.F_GETFL) & os.O_NONBLOCK, "our flag must not leak to others"


def test_output_of_tasks_overwrites_no_lines_of_a_redirected_log(tmp_path: Path) -> None:
    shells = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)  # without O_APPEND, as a shell opens it for `> log`
    os.write(shells, b"printed before\n")
    rota_log.configure(LogSettings(), fd=shells)
    rota_log.logger().info(log_events.TASK_DONE, task_id="a")
    os.write(shells, b"printed by a task\n")
    rota_log.logger().info(log_events.TASK_DONE, task_id="b")
    os.close(shells)
    first, *lines = (tmp_path / "log").read_text().splitlines()
    assert (first, lines.pop(1)) == ("printed before", "printed by a task")
    assert [json.loads(line)["task_id"] for line in lines] == ["a", "b"]


def test_logging_to_a_socket_as_stderr_does_not_block() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        rota_log.configure(LogSettings(), fd=ours.fileno())
        rota_log.logger().info(log_events.TASK_DONE)
        assert b"task.done" in theirs.recv(4096)
        before = rota_log.counts().dropped
        for _ in range(2000):
            rota_log.logger().info(log_events.TASK_DONE, filler="x" * 1000)
        assert rota_log.counts().dropped > before


def test_a_log_line_is_dropped_and_counted_if_the_reader_has_closed_the_pipe() -> None:
    reading, writing = os.pipe()
    rota_log.configure(LogSettings(), fd=writing)
    os.close(reading)
    before = rota_log.counts().dropped
    rota_log.logger().info(log_events.TASK_DONE)
    os.close(writing)
    assert rota_log.counts().dropped == before + 1


_FOREIGN = """
import logging, sys
import rota.telemetry.log as rota_log
from rota.child.child_settings import Format, LogSettings
if "basic" in sys.argv:
    logging.basicConfig(format="theirs %(message)s")
settings = LogSettings(format=sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] != "basic" else "auto")
rota_log.configure(settings, slot=1)
rota_log.adopt(settings)
logging.getLogger("shop.db").warning("slow %s %d%%", "query", 50)
print(*(name in sys.modules for name in ("asyncio.events", "rich", "structlog")))
import asyncio
asyncio.run(asyncio.sleep(0))
"""


def _run_foreign(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _FOREIGN, *args], capture_output=True, text=True, check=True)


def test_records_of_standard_logging_are_written_to_the_same_log() -> None:
    line = json.loads(_run_foreign().stderr)
    assert (line["event"], line["logger"], line["level"]) == ("slow query 50%", "shop.db", "warning")


def test_an_application_that_set_up_its_logging_keeps_it() -> None:
    assert _run_foreign("basic").stderr == "theirs slow query 50%\n"


def test_logging_as_json_imports_neither_asyncio_nor_structlog() -> None:
    assert _run_foreign().stdout == "False False False\n"


def test_the_log_respects_no_color_and_refuses_an_unknown_format(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(format="console"), fd=pipe[1])
    rota_log.logger().info(log_events.TASK_DONE, task_id="a")
    assert b"\x1b" not in os.read(pipe[0], 4096)
    with pytest.raises(ValueError, match="xml"):
        rota_log.configure(LogSettings(format="xml"), fd=pipe[1])  # type: ignore[arg-type]  # that is the claim


def test_a_console_line_is_short_with_event_process_and_task_first(pipe: tuple[int, int]) -> None:
    own = rota_log.of_process("worker", "shop", "host.1a2b3c4d", pool="default", slot=3)
    rota_log.configure(LogSettings(format="console"), fd=pipe[1], **own)
    task = {"task_id": "7f3a9b1c2d4e5f60718293a4b5c6d7e8", "task": "orders.sync", "queue": "default"}
    plain = {"kind": "immediate", "attempt": 1, "outcome": "done", "promotion_lag_seconds": 0.0}
    rota_log.logger().info(log_events.TASK_DONE, **task, **plain, lag_seconds=0.0031, runtime_seconds=1.204)
    rota_log.logger().warning(log_events.TASK_RETRIED, **task, **plain | {"kind": "retry", "attempt": 2}, error="a b")
    done, retried = os.read(pipe[0], 4096).decode().splitlines()
    assert done[12:] == (
        " info     task.done      worker 3  orders.sync 7f3a9b1c2d4e5f60718293a4b5c6d7e8 lag=3.1ms runtime=1.20s"
    )
    assert len(done) < 120
    assert retried.endswith('kind=retry attempt=2 error="a b"')


def test_a_log_line_of_the_master_shows_the_slot_of_the_child(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(format="console"), fd=pipe[1], **rota_log.of_process("master", "shop", "host"))
    rota_log.logger().warning(log_events.WORKER_KILLED, child="worker", slot=4)
    assert os.read(pipe[0], 4096).decode().split()[3:] == ["master", "child=worker", "slot=4"]


def _recurse(depth: int, message: str) -> None:
    if depth == 0:
        raise ValueError(message)
    _recurse(depth - 1, message)


def test_a_long_exception_message_is_truncated_before_the_traceback(pipe: tuple[int, int]) -> None:
    message = "m" * 2730
    rota_log.configure(LogSettings(), fd=pipe[1])
    try:
        _recurse(2, message)
    except ValueError as error:
        rota_log.logger().error(log_events.TASK_DEAD, task_id="a", error=f"ValueError: {error}", exc_info=error)
    (line,) = _lines(pipe[0])
    assert line["exception"].startswith("Traceback (most recent call last)")
    assert line["exception"].count("in _recurse") == 3
    assert "ValueError: mmm" in line["exception"]
    assert line["truncated"] is True


def test_a_traceback_that_fits_into_a_log_line_is_not_truncated(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(), fd=pipe[1])
    rota_log.logger().error(log_events.TASK_DEAD, exc_info=ValueError("m" * 2730))
    (line,) = _lines(pipe[0])
    assert line["exception"] == "ValueError: " + "m" * 2730


def _of_task() -> dict[str, object]:
    return {"task_id": "a", "task": "resize"}


def test_printed_text_is_logged_with_its_task(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(), fd=pipe[1])
    out, err = PrintedLines("stdout", _of_task), PrintedLines("stderr", dict)
    print("one\ntwo", 3, file=out)
    print("begun", end="", file=err)
    err.flush()
    print("x" * (LINE_BYTES + 1), end="", file=out)  # without a newline
    *lines, long = _lines(pipe[0])
    assert [(line["level"], line["event"], line["text"]) for line in lines] == [
        ("info", "task.printed", "one"),
        ("info", "task.printed", "two 3"),
        ("warning", "task.printed", "begun"),
    ]
    assert [line.get("task_id") for line in lines] == ["a", "a", None]
    assert (long["truncated"], long["stream"]) == (True, "stdout")


def test_printing_to_a_full_pipe_does_not_block(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(), fd=pipe[1])
    before = rota_log.counts().dropped
    for _ in range(200):  # a pipe holds 65,536 bytes
        print("x" * 1000, file=PrintedLines("stdout", _of_task))
    assert rota_log.counts().dropped > before


def test_threads_that_print_at_the_same_time_lose_no_output(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    rota_log.configure(LogSettings(), fd=fd)
    out = PrintedLines("stdout", dict)
    threads = [threading.Thread(target=lambda: [out.write("a\n") for _ in range(300)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "".join(json.loads(line)["text"] for line in (tmp_path / "log").read_text().splitlines()) == "a" * 1200
    rota_log.configure(LogSettings())
    os.close(fd)


def test_the_limit_of_once_a_minute_applies_to_each_key_separately() -> None:
    now = 100.0
    rarely = OnceAMinute(lambda: now)
    assert [rarely.is_due("reap"), rarely.is_due("reap"), rarely.is_due("renew")] == [True, False, True]
    now += 61
    assert [rarely.is_due("reap"), rarely.is_due("reap")] == [True, False]


def test_levels_of_standard_logging_map_to_levels_of_the_log(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(level="debug"), fd=pipe[1])
    handler = ForeignHandler(rota_log.logger)
    for level in (5, 10, 25, 60):
        handler.emit(logging.LogRecord("x", level, "", 0, "100% of %s", ("y",) if level == 25 else None, None))
    assert [line["level"] for line in _lines(pipe[0])] == ["debug", "debug", "info", "critical"]


# Lines that wait in the slot, so that one write sends several of them


@pytest.fixture
def writes() -> Iterator[socket.socket]:
    """Yield a socket that receives each write to the log as one message. The lines may first be collected in the slot
    `_SLOT`, so that a single write sends several of them.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    with ours, theirs:
        _SLOT.assign(nonce=1)
        rota_log.configure(LogSettings(format="json"), ours.fileno(), _SLOT.held_lines)
        yield theirs
    _SLOT.held_lines.clear()
    rota_log.configure(LogSettings())


_SLOT = Slot(memoryview(bytearray(REGION_BYTES)), memoryview(bytearray(PROCESS_ROW_BYTES)))
_ABOUT_A_TENTH = b"x" * (LINE_BYTES // 10) + b"\n"


def _received(writes: socket.socket) -> list[bytes]:
    received = []
    with suppress(BlockingIOError):
        while True:
            received.append(writes.recv(2 * LINE_BYTES))
    return received


def test_held_log_lines_are_written_together_when_one_write_is_full(writes: socket.socket) -> None:
    for _ in range(20):
        rota_log.logger().hold(_ABOUT_A_TENTH)
    assert _received(writes) == [_ABOUT_A_TENTH * 9] * 2
    assert _SLOT.held_lines.left_behind() == _ABOUT_A_TENTH * 2
    rota_log.logger().write_held()
    assert _received(writes) == [_ABOUT_A_TENTH * 2]
    assert _SLOT.held_lines.left_behind() == b""


def test_other_log_lines_are_written_after_the_held_ones(writes: socket.socket) -> None:
    rota_log.logger().hold(_ABOUT_A_TENTH)
    rota_log.logger().info(log_events.TASK_STALE)
    held, line = _received(writes)
    assert (held, json.loads(line)["event"]) == (_ABOUT_A_TENTH, "task.stale")


def test_other_threads_and_forks_do_not_write_held_log_lines(writes: socket.socket) -> None:
    rota_log.logger().hold(_ABOUT_A_TENTH)
    thread = threading.Thread(target=rota_log.logger().write, args=(b"of a thread\n",))
    thread.start()
    thread.join()
    if (copy := os.fork()) == 0:
        rota_log.logger().write(b"of a copy\n")
        os._exit(0)
    os.waitpid(copy, 0)
    assert _received(writes) == [b"of a thread\n", b"of a copy\n"]
    rota_log.logger().write_held()
    assert _received(writes) == [_ABOUT_A_TENTH]


def test_each_dropped_line_of_the_held_log_lines_is_counted(writes: socket.socket) -> None:
    before = rota_log.counts().dropped
    for _ in range(4):
        rota_log.logger().hold(_ABOUT_A_TENTH)
    writes.close()
    rota_log.logger().write_held()
    assert rota_log.counts().dropped == before + 4


# The fast encoder of JSON lines, compared with a simple one


class _Odd:
    def __repr__(self) -> str:
        return 'odd "one"'


_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=())),  # characters that include halves of surrogate pairs
    st.just(_Odd()),
    st.binary(max_size=8),
    st.datetimes(),
)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
_names = st.one_of(st.sampled_from(["slot", "timestamp", "level", "truncated", "exception"]), st.text(max_size=8))


def _plainly(level: str, event: str, bound: dict[str, Any], fields: dict[str, Any]) -> list[tuple[str, Any]]:
    first = {"timestamp": "", "level": level, "event": event}
    text = json.dumps(first | bound | fields | first, default=repr, ensure_ascii=False)
    return [(key, value) for key, value in _pairs(text) if key != "timestamp"]


def _pairs(line: bytes | str) -> list[tuple[str, Any]]:
    read: dict[str, Any] = json.loads(line)
    return list(read.items())


@given(
    st.sampled_from(["debug", "info", "error"]),
    st.text(st.characters(exclude_categories=()), max_size=20),
    st.dictionaries(_names, _scalars, max_size=3),
    st.dictionaries(_names, _values, max_size=6),
)
@example("info", "\ud800", {}, {"slot": "\ud800", "x": ["\udfff"]})
def test_a_json_log_line_equals_the_standard_json_encoding_of_its_fields(
    level: str, event: str, bound: dict[str, Any], fields: dict[str, Any]
) -> None:
    line = JsonLines(bound, Counts())(level, event, dict(fields))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    if len(line) < 3000:  # a longer line may have been cut
        assert _without_time(line) == _plainly(level, event, bound, fields)


_SECONDS = 1.23456789


@given(
    st.text(st.characters(exclude_categories=())),
    st.dictionaries(_names, _scalars, max_size=3),
    st.dictionaries(_names, st.one_of(_scalars, st.sampled_from([int, float])), max_size=6),
)
@example("100 %s %d", {"a%d": "%s"}, {"%s": "%", "seconds": float})
@example("x" * LINE_BYTES, {}, {"slot": 3})
def test_a_log_line_from_a_template_equals_one_from_its_fields(
    text: str, bound: dict[str, Any], more: dict[str, Any]
) -> None:
    lines = JsonLines(bound, Counts())
    form = Form(lines, "info", "50 %s", {"task_id": str, **more})
    values = [{int: 7, float: _SECONDS}[value] for value in more.values() if isinstance(value, type)]
    fields = {"task_id": text, **{name: {int: 7, float: 1.234568}.get(value, value) for name, value in more.items()}}
    assert _without_time(form(text, *values)) == _without_time(lines("info", "50 %s", fields))


def _without_time(line: bytes) -> list[tuple[str, Any]]:
    return [pair for pair in _pairs(line) if pair[0] != "timestamp"]


@pytest.mark.parametrize("size", [LINE_BYTES // 2, LINE_BYTES, LINE_BYTES * 3])
def test_a_log_line_beyond_the_size_limit_is_truncated_and_counted(size: int) -> None:
    counts = Counts()
    lines = JsonLines({"slot": 3}, counts)
    room = LINE_BYTES - len(lines("info", "task.done", {"text": ""}))
    whole = json.loads(lines("info", "task.done", {"text": "x" * room}))
    assert (len(whole["text"]), counts.truncated) == (room, 0)
    cut = lines("info", "task.done", {"text": "x" * (room + size)})
    assert len(cut) <= LINE_BYTES
    assert (json.loads(cut)["truncated"], json.loads(cut)["slot"], counts.truncated) == (True, 3, 1)


def test_log_values_that_are_not_json_are_written_as_their_repr() -> None:
    circle: list[Any] = []
    circle.append(circle)
    lines = JsonLines({}, Counts())
    line = json.loads(lines("info", "task.done", {"circle": circle, "keys": {(1, 2): 3}, "text": "x"}))
    assert (line["circle"], line["keys"], line["text"]) == ("[[...]]", "{(1, 2): 3}", "x")


def test_the_exception_is_the_last_field_of_a_log_line() -> None:
    line = json.loads(JsonLines({"slot": 3}, Counts())("error", "task.dead", {"exc_info": ValueError("x"), "a": 1}))
    assert list(line) == ["timestamp", "level", "event", "slot", "a", "exception"]
    assert line["exception"].endswith("ValueError: x")


def test_exc_info_true_logs_the_current_exception() -> None:
    try:
        json.loads("{")
    except ValueError:
        line = json.loads(JsonLines({}, Counts())("error", "task.dead", {"exc_info": True}))
    assert "JSONDecodeError" in line["exception"]


@given(st.integers(min_value=0, max_value=4_000_000_000_000_000_000))
def test_the_timestamp_of_a_log_line_is_utc_to_the_microsecond(at_ns: int) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: at_ns)
        expected = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_ns // 1000)
        assert clock() == expected.isoformat(timespec="microseconds").replace("+00:00", "Z")
        assert clock() == clock()


def test_a_field_of_a_log_line_replaces_the_bound_field_of_the_same_name(pipe: tuple[int, int]) -> None:
    rota_log.configure(LogSettings(), fd=pipe[1], slot=3, role="worker")
    rota_log.logger().info(log_events.TASK_DONE, slot=4)
    (line,) = _lines(pipe[0])
    assert list(line) == ["timestamp", "level", "event", "slot", "role"]
    assert line["slot"] == 4
