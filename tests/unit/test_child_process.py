"""Waits of a child that a stop signal ends. No signal is missed, and no signal ends the wrong wait."""

import os
import select
import time
from collections.abc import Iterator

import pytest

from rota.child.child_process import Orphaned, StopSignals, Waiter, Woken

LONG_SECONDS = 60.0  # a test that waits this long has failed


def no_beat() -> None:
    """Ignore a heartbeat, in tests that do not count heartbeats."""


class Pipe:
    """A pipe that becomes readable when a test writes to it, so that a wait can include it."""

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe()

    def write(self) -> None:
        os.write(self._writing, b"!")

    def close(self) -> None:
        os.close(self.reading)
        os.close(self._writing)


@pytest.fixture
def signals() -> StopSignals:
    return StopSignals()  # installs no signal handler, because the tests call the handler's function directly


@pytest.fixture
def death() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


@pytest.fixture
def reply() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def test_a_stop_signal_during_a_wait_for_a_reply_ends_the_next_pause(
    signals: StopSignals, death: Pipe, reply: Pipe
) -> None:
    waiter = Waiter(signals, death.reading, no_beat, LONG_SECONDS)
    signals._stop(15, None)
    assert not waiter.until_ready(reply.reading, select.POLLIN, 0.01)
    reply.write()
    assert waiter.until_ready(reply.reading, select.POLLIN, LONG_SECONDS)
    assert waiter.pause(LONG_SECONDS) is Woken.SIGNAL
    assert waiter.pause(0.01) is Woken.TIMEOUT


def test_a_pending_stop_signal_causes_no_busy_loop_while_waiting_for_a_reply(
    signals: StopSignals, death: Pipe, reply: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = 0

    class Counting:
        def __init__(self) -> None:
            self._poll = real()
            self.register, self.unregister = self._poll.register, self._poll.unregister

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            nonlocal polls
            polls += 1
            return self._poll.poll(milliseconds)

    real = select.poll
    monkeypatch.setattr(select, "poll", Counting)
    waiter = Waiter(signals, death.reading, no_beat, LONG_SECONDS)
    signals._stop(15, None)
    assert not waiter.until_ready(reply.reading, select.POLLIN, 0.05)
    assert polls == 1


def test_the_death_of_the_master_ends_every_wait_of_a_child(signals: StopSignals, death: Pipe, reply: Pipe) -> None:
    waiter = Waiter(signals, death.reading, no_beat, LONG_SECONDS)
    death.write()
    with pytest.raises(Orphaned):
        waiter.until_ready(reply.reading, select.POLLIN, LONG_SECONDS)
    with pytest.raises(Orphaned):
        waiter.until_woken(reply.reading, LONG_SECONDS)
    with pytest.raises(Orphaned):
        waiter.pause(LONG_SECONDS)


def test_a_long_wait_of_a_child_sends_heartbeats_from_its_start(signals: StopSignals, death: Pipe, reply: Pipe) -> None:
    beats: list[float] = []
    waiter = Waiter(signals, death.reading, lambda: beats.append(time.monotonic()), 0.02)
    began = time.monotonic()
    assert not waiter.until_ready(reply.reading, select.POLLIN, 0.1)
    assert len(beats) == 5
    assert time.monotonic() - began >= 0.1
    reply.write()
    assert waiter.until_ready(reply.reading, select.POLLIN, LONG_SECONDS)
    assert len(beats) == 6


def test_a_wait_ends_only_when_the_given_file_descriptor_is_ready(
    signals: StopSignals, death: Pipe, reply: Pipe
) -> None:
    waiter = Waiter(signals, death.reading, no_beat, LONG_SECONDS)
    assert waiter.until_woken(reply.reading, 0.01) is Woken.TIMEOUT
    reply.write()
    assert waiter.pause(0.01) is Woken.TIMEOUT
    assert waiter.until_woken(reply.reading, LONG_SECONDS) is Woken.READY
