"""What the demo takes from `/status.json`, and what it says of it."""

import io

import pytest
from rich.console import Console

from rota_supervisor.demo.books import FleetBooks, read_books
from rota_supervisor.demo.lines import PlainLines
from rota_supervisor.demo.picture import Acts
from support.fleet_status import busy


def books() -> FleetBooks:
    told = {"restarts": [{"role": "worker", "reason": "signal", "count": 1}], "recovered": 1, "early_starts": 0}
    return read_books(busy() | told, ["sold-email", "reports"])


def test_the_books_are_those_of_the_demos_queues() -> None:
    found = books()
    assert (found.enqueued, found.done, found.running, found.desired) == (18, 20, 4, 4)
    assert (found.restarts, found.recovered, found.missing) == ({("worker", "signal"): 1}, 1, 0)
    assert not found.is_idle


def test_an_answer_without_its_queues_is_none_of_its_fleet() -> None:
    with pytest.raises(KeyError):
        read_books(busy(), ["another"])


def test_without_redis_the_counts_are_not_known_and_nothing_is_idle() -> None:
    status = busy() | {"restarts": [], "recovered": 0, "early_starts": 0}
    for row in status["queues"]:
        row["state"] = None
    found = read_books(status, ["reports"])
    assert (found.queues["reports"].ready, found.is_idle) == (None, False)


def test_lines_have_no_escapes_and_come_every_two_seconds() -> None:
    stream = io.StringIO()
    view = PlainLines(Console(file=stream, highlight=False))
    view.happened(0.0, "kill -9 77 [bold]")
    for tenth in range(50):
        view.show(tenth / 10, books())
    lines = stream.getvalue().splitlines()
    assert lines[0] == "  0.0 s  kill -9 77 [bold]"
    counts = "ready 1,234, scheduled 17, in flight 4, done 20"
    assert lines[1] == f"  0.0 s  4 workers, {counts}; lag p99: sold-email 0.2 s, reports 0.2 s"
    assert len(lines) == 4
    assert "\x1b" not in stream.getvalue()


def test_what_the_demo_does_is_the_first_line_of_the_picture_and_among_the_events() -> None:
    acts = Acts()
    acts.happened(1.0, "kill -9 77")
    status = busy() | {"headlines": [{"level": "bad", "text": "a worker died", "where": "workers/8"}]}
    shown = acts.beside(status)
    assert [row["text"] for row in shown["headlines"]] == ["demo: kill -9 77", "a worker died"]
    assert [row["event"] for row in shown["events"]] == ["fleet.ready", "worker.exited", "demo"]
    assert len({row["n"] for row in shown["events"]}) == 3
