"""The doorbell of the pollers. If a token may have been lost, the poller checks for due tasks and soon listens at the
doorbell again.
"""

import os
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from rota.child.child_process import StopSignals
from rota.poller.poller_bell import BellState, PollerBell
from rota.protocol.keys import Keys
from rota.server.connection import Connection
from rota.server.link import Link
from rota.server.server_errors import ConnectionLost, ServerError
from rota.server.session import NO_REPLY, PushMessage

LONG_SECONDS = 60.0  # a test that waits this long has failed
BACK_OFF_SECONDS = 0.02
TOKEN = [b"bell", b"1"]


class FakeConnection:
    """A connection that returns the test's `replies` in order, or raises them if they are exceptions. `sends` has the
    results of send calls in the same form.
    """

    def __init__(self) -> None:
        self.is_to_renew = False
        self.replies: list[Any] = []
        self.sends: list[ServerError | None] = []
        self.parked = 0
        self.executed: list[Any] = []
        self._reading, self._writing = os.pipe()

    def fileno(self) -> int:
        return self._reading

    def execute(self, *args: Any) -> None:
        self.executed.append(args)

    def send(self, _data: bytes) -> None:
        error = self.sends.pop(0) if self.sends else None
        if error is not None:
            raise error
        self.parked += 1

    def try_receive(self) -> Any:
        reply = self.replies.pop(0) if self.replies else NO_REPLY
        if isinstance(reply, ServerError):
            raise reply
        return reply

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


class FakeLink:
    """A link whose only connection can be lost and re-established."""

    def __init__(self, connection: FakeConnection) -> None:
        self._connection = connection
        self.failures = 0
        self.closed = 0
        self.asked_while_parked: list[bool] = []

    def connection(self, *, is_parked: bool = False) -> Connection:
        self.asked_while_parked.append(is_parked)
        return cast(Connection, self._connection)

    def failed(self, _error: ServerError) -> float:
        self.failures += 1
        return BACK_OFF_SECONDS

    def succeeded(self) -> None: ...

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def connection() -> Iterator[FakeConnection]:
    made = FakeConnection()
    yield made
    made.close()


@pytest.fixture
def link(connection: FakeConnection) -> FakeLink:
    return FakeLink(connection)


@pytest.fixture
def listening() -> BellState:
    return BellState()


@pytest.fixture
def bell(link: FakeLink, listening: BellState) -> Iterator[PollerBell]:
    death_read, death_write = os.pipe()
    yield PollerBell(Keys("n"), cast(Link, link), StopSignals(), death_read, listening)
    os.close(death_read)
    os.close(death_write)


def _lost() -> ConnectionLost:
    return ConnectionLost("gone", "network")


def test_a_poller_checks_for_tasks_at_once_if_its_doorbell_connection_is_lost(
    bell: PollerBell, connection: FakeConnection
) -> None:
    assert not bell.rest(0)
    connection.replies = [_lost()]
    assert bell.rest(LONG_SECONDS)


def test_a_lost_doorbell_connection_is_reopened_after_the_back_off(
    bell: PollerBell, connection: FakeConnection, link: FakeLink
) -> None:
    assert not bell.rest(0)
    connection.replies = [_lost(), NO_REPLY, TOKEN]
    assert bell.rest(LONG_SECONDS)
    connection.replies = [TOKEN]
    before = time.monotonic()
    assert bell.rest(LONG_SECONDS)
    assert time.monotonic() - before < LONG_SECONDS / 2
    assert (connection.parked, link.failures) == (3, 1)


def test_a_poller_that_becomes_a_reserve_stops_listening_and_loses_no_token(
    bell: PollerBell, link: FakeLink, listening: BellState
) -> None:
    assert not bell.rest(0)
    listening.is_reserve = True
    assert bell.rest(LONG_SECONDS), "the connection may have had a token, so the poller checks for due tasks"
    assert link.closed == 1


def test_a_reserve_sleeps_without_a_connection_until_it_listens_again(
    bell: PollerBell, connection: FakeConnection, link: FakeLink, listening: BellState
) -> None:
    listening.is_reserve = True
    began = time.monotonic()
    assert not bell.rest(BACK_OFF_SECONDS)
    assert time.monotonic() - began >= BACK_OFF_SECONDS
    assert link.asked_while_parked == []
    listening.is_reserve = False
    assert not bell.rest(0)
    assert connection.parked == 1


def test_a_doorbell_token_counts_even_if_the_poller_cannot_listen_again(
    bell: PollerBell, connection: FakeConnection
) -> None:
    assert not bell.rest(0)
    connection.replies, connection.sends = [TOKEN], [_lost()]
    assert bell.rest(LONG_SECONDS)


def test_an_unreachable_server_is_retried_after_the_back_off(
    bell: PollerBell, connection: FakeConnection, link: FakeLink
) -> None:
    link.connection = _refuse  # type: ignore[method-assign]  # no connection can be made
    assert not bell.rest(BACK_OFF_SECONDS * 5)
    assert 2 <= link.failures <= 6
    assert connection.parked == 0


def _refuse(*, is_parked: bool = False) -> Connection:
    assert not is_parked
    raise _lost()


def test_a_changed_legacy_list_ends_the_pollers_rest_without_a_token(
    bell: PollerBell, connection: FakeConnection
) -> None:
    bell._listening.wanted = "queue:mail", "delayed:"
    assert not bell.rest(0)
    bell._listening.rang = False
    connection.replies = [PushMessage([b"invalidate", [b"queue:mail"]]), PushMessage([b"invalidate", [b"delayed:"]])]
    assert not bell.rest(LONG_SECONDS)
    assert (bell._listening.rang, connection.parked) == (True, 1)
    connection.replies = [PushMessage([b"invalidate", [b"queue:mail"]]), TOKEN]
    assert bell.rest(LONG_SECONDS), "an earlier ring does not wake the poller again"


def test_a_poller_listens_again_if_the_keys_to_track_have_changed(bell: PollerBell, connection: FakeConnection) -> None:
    assert not bell.rest(0)
    bell._listening.wanted = ("queue:mail",)
    assert bell.rest(LONG_SECONDS), "a token may have been lost"
    assert not bell.rest(LONG_SECONDS)
    tracked = [args for args in connection.executed if "BCAST" in args]
    assert (bell._listening.is_notified, connection.parked, len(tracked)) == (True, 2, 1)


def test_after_a_timeout_the_poller_listens_at_its_doorbell_again(bell: PollerBell, connection: FakeConnection) -> None:
    assert not bell.rest(0.01)
    connection.replies = [None]
    assert not bell.rest(0.01)
    assert connection.parked == 2


def test_an_expiring_connection_is_replaced_before_the_next_blocking_command(
    bell: PollerBell, link: FakeLink, connection: FakeConnection
) -> None:
    connection.is_to_renew = True
    assert not bell.rest(0.01)
    assert (link.asked_while_parked[0], set(link.asked_while_parked[1:]), link.closed) == (False, {True}, 0)
    connection.replies = [None]
    assert not bell.rest(0.01)
    assert (link.closed, connection.parked) == (1, 2)


def test_a_disconnected_poller_listens_at_its_doorbell_again(bell: PollerBell, connection: FakeConnection) -> None:
    bell.rest(0)
    bell.disconnect()
    bell.rest(0)
    assert connection.parked == 2
