"""What becomes of the numbers of a benchmark: medians, ratios within a round, targets, tables."""

import sys
from typing import Any

import pytest

from prose import ROOT

sys.path.append(str(ROOT))  # the benchmarks are no part of the distribution

from benchmarks import growth, targets
from benchmarks.effort import FULL
from benchmarks.measures import MEASURES
from benchmarks.numbers import Result, Spread, of, quantile, ratios, read_results, rotated, spread, summary
from benchmarks.report import table


def drained(turn: int, contender: str, rate: float) -> Result:
    return Result("drain", turn, contender, {"rate": rate})


def test_every_contender_begins_once_before_any_begins_again() -> None:
    names = ["rota", "classic", "raw"]
    rounds = [rotated(names, turn) for turn in range(3)]
    assert sorted(order[0] for order in rounds) == sorted(names)
    assert all(sorted(order) == sorted(names) for order in rounds)
    assert rotated(names, 3) == names
    assert rotated([], 1) == []


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_a_quantile_is_the_smallest_number_that_so_many_do_not_exceed(share: float, expected: int) -> None:
    assert quantile(range(100, 0, -1), share) == expected


def test_a_summary_keeps_at_most_300_numbers_and_always_the_highest() -> None:
    values = summary("lag_ms", [float(number) for number in range(2000)])
    assert len(values["lag_ms_all"]) == 300
    assert values["lag_ms_all"][-1] == values["lag_ms_max"] == 1999
    assert summary("lag_ms", [2.0, 1.0])["lag_ms_all"] == [1.0, 2.0]


def test_a_ratio_is_taken_within_a_round_and_rounds_without_a_partner_have_none() -> None:
    results = [drained(0, "rota", 60), drained(0, "classic", 20), drained(1, "rota", 10), drained(2, "classic", 5)]
    ours, theirs = (of(results, "drain", name, "rate") for name in ("rota", "classic"))
    assert ratios(ours, theirs) == [3.0]


def test_what_never_came_is_no_number() -> None:
    results = [Result("crash", 0, "classic", {"rerun_ms": None}), Result("crash", 1, "classic", {"rerun_ms": 7.0})]
    assert of(results, "crash", "classic", "rerun_ms") == {1: 7.0}
    assert spread([]) is None
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)


def test_recorded_results_read_back_as_they_were() -> None:
    recorded: dict[str, Any] = {
        "results": [{"measure": "drain", "round": 0, "contender": "rota", "values": {"rate": 1.5}}]
    }
    assert read_results(recorded) == [drained(0, "rota", 1.5)]


def test_the_best_peer_is_the_one_with_the_highest_median() -> None:
    results = [drained(turn, "rota", 60) for turn in range(3)]
    results += [drained(turn, "steady", 10) for turn in range(3)]
    results += [drained(0, "lucky", 30), drained(1, "lucky", 1), drained(2, "lucky", 1)]
    results += [drained(turn, "loses", 50) for turn in range(3)]
    assert targets.ratio_to_best_peer("drain", "rate")(results, ["steady", "lucky"]) == 6.0
    assert targets.ratio_to_best_peer("drain", "rate")(results, []) is None


def test_of_lags_the_best_peer_is_the_one_with_the_lowest_median() -> None:
    lags = {"rota-c100": 3.0, "quick": 2.0, "slow": 9.0}
    results = [Result("steady", 0, name, {"lag_ms_p99": lag}) for name, lag in lags.items()]
    find = targets.ratio_to_best_peer("steady", "lag_ms_p99", "rota-c100", less_is_better=True)
    assert find(results, ["slow", "quick"]) == 1.5


def test_the_steepest_growth_is_that_of_the_worst_axis() -> None:
    costs = {"depth 1000": 10.0, "depth 1000000": 11.0, "queues 1": 10.0, "queues 100": 14.0, "queues 100 all": [14.0]}
    results = [Result("growth", 0, "rota", {key: value}) for key, value in costs.items()]
    assert targets.steepest("depth")(results, []) == pytest.approx(1.1)
    assert targets.steepest("depth", "queues")(results, []) == pytest.approx(1.4)
    assert targets.steepest("delayed")(results, []) is None


def test_a_target_says_whether_it_is_kept_and_nothing_of_what_was_not_measured() -> None:
    target = targets.Target("drain", targets.ratio("drain", "rate", "classic"), at_least=True, limit=3, unit="x")
    kept = target.line([drained(0, "rota", 60), drained(0, "classic", 20)], [])
    missed = target.line([drained(0, "rota", 50), drained(0, "classic", 20)], [])
    assert kept is not None
    assert kept.startswith("  yes")
    assert missed is not None
    assert missed.startswith("  NO")
    assert target.line([], []) is None


def test_a_table_shows_medians_and_ratios_and_only_who_was_measured() -> None:
    results = [drained(turn, name, rate) for turn in range(2) for name, rate in (("rota", 30_000), ("classic", 10_000))]
    shown = table(MEASURES["drain"], ["rota", "classic", "absent"], results)
    assert "30,000" in shown
    assert "x 3.00 (3.00 to 3.00)" in shown
    assert "absent" not in shown


def test_a_task_that_never_ran_again_is_said_to_be_so() -> None:
    results = [Result("crash", 0, "classic", {"rerun_ms": None, "whole_ms": None})]
    assert "not in time" in table(MEASURES["crash"], ["classic"], results)


def test_every_point_of_growth_is_told_relative_to_the_first_of_its_axis() -> None:
    results = [Result("growth", 0, "rota", {point.key: float(point.value)}) for point in growth.points(FULL)]
    lines = growth.table(results, FULL).splitlines()[1:]
    assert len(lines) == len(growth.points(FULL))
    assert lines[0].endswith("x 1.00")
    assert lines[len(FULL.depths) - 1].endswith("x 1000.00")


def test_slow_measurements_are_made_in_every_third_round() -> None:
    assert (FULL.rounds_of("drain"), FULL.rounds_of("idle")) == (3, 1)
