"""The status page: what it shows, and that nothing a producer names can break out of it."""

from html.parser import HTMLParser
from typing import Any

import pytest

from rota_supervisor.exporter.page import page, seconds
from rota_supervisor.notice import Held

EVIL = "<script>alert('1')</script>\"&"


def state(**changes: Any) -> dict[str, Any]:
    """A fleet in which all is well, but for the changes."""
    queue = {
        "name": "mail",
        "configured": True,
        "pattern": None,
        "lag_objective_seconds": 5.0,
        "state": {
            "ready": 1234, "scheduled": 2, "overdue": 3, "inflight": 4, "dead": 5, "accepted": 6,
            "oldest_ready_age_seconds": 0.25, "oldest_overdue_age_seconds": 0.0, "paused": False, "served": True,
            "closed_age_seconds": 0.0, "closed_by": "", "condition_error": "",
        },
        "lag": {"window_seconds": 300.0, "starts": 10, "p50_seconds": 0.0042, "p99_seconds": 1.5},
        "processed": {"done": 77},
    }  # fmt: skip
    process = {
        "slot": 8, "role": "worker", "pid": 4711, "phase": "busy", "beat_age_seconds": 3.25,
        "task": {"id": "id-1", "name": "send", "queue": "mail"}, "task_age_seconds": 3.25, "tasks": [],
        "progress": {"done": 40, "total": 1600, "note": "rows read", "at": "2026-01-02T03:04:05+00:00"},
    }  # fmt: skip
    return {
        "fleet": "shop",
        "ready": {"ok": True, "checks": [{"name": "redis", "ok": True, "seen": "the master reaches Redis"}]},
        "redis": True,
        "started_at": 0.0,
        "missing_tasks": 0,
        "pools": [
            {"name": "default", "desired": 4, "state": "running", "workers": {"running": 3, "booting": 1}},
        ],
        "held": [],
        "processes": [process],
        "queues": [queue],
        "schedules": [],
        "groups": [],
        "restarts": [{"role": "worker", "reason": "signal", "count": 2}],
        **changes,
    }


