"""The evaluation of benchmark runs: how late tasks started, which commands clients sent, and how many calls the tasks
counted.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from support.prose import ROOT

sys.path.append(str(ROOT))  # the benchmarks are not part of the distribution

from benchmarks import flood
from benchmarks.measures.monitor import Commands, counted
from benchmarks.probe import WORDS
from benchmarks.testbed import Line, parse_journal

_TASKS = """
import os
from benchmarks import probe
probe.nothing(1)
if os.fork() == 0:
    for _ in range(3):
        probe.nothing(2)
    probe.mark(5)
    os._exit(0)
os.wait()
probe.nothing(3)
"""


def test_an_early_start_has_negative_lateness() -> None:
    assert parse_journal("mark 2000 1000000 7\n")[0].late_ms == -1.0


def test_commands_of_scripts_and_clients_are_counted_separately() -> None:
    shown = (
        '+OK\r\n+1.5 [0 127.0.0.1:1] "EVALSHA" "a"\r\n+1.5 [0 lua] "GET" "k"\r\n+1.6 [0 127.0.0.1:2] "BLPOP" "b"\r\n'
    )
    assert counted(shown) == Commands(of_clients=2, of_scripts=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files that a benchmark task expects."""
    for name, size in (("journal", 0), ("places", 0), ("counts", WORDS * 8)):
        (tmp_path / name).write_bytes(bytes(size))
    return tmp_path


def _calls(folder: Path) -> list[int]:
    words = memoryview((folder / "counts").read_bytes()).cast("Q").tolist()
    return [word for word in words[0::2] if word]


def test_benchmark_calls_are_counted_per_process_even_after_a_fork(folder: Path) -> None:
    env = {"BENCH_FOLDER": str(folder), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", _TASKS], env=env, check=True, timeout=30)
    assert _calls(folder) == [2, 4]
    assert (folder / "places").stat().st_size == 2
    assert [line.label for line in parse_journal((folder / "journal").read_text())] == [5]


def test_a_flood_ends_after_the_last_time_slice_with_a_high_median_lag() -> None:
    lags_ms = {100.0: 9.0, 100.3: 1.0, 100.6: 9.0, 100.7: 9.0, 100.9: 1.0, 99.0: 50.0}
    lines = [Line("mark", round(due * 1e6), due * 1e6 + lag * 1000, 7) for due, lag in lags_ms.items()]
    assert max(flood.ends_above(flood.slices(lines, 100.0), 2.0)) == 0.75
    assert flood.ends_above(flood.slices(lines, 100.0), 10.0) == []
