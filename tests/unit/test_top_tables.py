"""The tables of `rota top`. Rows can be sorted and filtered, and fit the width of the terminal. Problems are marked
with a word, not only with a color.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_supervisor.exporter.headlines import headlines
from rota_supervisor.top import fleet_view
from rota_supervisor.top.fleet_view import plain
from rota_supervisor.top.tables import Cell, Table, spark
from support.fleet_status import HELD, Status, busy, healthy, late_by, process, queue, task
from support.hostile import HOSTILE, unfit_in

VERY_WIDE = 300


def column(table: Table, head: str) -> list[str]:
    return [line.cells[table.heads.index(head)].text for line in table.lines]


def shown() -> dict[str, object]:
    status = busy()
    return status | {"headlines": headlines(status)}


def test_queues_are_sorted_by_tier_and_marked_with_their_problems() -> None:
    status = busy()
    status["queues"][3]["state"] |= {"served": False, "ready": 1}
    status["queues"][3] |= late_by(9.0)
    status["queues"][4]["state"] = None
    table = fleet_view.queues(status).fitted(VERY_WIDE)
    assert column(table, "TIER") == ["1", "1", "2", "2", "3"]
    assert column(table, "STATE") == ["ok", "LATE", "paused", "unserved, LATE", "unknown"]
    assert column(table, "READY") == ["0", "1,234", "3", "1", "-"]
    assert column(table, "OLDEST")[:2] == ["-", "1 m"]


@pytest.mark.parametrize(
    ("late", "word"), [({}, "ok"), (late_by(9.0), "LATE"), (late_by(9.0, seconds_ago=60.0), "was late")]
)
def test_rota_top_distinguishes_a_late_queue_from_one_that_was_late(late: Status, word: str) -> None:
    row = queue() | late
    assert column(fleet_view.queues(healthy() | {"queues": [row]}).fitted(VERY_WIDE), "STATE") == [word]


def test_rows_of_rota_top_with_unknown_values_are_sorted_last() -> None:
    status = busy()
    status["queues"][0]["state"] = None  # Redis has not replied
    table = fleet_view.queues(status).fitted(VERY_WIDE)
    assert column(table.sorted("READY", reverse=True), "READY") == ["1,234", "3", "0", "0", "-"]
    assert column(table.sorted("READY", reverse=False), "READY") == ["0", "0", "3", "1,234", "-"]
    assert table.sorted("NO SUCH", reverse=False) == table


def test_rota_top_filters_rows_by_the_text_in_any_cell() -> None:
    table = fleet_view.queues(busy()).fitted(VERY_WIDE)
    assert column(table.filtered("EMAIL"), "QUEUE") == ["sold-email", "expired-email"]
    assert column(table.filtered("paused"), "QUEUE") == ["expired-email"]


def test_a_worker_has_a_row_for_each_running_task() -> None:
    idle = {"task": None, "task_age_seconds": None, "progress": None}
    tasks = [task(task_age_seconds=25.0, limit_seconds=20.0), task("mail.read") | {"place": 1}]
    status = healthy() | {"processes": [process(0, "master") | idle, process(8, "worker", *tasks)]}
    table = fleet_view.workers(status).fitted(VERY_WIDE)
    assert column(table, "SLOT") == ["8.0", "8.1", "0"]
    assert column(table, "FOR") == ["25 s of 20 s", "0.5 s", "-"]
    assert table.lines[0].cells[table.heads.index("FOR")].level == "bad"


def test_a_pool_in_back_off_shows_the_reason() -> None:
    pool = {"name": "default", "desired": 4, "state": "fatal", "workers": {"booting": 1}}
    table = fleet_view.pools(healthy() | {"pools": [pool], "held": [HELD]}).fitted(VERY_WIDE)
    assert column(table, "BACK-OFF") == ["9 failures, next try in 3.0 s: hook on_worker_start failed: no key"]


@pytest.mark.parametrize("width", [50, 60, 80, 120, 200])
def test_no_table_of_rota_top_is_wider_than_the_available_space(width: int) -> None:
    status = busy()
    status["queues"][1]["name"] = "a-queue-with-a-name-that-is-longer-than-most"
    for make in fleet_view.TABLES.values():
        table = make(status).fitted(width)
        for line in table.lines:
            texts = zip(table.heads, line.cells, strict=True)
            assert sum(max(len(head), len(cell.text)) + 2 for head, cell in texts) <= width, table.name


def test_narrow_tables_drop_the_columns_for_lag_and_state_last() -> None:
    assert fleet_view.queues(busy()).fitted(10).heads == ("QUEUE", "STATE", "READY", "OLDEST", "P99")


def test_the_sorted_column_is_always_shown() -> None:
    assert fleet_view.queues(busy()).fitted(10, kept="TIER").heads == (
        "TIER",
        "QUEUE",
        "STATE",
        "READY",
        "OLDEST",
        "P99",
    )


def test_headlines_are_numbered_marked_and_cut_to_two_lines() -> None:
    rows = [{"level": "bad", "text": "b" * 300, "where": ""}, {"level": "warn", "text": "w", "where": ""}]
    first, second = fleet_view.headlines({"headlines": rows}, 60, 5)
    assert first.text.startswith("!! 1 of 2: bbb")
    assert len(first.text) <= 2 * 60
    assert second == Cell(" ! 2 of 2: w", level="warn")
    assert fleet_view.headlines({"headlines": rows[1:]}, 60, 5) == [Cell(" ! w", level="warn")]


def test_a_queue_chart_shows_how_often_the_objective_was_missed() -> None:
    row = queue(objective=0.15)
    row["history"] |= {"p99": [0.1, 0.2, 0.3, None]}
    [*_, last_line] = fleet_view.queue_chart(row, 5.0, 80)
    assert last_line[0].text == "objective 0.1 s: p99 exceeded it in 2 of 4 steps"


def test_chart_bars_are_as_high_as_their_share_and_gaps_stay_empty() -> None:
    assert spark([None, 0.0, 0.5, 1.0], 4) == " ▁▅█"
    assert spark([1.0], 3) == "  █"


@given(st.lists(st.none() | st.floats(min_value=0, max_value=1e6), max_size=80), st.integers(1, 60))
def test_a_chart_has_as_many_bars_as_its_width(values: list[float | None], width: int) -> None:
    assert len(spark(values, width)) == width


def test_the_text_of_rota_top_shows_everything_in_the_requested_width() -> None:
    text = plain(shown(), 100)
    for word in ("shop on a", "!! 1 of", "sold-email", "LATE", "mail.send", "default", "lost", "killed by SIGSEGV"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 100


def test_rota_top_can_show_a_fleet_with_unknown_values() -> None:
    """Values are unknown because Redis is unreachable, the master does not reply, and nothing has started yet."""
    idle = {"task": None, "task_age_seconds": None, "progress": None}
    bare = healthy() | {"processes": [process(8) | idle], "events": None, "nodes": None, "tiers": []}
    bare["queues"] = [queue() | {"state": None, "lag": None, "history": None, "tier": None}]
    text = plain(bare | {"overall": None, "history": None, "headlines": headlines(bare)}, 100)
    assert "mail" in text


def test_rota_top_escapes_control_characters_in_names() -> None:
    status = busy()
    for row in (*status["queues"], *status["pools"]):
        row["name"] = HOSTILE
    for row in status["processes"]:
        for running in row["tasks"]:
            running["task"] = {"id": HOSTILE, "name": HOSTILE, "queue": HOSTILE}
    status["fleet"] = status["node"] = status["nodes"][0]["node"] = HOSTILE
    status["events"][0] |= {"text": HOSTILE, "event": HOSTILE, "level": HOSTILE}
    text = plain(status | {"headlines": headlines(status)}, VERY_WIDE)
    assert not unfit_in(text.replace("\n", ""))
