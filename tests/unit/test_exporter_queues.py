"""The exporter's queries about queues. It seldom sends them to Redis, never waits long for a reply, and never shows an
outdated reply.
"""

import os
import threading
import time
from contextlib import suppress
from typing import TypeVar, cast

import pytest

from rota.child.child_settings import ServerSettings
from rota.protocol.groups import Groups
from rota.protocol.schedule_store import SchedulePage
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import Store
from rota.protocol.views import Audit, Consumers, Overview
from rota.server.server_errors import ConnectionLost
from rota_supervisor.config.model import QueueConfig
from rota_supervisor.exporter import redis_thread
from rota_supervisor.exporter.queue_watch import QueueReading, QueueWatch
from rota_supervisor.exporter.redis_thread import LIMIT_SECONDS, RedisThread, connector
from support.child_settings import exporter_settings
from support.waiting import until

T = TypeVar("T")
DEADLINE_SECONDS = 30.0
AUDIT = Store("ns").audit()


class Redis:
    """A fake server and the connections to it. The server counts queries, and a test can make it fail, send garbage or
    hang.
    """

    is_to_renew = False

    def __init__(self) -> None:
        self.connects = 0
        self.overviews = 0
        self.failed = 0
        self.failure: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()
        # Becomes readable at a hang-up, like a socket whose other end has been closed.
        self.hung_up = os.eventfd(0, os.EFD_NONBLOCK)

    def connect(self) -> "Redis":
        self.connects += 1
        if self.failure:
            raise self.failure
        with suppress(BlockingIOError):
            os.eventfd_read(self.hung_up)
        return self

    def fileno(self) -> int:
        return self.hung_up

    def hang_up(self) -> None:
        """Close all connections, as a restarted server does. Later queries on these connections fail."""
        os.eventfd_write(self.hung_up, 1)

    def run(self, call: ScriptCall[T]) -> T:
        self.answers.wait(DEADLINE_SECONDS)
        with suppress(BlockingIOError):
            if os.eventfd_read(self.hung_up):
                self.failed += 1
                raise ConnectionLost("closed")
        if self.failure:
            raise self.failure
        if call.script.name == "audit":
            return cast(T, Audit(accepted=5, live=1, ended={"done": 2}))
        if call.script.name == "consumers":
            return cast(T, Consumers(0, ()))
        if call.script.name == "schedules":
            return cast(T, SchedulePage(0, 0, ()))
        if call.script.name == "groups":
            return cast(T, Groups(0, (), {}))
        self.overviews += 1
        return cast(T, Overview(int(time.time() * 1e6) + 3_000_000, 1, ()))

    def close(self) -> None:
        """Do nothing, because no connection is open."""


def watch(on: Redis, redis: RedisThread | None = None) -> QueueWatch:
    settings = exporter_settings({"mail": QueueConfig()}, ServerSettings("redis://127.0.0.1:1/0", "ns"))
    return QueueWatch(settings, redis or RedisThread(on.connect))


def read_until(watched: QueueWatch, *, known: bool) -> QueueReading | None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while ((reading := watched.read()) is not None) is not known:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return reading


def test_a_queue_reading_contains_the_audit_and_the_clock_offset() -> None:
    reading = read_until(watch(Redis()), known=True)
    assert reading is not None
    assert reading.missing_tasks == 2
    assert reading.clock_offset_seconds == pytest.approx(3.0, abs=1.0)


