"""What a soak writes down is read back as it was, whatever became of the writer."""

from pathlib import Path

from soak.case import Case
from soak.evidence import (
    NEMESIS_FILE,
    QUIET_FILE,
    RUNS_FILE,
    SETUP_FILE,
    Did,
    Journal,
    Record,
    Said,
    line_of,
    write_whole,
)
from soak.faults import Fault
from soak.planting import NODE_A, WALL, Plot
from soak.reading import read_evidence
from soak.timeline import timeline


def written(folder: Path, plot: Plot) -> Path:
    """The evidence of a plot as a soak leaves it; node a logged that it starts."""
    evidence = plot.evidence()
    journals: list[tuple[str, list[Record]]] = [
        ("producer-1.jsonl", [*evidence.sent]),
        (RUNS_FILE, [*evidence.ran]),
        (NEMESIS_FILE, [*evidence.strikes]),
    ]
    for name, records in journals:
        journal = Journal(folder / name)
        for record in records:
            journal.write(record)
        journal.close()
    write_whole(folder / SETUP_FILE, evidence.setup)
    assert evidence.quiet is not None
    write_whole(folder / QUIET_FILE, evidence.quiet)
    (folder / "a").mkdir()
    line = '{"timestamp":"2023-11-14T22:13:20.000000Z","level":"info","event":"fleet.starting","node":"host.aaaa"}'
    (folder / "a" / "fleet.log").write_text(f"what a task printed\n{line}\n")
    return folder


def some_plot() -> Plot:
    plot = Plot(fair=("east", "west"), apart=("order",), weights={"bulk": 3}).accept("t", 10.0, unique="k", number=0)
    plot.say(Said.INTENDED, "u", 10.5, due=WALL + 12.25, fails=2).run("t", 10.1, 10.2).run("u", 13.0, 13.1, Did.RAISED)
    return plot.strike(Fault.KILL_WORKER, "a", 10.3, pids=(101, 102)).quiet(dead_ids=("t",), memory_grown_mb=0.5)


def test_what_was_written_is_read_back_as_it_was(tmp_path: Path) -> None:
    plotted, read = some_plot().evidence(), read_evidence(written(tmp_path, some_plot()))
    assert read.setup == plotted.setup
    assert read.sent == plotted.sent
    assert read.ran == plotted.ran
    assert read.strikes == plotted.strikes
    assert read.quiet == plotted.quiet


def test_lines_of_the_event_log_stand_on_the_same_clock_as_all_else(tmp_path: Path) -> None:
    (line,) = read_evidence(written(tmp_path, some_plot())).logged
    assert (line.target, line.event, line.fields["node"]) == ("a", "fleet.starting", NODE_A)
    assert (line.at, line.boot) == (WALL, 0.0)


def test_a_line_that_its_writer_did_not_finish_is_left_out(tmp_path: Path) -> None:
    folder = written(tmp_path, some_plot())
    before = read_evidence(folder).ran
    with (folder / RUNS_FILE).open("ab") as journal:
        journal.write(line_of(before[0])[:20])
    assert read_evidence(folder).ran == before


def test_a_run_that_broke_off_has_no_quiet_window(tmp_path: Path) -> None:
    folder = written(tmp_path, some_plot())
    (folder / QUIET_FILE).unlink()
    assert read_evidence(folder).quiet is None


def test_the_timeline_merges_all_that_is_about_a_task_in_the_order_of_time() -> None:
    plot = some_plot().log(10.15, "a", "worker.exited", child_pid=101).log(10.16, "b", "worker.exited", child_pid=999)
    plot.log(10.4, "b", "task.recovered", task_id="t").log(10.5, "b", "task.recovered", task_id="u")
    lines = timeline(Case(plot.evidence()), "t")
    words = ["intended", "accepted", "start", "worker.exited", "end", "kill_worker", "kill_worker", "task.recovered"]
    assert [word in line for word, line in zip(words, lines, strict=True)] == [True] * len(words)