class Outline(HTMLParser):
    """Tags opened, and all text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name in {"src", "srcset", "onload", "onclick"}]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_queues_pools_processes_and_restarts() -> None:
    text = Outline(page(state())).text
    for shown in (
        "shop",
        "ready",
        "1,234",
        "4.2 ms",
        "1.5 s",
        "77",
        "3 running, 1 booting",
        "4711",
        "send id-1",
        "40/1,600 (2 %) rows read",
        "signal",
    ):
        assert shown in text


def test_names_are_escaped_wherever_they_stand() -> None:
    evil = state(fleet=EVIL, restarts=[{"role": EVIL, "reason": EVIL, "count": 1}])
    evil["queues"][0]["name"] = EVIL
    evil["pools"][0] |= {"name": EVIL, "workers": {EVIL: 1}}
    evil["processes"][0] |= {"role": EVIL, "phase": EVIL, "task": {"id": EVIL, "name": EVIL, "queue": EVIL}}
    evil["processes"][0]["progress"]["note"] = EVIL
    evil["ready"] = {"ok": False, "checks": [{"name": EVIL, "ok": False, "seen": EVIL}]}
    html = page(evil)
    assert "<script" not in html
    assert Outline(html).text.count(EVIL) >= 10
    assert Outline(html).tags.count("script") == 0


def test_the_page_reloads_itself_and_fetches_nothing() -> None:
    html = page(state())
    assert '<meta http-equiv="refresh" content="5">' in html
    assert not {"script", "link", "img", "iframe"} & set(Outline(html).tags)


def test_without_redis_the_page_says_so_and_shows_dashes() -> None:
    away = state(redis=False, missing_tasks=None)
    away["queues"][0] |= {"state": None, "lag": None}
    text = Outline(page(away)).text
    assert "Redis is away" in text
    assert "1,234" not in text


def test_what_is_wrong_stands_out() -> None:
    wrong = state(missing_tasks=3)
    wrong["ready"] = {
        "ok": False,
        "checks": [{"name": "redis", "ok": False, "seen": "the master does not reach Redis"}],
    }
    wrong["queues"][0]["state"] |= {"paused": True, "served": False, "closed_age_seconds": 7500.0}
    wrong["queues"][0]["lag"]["p99_seconds"] = 7.0
    html = page(wrong)
    text = Outline(html).text
    for told in (
        "not ready",
        "the master does not reach Redis",
        "paused for 2 h 05 min",
        "not served",
        "3 accepted tasks are missing",
    ):
        assert told in text
    assert '<span class="bad">7.0 s</span>' in html, "the objective is 5 s"


def test_a_queue_that_its_condition_keeps_closed_says_why_and_for_how_long() -> None:
    closed = state()
    closed["queues"][0]["state"] |= {"closed_by": "office_hours", "closed_age_seconds": 60.0}
    assert "closed by office_hours for 60.0 s" in Outline(page(closed)).text
    closed["queues"][0]["state"] |= {"condition_error": f"condition:1: {EVIL}"}
    assert f"closed by office_hours for 60.0 s: condition:1: {EVIL}" in Outline(page(closed)).text


def test_a_pool_in_back_off_shows_why_and_when_it_is_tried_again() -> None:
    row = Held("worker", "default", "backoff", 4, 9.0, f"left with {EVIL}").row(now=1.0)
    held = state(held=[row])
    held["pools"][0]["state"] = "backoff"
    text = Outline(page(held)).text
    for told in ("Starts held back", "backoff", "8.0 s", f"left with {EVIL}"):
        assert told in text
    assert "Starts held back" not in Outline(page(state())).text


def test_an_empty_fleet_is_a_page_too() -> None:
    text = Outline(page(state(pools=[], processes=[], queues=[], restarts=[]))).text
    assert "No process lives." in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0 ms"), (0.00042, "0.4 ms"), (1.0, "1.0 s"), (119.94, "119.9 s"), (150, "2 min"), (7500, "2 h 05 min")],
)
def test_durations_are_written_for_people(value: float, text: str) -> None:
    assert seconds(value) == text


def test_schedules_are_shown_where_there_are_any() -> None:
    assert "Schedules" not in page(state())
    assert "Schedules" not in page(state(schedules=None))
    row = {"name": "nightly", "task": EVIL, "when": "0 3 * * * UTC", "last_at": "2026-11-22T03:00:00+00:00"}
    rows = [{**row, "state": "waiting", "next_in_seconds": 3.1}, {**row, "state": "paused", "next_in_seconds": None}]
    outline = Outline(page(state(schedules=rows)))
    for shown in ("Schedules", "nightly", "0 3 * * * UTC", "2026-11-22T03:00:00+00:00", "3.1 s", "paused"):
        assert shown in outline.text
    assert "script" not in outline.tags


def test_groups_are_shown_where_there_are_any() -> None:
    assert "Groups" not in page(state())
    assert "Groups" not in page(state(groups=None))
    group = {"id": EVIL, "state": "open", "total": 4000, "left": 3000, "dead": 7, "opened_at": "2026-11-22T03:00:00"}
    outline = Outline(page(state(groups=[group])))
    for shown in ("Groups", "open", "1,000/4,000 (25 %)", "3,000", "7", "2026-11-22T03:00:00"):
        assert shown in outline.text
    assert "script" not in outline.tags


def test_of_a_queue_of_a_pattern_nothing_is_shown_that_is_counted_for_the_pattern() -> None:
    [row] = state()["queues"]
    tenant = {**row, "name": "tenant-7", "pattern": "tenant-*", "lag": None, "processed": {"done": 99_123}}
    text = Outline(page(state(queues=[tenant]))).text
    assert "1,234" in text
    assert "99,123" not in text