def test_many_concurrent_readers_cause_one_redis_query_a_second() -> None:
    on = Redis()
    watched = watch(on)
    read_until(watched, known=True)
    began = time.monotonic()
    readers = [threading.Thread(target=watched.read) for _ in range(20)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert on.overviews <= 2 + (time.monotonic() - began)
    assert on.connects == 1


@pytest.fixture
def soon_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make replies count as outdated after a fifth of a second, which is less than the longest wait for a reply."""
    monkeypatch.setattr(redis_thread, "FRESH_SECONDS", 0.2)


@pytest.mark.usefixtures("soon_old")
@pytest.mark.parametrize("failure", [ConnectionLost("gone"), ValueError("not an overview"), TypeError("None")])
def test_after_a_failed_query_the_exporter_reconnects_to_redis(failure: Exception) -> None:
    on = Redis()
    watched = watch(on)
    read_until(watched, known=True)
    on.failure = failure
    read_until(watched, known=False)
    on.failure = None
    read_until(watched, known=True)
    assert on.connects >= 2


@pytest.mark.usefixtures("soon_old")
def test_a_call_after_the_server_closed_an_idle_connection_succeeds() -> None:
    on = Redis()
    watched = watch(on)
    read_until(watched, known=True)
    on.hang_up()
    asked = on.overviews
    deadline = time.monotonic() + DEADLINE_SECONDS
    while on.overviews == asked:  # repeated, because the exporter does not query a value again at once
        watched.read()
        assert time.monotonic() < deadline
    assert (on.connects, on.failed) == (2, 0)


@pytest.mark.usefixtures("soon_old")
def test_exporter_pages_do_not_wait_long_for_a_hanging_server() -> None:
    on = Redis()
    on.answers.clear()
    watched = watch(on)
    began = time.monotonic()
    assert watched.read() is None
    assert time.monotonic() - began >= LIMIT_SECONDS * 0.9
    assert watched.read() is None
    on.answers.set()
    read_until(watched, known=True)
    assert on.overviews >= 2, "the late reply was outdated, so the query was repeated"


def test_during_a_slow_reply_the_last_reading_is_shown_until_outdated(monkeypatch: pytest.MonkeyPatch) -> None:
    on = Redis()
    watched = watch(on)
    known = read_until(watched, known=True)
    monkeypatch.setattr(redis_thread, "FRESH_SECONDS", 0.0)
    on.answers.clear()
    assert watched.read() is known
    monkeypatch.setattr(redis_thread, "STALE_SECONDS", 0.0)
    assert watched.read() is None
    on.answers.set()


@pytest.mark.parametrize(("limit", "reader", "asked"), [(30.0, 30.0, 1), (-1.0, -1.0, 1), (-1.0, 30.0, 2)])
def test_queues_are_queried_without_readers_only_if_the_server_was_slow(
    monkeypatch: pytest.MonkeyPatch, limit: float, reader: float, asked: int
) -> None:
    """The method `keep_fresh` queries the queues before anyone reads the page, but only if the server replies slowly
    and the page was read recently. A reply counts as slow after `limit` seconds, and a read as recent for `reader`
    seconds.
    """
    on = Redis()
    redis = RedisThread(on.connect)
    watched = watch(on, redis)
    read_until(watched, known=True)
    monkeypatch.setattr(redis_thread, "LIMIT_SECONDS", limit)
    monkeypatch.setattr(redis_thread, "READER_SECONDS", reader)
    monkeypatch.setattr(redis_thread, "FRESH_SECONDS", 0.0)
    watched.keep_fresh()
    redis.call(lambda run: run(AUDIT))  # once this query has its reply, all earlier queries have been sent
    assert on.overviews == asked


def test_redis_calls_of_the_exporter_fail_without_a_reply_and_recover_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_thread, "CALL_SECONDS", 0.3)
    monkeypatch.setattr(redis_thread, "LIMIT_SECONDS", 0.1)
    on = Redis()
    on.answers.clear()
    redis = RedisThread(on.connect)
    for _ in range(2):
        with pytest.raises(redis_thread.NoReply):
            redis.call(lambda run: run(AUDIT))
    on.answers.set()
    until(lambda: _answered(redis), "Redis replies again")


def _answered(redis: RedisThread) -> bool:
    with suppress(redis_thread.NoReply):
        return redis.call(lambda run: run(AUDIT)).accepted == 5
    return False


def test_the_exporter_refuses_an_invalid_redis_url_at_startup() -> None:
    with pytest.raises(ValueError, match="not a Redis URL"):
        connector(ServerSettings("http://nowhere", "ns"))
