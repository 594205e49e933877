"""What each signal asks of the master."""

import signal

import pytest

from rota_supervisor.__main__ import MASTER_SIGNALS
from rota_supervisor.master.requests import signals
from rota_supervisor.master.requests.quieting import Quiet
from rota_supervisor.master.requests.signals import MEANINGS, Request, SignalReader


def test_a_repeat_within_a_second_is_the_same_request_and_a_later_one_means_at_once() -> None:
    reader = SignalReader(had_terminal=False)
    asked = [reader.read(signal.SIGTERM, at) for at in (0.0, 0.2, 0.99, 1.0)]
    assert asked == [Request.DRAIN, None, None, Request.STOP_NOW]


def test_a_hundred_of_them_within_a_second_are_one_request() -> None:
    reader = SignalReader(had_terminal=False)
    asked = [reader.read(signal.SIGTERM, number / 101) for number in range(100)]
    assert asked == [Request.DRAIN] + [None] * 99


def test_term_and_int_are_one_request() -> None:
    reader = SignalReader(had_terminal=False)
    assert reader.read(signal.SIGINT, 0.0) is Request.DRAIN
    assert reader.read(signal.SIGTERM, 5.0) is Request.STOP_NOW


@pytest.mark.parametrize(
    ("number", "request_"),
    [
        (signal.SIGQUIT, Request.STOP_NOW),
        (signal.SIGHUP, Request.RELOAD),
        (signal.SIGUSR2, Request.RESTART),
        (signal.SIGTTIN, Request.MORE),
        (signal.SIGTTOU, Request.LESS),
        (signal.SIGTSTP, Request.QUIET),
        (signal.SIGCONT, Request.RESUME),
        (signal.SIGUSR1, Request.REPORT),
    ],
)
def test_the_others_mean_the_same_each_time(number: signal.Signals, request_: Request) -> None:
    reader = SignalReader(had_terminal=False)
    assert [reader.read(number, 0.0), reader.read(number, 0.1)] == [request_, request_]


def test_a_hangup_from_the_loss_of_the_terminal_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = SignalReader(had_terminal=True)
    monkeypatch.setattr(signals, "has_terminal", lambda: True)
    assert reader.read(signal.SIGHUP, 0.0) is Request.RELOAD
    monkeypatch.setattr(signals, "has_terminal", lambda: False)
    assert reader.read(signal.SIGHUP, 0.0) is Request.DRAIN


def test_every_signal_blocked_before_the_imports_is_let_through_in_the_end() -> None:
    assert {*MEANINGS, signal.SIGCHLD} == MASTER_SIGNALS


def test_every_request_has_a_signal() -> None:
    assert set(MEANINGS.values()) == set(Request)


def test_cont_undoes_what_tstp_did_and_nothing_that_a_person_asked_for() -> None:
    assert Quiet.OFF.quieted(by_signal=True).resumed(by_signal=True) is Quiet.OFF
    by_person = Quiet.OFF.quieted(by_signal=False)
    assert by_person.resumed(by_signal=True).asked
    assert by_person.quieted(by_signal=True).resumed(by_signal=True).asked
    assert Quiet.OFF.quieted(by_signal=True).quieted(by_signal=False).resumed(by_signal=True).asked
    assert not by_person.resumed(by_signal=False).asked
    assert not Quiet.OFF.quieted(by_signal=True).resumed(by_signal=False).asked
    assert Quiet.OFF.resumed(by_signal=True) is Quiet.OFF  # after a SIGSTOP
