"""The status page when it receives unusual responses: hostile names, refusals, and replies to actions."""

import json
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from rota.display_text import printable
from rota.durations import in_words
from support.browser import Tab, TabOpener
from support.exporting import Exporter, small_fleet
from support.hostile import HOSTILE, UNFIT, unfit_in

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

HISTORY = {"started": [1, 2], "done": [1, 1], "p50": [0.1, None], "p99": [0.2, None]}
QUEUE = {
    "name": "mail", "configured": True, "pattern": None, "tier": 1, "weight": 3.0, "lag_objective_seconds": 5.0,
    "share": 0.6, "due_share": 0.75, "lag": {"starts": 3, "p50_seconds": 0.1, "p99_seconds": 0.2},
    "history": HISTORY, "processed": {"done": 3},
    "state": {
        "ready": 2, "scheduled": 2, "overdue": 3, "inflight": 4, "dead": 5, "accepted": 6, "paused": False,
        "oldest_ready_age_seconds": 0.25, "oldest_overdue_age_seconds": 0.0, "served": True,
        "closed_age_seconds": 3.0, "closed_by": "office", "condition_error": "",
    },
}  # fmt: skip
TASK = {
    "place": 0, "task": {"id": "id-1", "name": "send", "queue": "mail"}, "task_age_seconds": 3.25,
    "limit_seconds": 4.0, "left_seconds": 0.75, "lag_seconds": 0.1,
    "progress": {"done": 40, "total": 1600, "note": "rows read", "at": "2026-01-02T03:04:05+00:00"},
}  # fmt: skip
PROCESS = {
    "slot": 8, "role": "worker", "pid": 4711, "pool": "default", "generation": 1, "state": "ready",
    "phase": "busy", "quiet": True, "concurrency": 1, "beat_age_seconds": 3.25, "tasks": [TASK],
}  # fmt: skip
NODE = {
    "node": "other", "is_this": False, "state": "lost", "url": None, "workers": 1, "desired": 2, "busy": 0,
    "concurrency": 2, "quiet": True, "done_per_second": 1.0, "lag_p50_seconds": 0.1, "lag_p99_seconds": 0.2,
    "late": 0.5, "last_death": "worker in slot 9", "seen_seconds_ago": 30.0,
}  # fmt: skip
STATUS: dict[str, Any] = {
    "fleet": "shop", "at": 1.8e9, "version": "1.0", "node": "this", "started_at": 1.7e9, "redis_up": True,
    "history": {"step_seconds": 5.0, "ends_at": 1.8e9, "length": 2}, "overall": HISTORY, "scaled_pools": {},
    "actions": True,
    "lag": {"p50_seconds": 0.1, "p99_seconds": 0.2}, "rate": {"done_per_second": 1.0, "started_per_second": 1.0},
    "headlines": [{"level": "bad", "text": "queue mail is late", "where": "queues/mail"}],
    "pools": [{"name": "default", "desired": 2, "state": "backoff", "workers": {"running": 1, "booting": 1}}],
    "held": [{
        "role": "worker", "pool": "default", "state": "fatal", "failures_in_a_row": 3, "next_try_seconds": 1.0,
        "last_error": "hook raised",
    }],
    "processes": [PROCESS], "queues": [QUEUE], "nodes": [NODE],
    "schedules": [{
        "name": "nightly", "task": "report", "queue": "mail", "when": "0 3 * * *", "state": "paused", "last_at": None,
        "next_in_seconds": 1.0, "error": "",
    }],
    "groups": [{"id": "g", "state": "open", "total": 2, "left": 1, "dead": 1, "opened_at": "2026-01-02T03:04:05"}],
    "restarts": [{"role": "worker", "reason": "signal", "count": 1}],
    "last_reload": {"result": "failure", "faults": ["tiers: wrong"], "at": 1.7e9},
    "last_death": {"child": "worker", "slot": 9, "words": "killed", "task": "send", "at": 1.7e9},
    "events": [{"n": 1, "at": 1.7e9, "level": "warning", "event": "worker.exited", "text": "it left", "fields": {}}],
}  # fmt: skip
DEAD = {
    "id": "id-2", "state": "dead", "queue": "mail", "name": "send", "age_seconds": 4.0, "attempt": 11,
    "death": {"reason": "retries", "error": "it failed"},
}  # fmt: skip
ONE_TASK = {
    **DEAD, "kind": "immediate", "failures": 1, "crashes": 0, "losses": 0, "node": "n", "why": "so", "owner": "n:8:1",
    "attempts": [{"attempt": 1, "reason": "failed", "error": "it failed", "node": "n", "pid": 7, "run_seconds": 0.1}],
    "timeline": [{"at": "2026-01-02T03:04:05+00:00", "what": "attempt 1 failed", "detail": "it failed"}],
}  # fmt: skip
SHOWN = "document.documentElement.outerHTML + document.title"


