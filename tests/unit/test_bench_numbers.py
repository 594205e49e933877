"""The published benchmark numbers: the ratios between results of the same round, the targets, and the tables."""

import json
import sys

import pytest

from support.prose import ROOT

sys.path.append(str(ROOT))  # the benchmarks are not part of the distribution

from benchmarks import page, targets
from benchmarks.numbers import Result, Spread, of, quantile, ratios, spread
from benchmarks.targets import Rivals, every, python, ratio_to_best

ALONE = Rivals(every=[], python=[])


def drained(turn: int, contender: str, rate: float) -> Result:
    return Result("drain", turn, contender, {"rate": rate})


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_a_quantile_is_the_smallest_value_that_covers_its_share(share: float, expected: int) -> None:
    assert quantile(range(100, 0, -1), share) == expected


def test_benchmark_ratios_compare_only_results_of_the_same_round() -> None:
    results = [drained(0, "rota", 60), drained(0, "classic", 20), drained(1, "rota", 10), drained(2, "classic", 5)]
    ours, theirs = (of(results, "drain", name, "rate") for name in ("rota", "classic"))
    assert ratios(ours, theirs) == [3.0]


def test_missing_benchmark_measurements_are_ignored() -> None:
    results = [Result("crash", 0, "classic", {"rerun_ms": None}), Result("crash", 1, "classic", {"rerun_ms": 7.0})]
    assert of(results, "crash", "classic", "rerun_ms") == {1: 7.0}
    assert spread([]) is None
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)


def test_the_best_competitor_is_the_one_with_the_highest_median() -> None:
    results = [drained(turn, "rota", 60) for turn in range(3)]
    results += [drained(turn, "steady", 10) for turn in range(3)]
    results += [drained(0, "lucky", 30), drained(1, "lucky", 1), drained(2, "lucky", 1)]
    results += [drained(turn, "elsewhere", 50) for turn in range(3)]
    measured = Rivals(every=["steady", "lucky", "elsewhere"], python=["steady", "lucky"])
    assert ratio_to_best(python, "drain", "rate")(results, measured) == 6.0
    assert ratio_to_best(every, "drain", "rate")(results, measured) == 1.2
    assert ratio_to_best(every, "drain", "rate")(results, ALONE) is None


def test_for_lag_the_best_competitor_is_the_one_with_the_lowest_median() -> None:
    lags = {"rota-c100": 3.0, "quick": 2.0, "slow": 9.0}
    results = [Result("steady", 0, name, {"lag_ms_p99": lag}) for name, lag in lags.items()]
    find = ratio_to_best(every, "steady", "lag_ms_p99", "rota-c100", least=True)
    assert find(results, Rivals(every=["slow", "quick"], python=[])) == 1.5


def test_the_reported_cost_growth_is_that_of_the_worst_dimension() -> None:
    costs = {"depth 1000": 10.0, "depth 1000000": 11.0, "queues 1": 10.0, "queues 100": 14.0, "queues 100 all": [14.0]}
    results = [Result("growth", 0, "rota", {key: value}) for key, value in costs.items()]
    assert targets.steepest("depth")(results, ALONE) == pytest.approx(1.1)
    assert targets.steepest("depth", "queues")(results, ALONE) == pytest.approx(1.4)
    assert targets.steepest("delayed")(results, ALONE) is None


def test_benchmark_targets_are_reported_as_met_or_missed_only_if_measured() -> None:
    kept = targets.table([drained(0, "rota", 80), drained(0, "classic", 20)], ALONE).splitlines()
    missed = targets.table([drained(0, "rota", 79), drained(0, "classic", 20)], ALONE).splitlines()
    assert [line.split()[0] for line in kept] == ["targets", "yes"]
    assert [line.split()[0] for line in missed] == ["targets", "NO"]
    assert "none of them" in targets.table([], ALONE)


def test_the_tables_on_the_benchmark_page_match_the_published_run() -> None:
    text = page.PAGE.read_text()
    assert set(page.names(text)) == set(page.TABLES)
    assert page.rewritten(text, json.loads(page.REFERENCE.read_text())) == text, (
        "python -m benchmarks.page writes them again"
    )
