"""What becomes of the numbers of a benchmark: medians, ratios within a round, targets, tables."""

import dataclasses
import json
import sys
from typing import Any

import pytest

from support.prose import ROOT

sys.path.append(str(ROOT))  # the benchmarks are no part of the distribution

from benchmarks import growth, page, targets
from benchmarks.contenders import CONTENDERS, rivals
from benchmarks.effort import FULL
from benchmarks.measures import MEASURES
from benchmarks.numbers import Result, Spread, of, quantile, ratios, read_results, rotated, spread, summary
from benchmarks.report import table
from benchmarks.targets import Rivals, every, python, ratio_to_best

ALONE = Rivals(every=[], python=[])


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


def test_the_best_rival_is_the_one_with_the_highest_median() -> None:
    results = [drained(turn, "rota", 60) for turn in range(3)]
    results += [drained(turn, "steady", 10) for turn in range(3)]
    results += [drained(0, "lucky", 30), drained(1, "lucky", 1), drained(2, "lucky", 1)]
    results += [drained(turn, "elsewhere", 50) for turn in range(3)]
    measured = Rivals(every=["steady", "lucky", "elsewhere"], python=["steady", "lucky"])
    assert ratio_to_best(python, "drain", "rate")(results, measured) == 6.0
    assert ratio_to_best(every, "drain", "rate")(results, measured) == 1.2
    assert ratio_to_best(every, "drain", "rate")(results, ALONE) is None


def test_of_lags_the_best_rival_is_the_one_with_the_lowest_median() -> None:
    lags = {"rota-c100": 3.0, "quick": 2.0, "slow": 9.0}
    results = [Result("steady", 0, name, {"lag_ms_p99": lag}) for name, lag in lags.items()]
    find = ratio_to_best(every, "steady", "lag_ms_p99", "rota-c100", least=True)
    assert find(results, Rivals(every=["slow", "quick"], python=[])) == 1.5


def test_rivals_of_python_are_those_that_run_a_task_again() -> None:
    assert rivals(["rota", "classic", "huey", "saq", "sidekiq"]) == Rivals(
        every=["huey", "saq", "sidekiq"], python=["saq"]
    )


def test_the_steepest_growth_is_that_of_the_worst_axis() -> None:
    costs = {"depth 1000": 10.0, "depth 1000000": 11.0, "queues 1": 10.0, "queues 100": 14.0, "queues 100 all": [14.0]}
    results = [Result("growth", 0, "rota", {key: value}) for key, value in costs.items()]
    assert targets.steepest("depth")(results, ALONE) == pytest.approx(1.1)
    assert targets.steepest("depth", "queues")(results, ALONE) == pytest.approx(1.4)
    assert targets.steepest("delayed")(results, ALONE) is None


def test_a_target_says_whether_it_is_kept_and_nothing_of_what_was_not_measured() -> None:
    kept = targets.table([drained(0, "rota", 80), drained(0, "classic", 20)], ALONE).splitlines()
    missed = targets.table([drained(0, "rota", 79), drained(0, "classic", 20)], ALONE).splitlines()
    assert [line.split()[0] for line in kept] == ["targets", "yes"]
    assert [line.split()[0] for line in missed] == ["targets", "NO"]
    assert "none of them" in targets.table([], ALONE)


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


def test_the_tables_of_the_page_are_those_of_the_published_run() -> None:
    text = page.PAGE.read_text()
    assert set(page.names(text)) == set(page.TABLES)
    assert page.rewritten(text, json.loads(page.REFERENCE.read_text())) == text, (
        "python -m benchmarks.page writes them anew"
    )


def test_a_table_of_the_page_has_who_was_measured_and_says_what_never_came() -> None:
    crashed = Result("crash", 0, "huey", {"rerun_ms": None})
    text = "before\n<!-- table: times -->\nold\n<!-- table: end -->\nafter"
    written = page.rewritten(text, {"results": [dataclasses.asdict(crashed)]})
    rows = [line for line in written.splitlines() if line.startswith("|")][2:]
    assert [[cell.strip() for cell in row.split("|")[1:-1] if cell.strip()] for row in rows] == [
        ["huey", "not in time"]
    ]
    assert "old" not in written
    assert written.endswith("<!-- table: end -->\nafter")


def test_every_contender_says_how_it_is_set_up_and_is_measured_in_something() -> None:
    assert all(one.settings and one.measures <= set(MEASURES) for one in CONTENDERS.values())