class Answers:
    """The responses that the page receives from the test instead of an exporter, and the actions that the page
    requested.
    """

    def __init__(self) -> None:
        self.status: dict[str, Any] = STATUS
        self.dead: dict[str, Any] = {"queue": "", "tasks": [DEAD], "cursor": "50"}
        self.task: dict[str, Any] = ONE_TASK
        self.done: list[dict[str, Any]] = []
        self.done_answer: tuple[int, dict[str, Any]] = (200, {"ok": True, "text": "it is done"})
        self.token = ""

    def install(self, page: "Page") -> None:
        page.route("**/status.json*", lambda route: self._give(route, self.status))
        page.route("**/dead.json*", lambda route: self._give(route, self.dead))
        page.route("**/task.json*", lambda route: self._give(route, self.task))
        page.route("**/actions", self._act)

    def _give(self, route: "Route", answer: dict[str, Any], status: int = 200) -> None:
        if self.token and route.request.headers.get("authorization") != f"Bearer {self.token}":
            route.fulfill(status=401, json={"ok": False, "error": "no token"})
        else:
            route.fulfill(status=status, body=json.dumps(answer), content_type="application/json")

    def _act(self, route: "Route") -> None:
        self.done.append(json.loads(route.request.post_data or ""))
        self._give(route, self.done_answer[1], self.done_answer[0])


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    """Yield an exporter that serves the files of the page."""
    made = small_fleet("redis://127.0.0.1:1/0", "answers")
    yield made.start()
    made.close()


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def tab(exporter: Exporter, answers: Answers, open_tab: TabOpener) -> Tab:
    return open_tab(f"http://{exporter.target}/", prepare=answers.install)


def hostile(value: Any) -> Any:
    """Return a copy of this response in which every text is replaced by hostile text."""
    if isinstance(value, dict):
        return {key: hostile(each) for key, each in value.items()}
    if isinstance(value, list):
        return [hostile(each) for each in value]
    return HOSTILE if isinstance(value, str) else value


def go(tab: Tab, place: str) -> str:
    """Open a part of the page, wait until the browser shows this part, and return its HTML."""
    tab.page.evaluate("(place) => { location.hash = place; }", place)
    tab.wait_for("(document.querySelector('article') ?? document.body).innerText.includes('bücher')")
    return str(tab.page.evaluate(SHOWN))


def test_the_page_escapes_text_from_outside(tab: Tab, answers: Answers) -> None:
    answers.status, answers.dead, answers.task = hostile(STATUS), hostile(answers.dead), hostile(ONE_TASK)
    answers.dead["cursor"] = None
    answers.status["queues"][0]["state"]["condition_error"] = HOSTILE
    tab.wait_for("document.body.innerText.includes('bücher')")
    queue = tab.page.evaluate("document.querySelector('#queues tbody a').hash")
    for place in ("#/", queue, "#/dead", "#/task/any"):
        shown = go(tab, place)
        assert unfit_in(shown) == "", place
        assert tab.page.locator("b[onclick]").count() == 0, place
    assert tab.complaints == []


