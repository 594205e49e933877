"""The status page of a real fleet in a browser. It shows every change, fits any screen size, and is accessible."""

import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import rota
from support.browser import Tab, TabOpener
from support.fleets import RunningFleet
from support.masters import ON_ONE_SERVER
from support.servers import Server
from support.waiting import until

# The event loop of the browser runs in the thread of the tests. Blocking calls are harmless there.
pytestmark = [ON_ONE_SERVER, pytest.mark.filterwarnings("ignore::rota.BlockingCall")]

QUEUES = {"mail": {"weight": 3, "lag_objective_seconds": 5}, "bulk": {"weight": 1}}
NARROW = {"width": 400, "height": 860}
POLLS = 200


@pytest.fixture(scope="module")
def fleet(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFleet]:
    """Yield one fleet for all tests of this module. The last test stops it."""
    tiers = [["mail", "bulk"], ["default"]]
    folder = tmp_path_factory.mktemp("page")
    settings: dict[str, Any] = {"tiers": tiers, "queues": QUEUES, "workers": "3..5", "scaling": {"max_cpu": 1}}
    made = RunningFleet(server.url, f"page{os.getpid()}", folder, **settings)
    yield made.start()
    made.close()


@pytest.fixture
def tab(fleet: RunningFleet, open_tab: TabOpener) -> Iterator[Tab]:
    """Yield a browser tab with the page. Afterwards, check that there was no script error, no console message, no
    violation of the content security policy, and no request to another host.
    """
    found = open_tab(address(fleet))
    found.wait_for("document.getElementById('queues')")
    home = found.page.url
    yield found
    assert found.complaints == []
    assert [url for url in found.requested if not url.startswith((home, "data:"))] == []


def address(fleet: RunningFleet) -> str:
    return f"http://{fleet.target()}/"


def row(name: str) -> str:
    """Return a JavaScript expression for the table row with this id."""
    return f"document.getElementById('{name}')"


def test_the_status_page_updates_numbers_and_shows_running_tasks(fleet: RunningFleet, tab: Tab) -> None:
    started = fleet.hold("seen", queue="mail")
    tab.wait_for(
        f"[...document.querySelectorAll('#running tr')].some((each) => each.innerText.includes('{started.id}'))"
    )
    assert "hold" in tab.page.inner_text("#running")
    # Wait until the queue's row shows the lag.
    tab.wait_for(f"{row('queues/mail')}.innerText.match(/\\d ms|\\d s/)")
    before = tab.page.inner_text("#queues")
    fleet.release("seen")
    tab.wait_for("document.getElementById('running').innerText.includes('No task is running')")
    fleet.client.enqueue("hold", args=["seen-too"], queue="bulk", delay=600)
    tab.wait_for("(before) => document.getElementById('queues').innerText !== before", before)


def test_the_status_page_shows_why_a_worker_was_killed(fleet: RunningFleet, tab: Tab) -> None:
    victim = fleet.hold("killed", queue="mail")
    os.kill(victim.pid, signal.SIGKILL)
    tab.wait_for(row("restarts/worker/signal"))
    tab.wait_for("document.getElementById('events').innerText.includes('killed by SIGKILL')")
    tab.wait_for("document.getElementById('headlines').innerText.includes('SIGKILL')")
    # The test sends the request of a page that has already received the event. Nevertheless, the headline in the
    # response must name the cause.
    answer = json.loads(fleet.get("/status.json?events_after=1000000")[1])
    assert answer["events"] == []
    assert "SIGKILL" in answer["headlines"][0]["text"]
    fleet.release("killed")
    fleet.wait_for("end", label="killed")


def test_a_pool_with_a_range_shows_why_it_grew(fleet: RunningFleet, tab: Tab) -> None:
    fleet.client.enqueue_many([rota.Call("tell_end", args=[0.1], queue="mail")] * 300)
    tab.wait_for("document.querySelector('#workers figure')?.innerText.includes('Workers of pool default')")
    tab.wait_for("document.querySelector('#workers ol')?.innerText.includes('objective 5 s: drained in')")
    tab.wait_for("document.getElementById('pools/default').innerText.includes('3 to 5')")
    assert tab.barriers() == []


def test_the_dead_tasks_and_each_dead_task_have_a_page(fleet: RunningFleet, tab: Tab) -> None:
    handle = fleet.client.enqueue("give_up", args=["dies"], queue="bulk")
    handle.wait(30)
    tab.page.wait_for_selector("[id='queues/bulk'] a[href='#/dead/bulk']")
    tab.page.click("[id='queues/bulk'] a[href='#/dead/bulk']")
    tab.page.click(f"[id='dead/{handle.id}'] a")
    tab.wait_for("document.querySelector('article')?.innerText.includes('Time line')")
    shown = tab.page.inner_text("article")
    assert "give_up" in shown
    assert re.search(r"attempt 1 started", shown)
    assert tab.barriers() == []
    tab.page.click("text=← Overview")
    tab.wait_for("document.getElementById('queues')")


