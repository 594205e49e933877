"""What a benchmark reads: journals, counts, MONITOR, redis-benchmark; and what its tasks write."""

import subprocess
import sys
from pathlib import Path

import pytest

from prose import ROOT

sys.path.append(str(ROOT))  # the benchmarks are no part of the distribution

from benchmarks import flood, limits
from benchmarks.measures.monitor import of_clients
from benchmarks.place import Line, parse_journal
from benchmarks.probe import WORDS

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


def test_a_journal_is_read_up_to_its_last_whole_line() -> None:
    lines = parse_journal("mark 1000000 1000250500 7\nhold 0 3000 8\nmark 10000")
    assert lines == [Line("mark", 1000000, 1000250.5, 7), Line("hold", 0, 3.0, 8)]
    assert lines[0].late_ms == pytest.approx(0.2505)
    assert parse_journal("") == []


def test_a_start_before_its_due_time_is_negative() -> None:
    assert parse_journal("mark 2000 1000000 7\n")[0].late_ms == -1.0


def test_commands_inside_scripts_are_not_those_of_clients() -> None:
    shown = (
        '+OK\r\n+1.5 [0 127.0.0.1:1] "EVALSHA" "a"\r\n+1.5 [0 lua] "GET" "k"\r\n+1.6 [0 127.0.0.1:2] "BLPOP" "b"\r\n'
    )
    assert [line.split('"')[1] for line in of_clients(shown)] == ["EVALSHA", "BLPOP"]


def test_rates_are_read_from_what_redis_benchmark_prints() -> None:
    shown = '"test","rps","avg_latency_ms"\n"RPUSH","15276.50","0.06"\nnoise\n"LPOP","17088.00","0.05"\n'
    assert limits.parse(shown) == {"RPUSH": 15276.5, "LPOP": 17088.0}


def test_each_process_counts_in_words_of_its_own_after_a_fork_too(tmp_path: Path) -> None:
    for name, size in (("journal", 0), ("places", 0), ("counts", WORDS * 8)):
        (tmp_path / name).write_bytes(bytes(size))
    env = {"BENCH_FOLDER": str(tmp_path), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", _TASKS], env=env, check=True, timeout=30)
    words = memoryview((tmp_path / "counts").read_bytes()).cast("Q").tolist()
    assert [words[0], words[2]] == [2, 4]
    assert (tmp_path / "places").stat().st_size == 2
    assert [line.label for line in parse_journal((tmp_path / "journal").read_text())] == [5]


def test_a_flood_is_over_behind_the_last_slice_whose_median_lag_was_above_normal() -> None:
    lags_ms = {100.0: 9.0, 100.3: 1.0, 100.6: 9.0, 100.7: 9.0, 100.9: 1.0, 99.0: 50.0}
    lines = [Line("mark", round(due * 1e6), due * 1e6 + lag * 1000, 7) for due, lag in lags_ms.items()]
    assert max(flood.ends_above(flood.slices(lines, 100.0), 2.0)) == 0.75
    assert flood.ends_above(flood.slices(lines, 100.0), 10.0) == []
