"""The journals of the demo."""

from pathlib import Path

from rota_supervisor.demo.journal import Accepted, JournalRuns, Mark, What, append, read_accepted

START = Mark(What.START, "one", "send", 1, 7, 101.25, 100.5)
DONE = Mark(What.DONE, "one", "send", 1, 7, 101.5, 100.5)


def test_what_was_accepted_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = [Accepted("one", "send", "mail", 100.125, 0.0), Accepted("two", "send", "mail", 100.25, 1.5)]
    for record in written:
        append(tmp_path / "accepted", [record])

    assert read_accepted(tmp_path / "accepted") == written
    assert written[1].not_before == 101.75
    assert read_accepted(tmp_path / "absent") == []


def test_runs_are_read_on_from_where_the_last_reading_ended(tmp_path: Path) -> None:
    runs = JournalRuns(tmp_path / "runs")
    runs.read_on()
    assert runs.marks == []

    append(tmp_path / "runs", [START])
    runs.read_on()
    assert runs.starts("one") == [START]
    assert runs.done == set()

    append(tmp_path / "runs", [DONE])
    runs.read_on()
    runs.read_on()
    assert runs.marks == [START, DONE]
    assert runs.done == {"one"}


def test_a_line_without_its_end_is_left_for_the_next_reading(tmp_path: Path) -> None:
    append(tmp_path / "whole", [START, DONE])
    text = (tmp_path / "whole").read_bytes()
    runs = JournalRuns(tmp_path / "runs")
    for end in range(len(text) + 1):
        (tmp_path / "runs").write_bytes(text[:end])
        runs.read_on()

    assert runs.marks == [START, DONE]