def test_the_lag_of_each_queue_fits_into_400_pixels(fleet: RunningFleet, open_tab: TabOpener) -> None:
    fleet.client.enqueue("note", queue="mail").wait(30)
    tab = open_tab(address(fleet), **NARROW, has_touch=True, is_mobile=True, color_scheme="dark")
    lag = "[id='queues/mail'] td[data-head^=lag]"
    tab.page.wait_for_selector(lag)
    tab.wait_for("document.querySelector(`[id='queues/mail'] td[data-head^=lag]`).innerText.match(/\\d m?s/)")
    box = tab.page.locator(lag).bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= NARROW["width"]
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.barriers() == []
    assert tab.complaints == []


@pytest.mark.parametrize("width", [360, 390, 599])
def test_a_queue_is_one_compact_row_on_a_phone(fleet: RunningFleet, open_tab: TabOpener, width: int) -> None:
    fleet.client.enqueue("note", queue="mail").wait(30)
    tab = open_tab(address(fleet), width=width, height=844, has_touch=True, is_mobile=True)
    tab.wait_for("document.querySelector(`[id='queues/mail'] td[data-head^=lag]`)?.innerText.match(/\\d m?s/)")
    rows = "[...document.querySelectorAll('#queues tbody tr:not(.group)')]"
    heights = tab.page.evaluate(f"{rows}.map((row) => row.getBoundingClientRect().height)")
    assert max(heights) <= 110, "a name with its state, and a line of numbers"
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for head in ("waiting", "lag, p50 and p99", "done a second"):
        assert tab.page.locator(f"[id='queues/mail'] td[data-head='{head}']").is_visible()
    assert tab.barriers() == []


def test_the_pages_have_no_accessibility_barriers(fleet: RunningFleet, tab: Tab) -> None:
    fleet.hold("barriers", queue="mail")
    assert tab.barriers() == []
    tab.page.goto(f"{address(fleet)}#/queues/mail")
    tab.wait_for("document.querySelector('article')")
    assert tab.barriers() == []
    fleet.release("barriers")


def test_the_page_can_be_used_with_the_keyboard(tab: Tab) -> None:
    keyboard = tab.page.keyboard
    keyboard.press("/")
    keyboard.type("mail")
    tab.wait_for("document.querySelectorAll('#queues tbody tr:not(.group)').length === 1")
    keyboard.press("Escape")
    tab.wait_for("document.querySelectorAll('#queues tbody tr:not(.group)').length === 3")
    tab.page.evaluate("document.activeElement.blur()")
    keyboard.press("?")
    tab.wait_for("document.getElementById('keys').open")
    keyboard.press("Escape")
    keyboard.press("d")
    tab.wait_for("location.hash === '#/dead' && document.querySelector('article')")
    keyboard.press("o")
    tab.wait_for("document.getElementById('queues')")
    theme = "document.documentElement.dataset.theme"
    themes = []
    for _ in range(3):
        keyboard.press("t")
        themes.append(tab.page.evaluate(theme))
    assert themes == ["light", "dark", "auto"]
    tab.page.focus("#help")
    for _ in range(30):  # move to a link in the table by keyboard, and open it
        keyboard.press("Tab")
        if tab.page.evaluate("document.activeElement.closest('#queues') !== null"):
            break
    assert tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    keyboard.press("Enter")
    tab.wait_for("location.hash.startsWith('#/queues/') && document.querySelector('article')")


def test_the_status_page_uses_no_more_memory_after_hours_of_polling(fleet: RunningFleet, open_tab: TabOpener) -> None:
    tab = open_tab(address(fleet), prepare=lambda page: page.clock.install())
    tab.wait_for("document.getElementById('queues')")
    session = tab.page.context.new_cdp_session(tab.page)

    def poll(times: int) -> None:
        for _ in range(times):
            with tab.page.expect_response("**/status.json*"):
                tab.page.clock.run_for(2_100)

    def used() -> tuple[int, int]:
        session.send("HeapProfiler.collectGarbage")
        nodes = session.send("Memory.getDOMCounters")["nodes"]
        return session.send("Runtime.getHeapUsage")["usedSize"], nodes

    poll(20)
    bytes_before, nodes_before = used()
    poll(POLLS)
    bytes_after, nodes_after = used()
    assert nodes_after < nodes_before * 1.1 + 50
    assert bytes_after < bytes_before + (1 << 20)


def test_the_status_page_marks_outdated_values_as_stale(fleet: RunningFleet, tab: Tab) -> None:
    fleet.term()
    fleet.exit_code()
    tab.wait_for("document.body.classList.contains('stale')")
    assert "has not responded for" in tab.page.inner_text("main")
    assert "stale" in tab.page.inner_text("#live")
    until(lambda: tab.complaints, "the browser's words of a server that is gone")
    tab.complaints.clear()
