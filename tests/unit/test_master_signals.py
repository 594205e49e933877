"""The request that each signal makes to the master."""

import signal

import pytest

from rota_supervisor.__main__ import MASTER_SIGNALS
from rota_supervisor.control.port import RequestKind
from rota_supervisor.master.shell import master_signals
from rota_supervisor.master.shell.master_signals import MEANINGS, SignalReader


def test_a_second_stop_signal_a_second_later_stops_the_fleet_at_once() -> None:
    reader = SignalReader(had_terminal=False)
    requests = [reader.read(signal.SIGTERM, at) for at in (0.0, 0.2, 0.99, 1.0)]
    assert requests == [RequestKind.DRAIN, None, None, RequestKind.STOP_NOW]


def test_a_hundred_stop_signals_within_a_second_count_as_one_request() -> None:
    reader = SignalReader(had_terminal=False)
    requests = [reader.read(signal.SIGTERM, number / 101) for number in range(100)]
    assert requests == [RequestKind.DRAIN] + [None] * 99


def test_sigterm_and_sigint_count_as_the_same_signal() -> None:
    reader = SignalReader(had_terminal=False)
    assert reader.read(signal.SIGINT, 0.0) is RequestKind.DRAIN
    assert reader.read(signal.SIGTERM, 5.0) is RequestKind.STOP_NOW


@pytest.mark.parametrize(
    ("number", "request_"),
    [
        (signal.SIGQUIT, RequestKind.STOP_NOW),
        (signal.SIGHUP, RequestKind.RELOAD),
        (signal.SIGUSR2, RequestKind.RESTART),
        (signal.SIGTTIN, RequestKind.MORE),
        (signal.SIGTTOU, RequestKind.LESS),
        (signal.SIGTSTP, RequestKind.QUIET),
        (signal.SIGCONT, RequestKind.RESUME),
        (signal.SIGUSR1, RequestKind.REPORT),
    ],
)
def test_signals_other_than_term_and_int_mean_the_same_each_time(number: signal.Signals, request_: RequestKind) -> None:
    reader = SignalReader(had_terminal=False)
    assert [reader.read(number, 0.0), reader.read(number, 0.1)] == [request_, request_]


def test_sighup_drains_the_fleet_if_the_terminal_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = SignalReader(had_terminal=True)
    monkeypatch.setattr(master_signals, "has_terminal", lambda: True)
    assert reader.read(signal.SIGHUP, 0.0) is RequestKind.RELOAD
    monkeypatch.setattr(master_signals, "has_terminal", lambda: False)
    assert reader.read(signal.SIGHUP, 0.0) is RequestKind.DRAIN


def test_the_master_blocks_exactly_the_signals_that_it_handles() -> None:
    assert {*MEANINGS, signal.SIGCHLD} == MASTER_SIGNALS


def test_every_request_except_preview_and_scale_has_a_signal() -> None:
    assert set(MEANINGS.values()) == set(RequestKind) - {RequestKind.PREVIEW, RequestKind.SCALE}
