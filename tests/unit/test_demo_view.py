"""What the demo shows."""

import io

import pytest
from rich.console import Console

from rota_supervisor.demo.checks import Check
from rota_supervisor.demo.numbers import LagNumbers, Numbers, QueueNumbers
from rota_supervisor.demo.scenario import TIERS
from rota_supervisor.demo.view import DemoProgress, LiveView, PlainView, duration, show_checks, show_lags, view_for

NUMBERS = Numbers(
    queues={queue: QueueNumbers(3, None, 1, 1234, ()) for tier in TIERS for queue in tier},
    running=3,
    desired=4,
    busy=2,
    restarts={("worker", "signal"): 1},
    recovered=1,
    enqueued=7000,
    early=0,
    missing=0,
)
LAGS = {"sold-email": LagNumbers(0.0042, 0.81), "reports": LagNumbers(None, None)}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "dumb", "expected"),
    [(Terminal(), False, LiveView), (Terminal(), True, PlainView), (io.StringIO(), False, PlainView)],
)
def test_only_a_terminal_that_can_draw_gets_the_live_picture(
    stream: io.StringIO, dumb: bool, expected: type[object]
) -> None:
    assert isinstance(view_for(stream, dumb=dumb, no_color=False), expected)


def test_plain_lines_have_no_escapes_and_come_every_two_seconds() -> None:
    stream = io.StringIO()
    with view_for(stream, dumb=False, no_color=False) as view:
        view.happened(0.0, "kill -9 77 [bold]")
        for tenth in range(50):
            view.show(DemoProgress("producing", tenth / 10, 100, NUMBERS, LAGS))
    lines = stream.getvalue().splitlines()

    assert lines[0] == "  0.0 s  kill -9 77 [bold]"
    assert lines[1] == ("  0.0 s  3 workers, ready 15, scheduled ?, in flight 5, done 6,170; lag p99: sold-email 0.8 s")
    assert len(lines) == 4
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("no_color", [False, True])
def test_the_live_picture_has_queues_lag_workers_restarts_and_what_happened(no_color: bool) -> None:
    stream = Terminal()
    console = Console(file=stream, force_terminal=True, no_color=no_color, width=120, height=40, highlight=False)
    with LiveView(console) as view:
        view.happened(1.0, "kill -9 77 [bold]")
        view.show(DemoProgress("producing", 12.0, 7000, NUMBERS, LAGS))
    shown = stream.getvalue()

    for expected in ("sold-email", "1,234", "4.2 ms", "0.8 s", "3 of 4", "1 worker (signal)", "recovered 1"):
        assert expected in shown
    assert "kill -9 77 [bold]" in shown
    assert "7,000 accepted" in shown
    assert ("\x1b[33m" in shown) is not no_color  # the pool is not whole: yellow


def test_the_live_picture_fits_a_small_terminal() -> None:
    stream = Terminal()
    console = Console(file=stream, force_terminal=True, no_color=True, width=80, height=24, highlight=False)
    with LiveView(console) as view:
        for number in range(20):
            view.happened(float(number), f"happening {number} " + "x" * 80)
        stream.seek(0)
        stream.truncate()
        view.show(DemoProgress("producing", 12.0, 7000, NUMBERS, LAGS))
    last = stream.getvalue().rpartition("Rota demo")[2]

    assert "password-reset" in last
    assert "0.8 s" in last
    assert "happening 19" in last
    assert last.count("\n") < 24


def test_before_the_fleet_answers_there_is_only_a_head() -> None:
    stream = Terminal()
    with LiveView(Console(file=stream, force_terminal=True, width=100)) as view:
        view.show(DemoProgress("starting", 0.4, 0))

    assert "starting" in stream.getvalue()


def test_the_summary_marks_what_failed() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=40)
    long = "x" * 60
    show_checks(console, [Check("audit", True, "0 missing"), Check("every task ran", False, long)])
    show_lags(console, LAGS)
    lines = stream.getvalue().splitlines()

    assert lines[0] == "  ok      audit                0 missing"
    assert lines[1] == f"  FAILED  every task ran       {long}"
    assert any(line.split() == ["sold-email", "4.2", "ms", "0.8", "s"] for line in lines)


def test_a_duration_is_in_letters_that_every_terminal_has() -> None:
    assert duration(None) == "-"
    assert duration(0.0042) == "4.2 ms"