def test_the_status_page_escapes_text_in_the_same_way_as_python(tab: Tab) -> None:
    known = "".join(chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs"))
    escaped = tab.page.evaluate("async (text) => (await import('./text.js')).printable(text)", known)
    assert escaped == printable(known)
    halves = tab.page.evaluate("async () => (await import('./text.js')).printable('\\ud800 \\udfff')")
    assert halves == r"\ud800 \udfff"
    assert UNFIT


def test_durations_are_formatted_as_on_the_command_line(tab: Tab) -> None:
    durations = [0, 0.00042, 0.0421, 0.1, 1.24, 9.96, 10, 59.9, 60, 185, 3600, 7325, 90061, 172800]
    formatted = tab.page.evaluate(
        "async (all) => { const { duration } = await import('./text.js'); return all.map((each) => duration(each)); }",
        durations,
    )
    assert formatted == [in_words(each) for each in durations]


def test_the_status_page_shows_a_question_mark_for_values_redis_lacks(tab: Tab, answers: Answers) -> None:
    answers.status = {
        **STATUS,
        "queue_states_age_seconds": None,
        "queues": [{**QUEUE, "state": None}],
        "schedules": None,
        "groups": None,
    }
    tab.wait_for("document.querySelector('#queues tr:not(.group) td')?.innerText === '?'")
    assert tab.complaints == []


def test_the_status_page_requests_the_token_only_once(tab: Tab, answers: Answers) -> None:
    answers.token = "secret"
    tab.wait_for("document.getElementById('token').open")
    tab.page.fill("#token-text", "secret")
    tab.page.keyboard.press("Enter")
    tab.wait_for("!document.getElementById('token').open && document.getElementById('queues')")
    tab.page.reload()
    tab.wait_for("document.getElementById('queues')")
    assert not tab.page.evaluate("document.getElementById('token').open")
    assert [text for text in tab.complaints if "401" not in text] == []


@pytest.mark.parametrize(
    ("place", "label", "expected"),
    [
        ("#/queues/mail", "Pause", {"verb": "pause", "queue": "mail"}),
        ("#/dead", "Revive", {"verb": "revive", "task_id": "id-2"}),
        ("#/", "Cancel", {"verb": "cancel", "task_id": "id-1"}),
        ("#/", "Scale", {"verb": "scale", "pool": "default", "workers": 5}),
    ],
)
def test_actions_on_the_status_page_need_a_confirmation(
    tab: Tab, answers: Answers, place: str, label: str, expected: dict[str, Any]
) -> None:
    tab.page.evaluate("(place) => { location.hash = place; }", place)
    for answer, is_done in (("Go back", False), (label, True)):
        tab.page.click(f"main button:has-text('{label}')")
        if "workers" in expected:
            tab.page.fill("#confirm-workers", str(expected["workers"]))
        tab.page.click(f"#confirm button:has-text('{answer}')")
        if is_done:
            tab.wait_for("document.getElementById('toast').innerText === 'it is done'")
        assert answers.done == [expected] * is_done
    assert tab.complaints == []


def test_the_status_page_shows_the_text_of_a_refusal(tab: Tab, answers: Answers) -> None:
    answers.done_answer = (409, {"ok": False, "error": f"it drains {HOSTILE}"})
    tab.page.evaluate("location.hash = '#/queues/mail'")
    tab.page.click("main button:has-text('Pause')")
    tab.page.click("#confirm-do")
    tab.wait_for("document.getElementById('toast').innerText.startsWith('it drains before')")
    assert unfit_in(tab.page.evaluate(SHOWN)) == ""


def test_without_actions_the_page_has_no_action_buttons(tab: Tab, answers: Answers) -> None:
    answers.status = {**STATUS, "actions": False}
    for place in ("#/", "#/queues/mail", "#/dead", "#/task/id-2"):
        tab.page.goto(tab.page.url.partition("#")[0] + place)
        tab.page.reload()
        tab.wait_for("document.getElementById('live').innerText.includes('live')")
        words = tab.page.locator("main button").all_inner_texts()
        assert not {"Pause", "Resume", "Revive", "Cancel", "Scale"} & set(words), place
