"""The actions that operators perform on the status page of a real fleet. The fleet has a token, a certificate, and
actions enabled.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.protocol.task_states import State
from rota_supervisor.node_http import node_at
from support.browser import Tab, TabOpener
from support.certificates import certificate
from support.fleets import RunningFleet
from support.masters import ON_ONE_SERVER
from support.servers import Server
from support.waiting import until

# The event loop of the browser runs in the thread of the tests. Blocking calls are harmless there.
pytestmark = [ON_ONE_SERVER, pytest.mark.filterwarnings("ignore::rota.BlockingCall")]

TOKEN = "a-token-that-nobody-guesses"
KEPT = "sessionStorage.getItem('rota-token')"


@pytest.fixture(scope="module")
def fleet(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFleet]:
    folder: Path = tmp_path_factory.mktemp("actions")
    (folder / "token").write_text(f"{TOKEN}\n")
    made = certificate(folder, "fleet")
    http = {"listen": "127.0.0.1:0", "token_file": "token", "actions": True}
    http |= {"tls_cert": made.cert.name, "tls_key": made.key.name}
    running = RunningFleet(server.url, f"actions-{folder.name}", folder, tiers=[["mail", "default"]], http=http)
    running.launch()
    until(lambda: running.rota("health", "--ready").returncode == 0, "a fleet that is ready")
    yield running
    running.close()


@pytest.fixture
def tab(fleet: RunningFleet, open_tab: TabOpener) -> Tab:
    """Return a tab with the page, in which the token has already been entered."""
    found = open_tab(f"https://{fleet.status()['listen']}/", ignore_https_errors=True)
    enter_token(found, TOKEN)
    found.wait_for("document.getElementById('queues')")
    return found


def enter_token(tab: Tab, token: str) -> None:
    """Enter a token in the dialog with which the page requests a token."""
    tab.wait_for("document.getElementById('token').open")
    tab.page.fill("#token-text", token)
    tab.page.keyboard.press("Enter")


def do(tab: Tab, place: str, button: str, text: str, *, typed: str = "") -> None:
    """Open a part of the page, press a button there, type `typed` if it is given, and confirm. Then wait until the page
    shows the text.
    """
    tab.page.evaluate("(place) => { location.hash = place; }", place)
    tab.page.click(f"main button:has-text('{button}')")
    if typed:
        tab.page.fill("#confirm-workers", typed)
        tab.page.keyboard.press("Enter")
    else:
        tab.page.click("#confirm-do")
    tab.wait_for("(text) => document.getElementById('toast').innerText.includes(text)", text)


def test_the_page_requests_a_token_until_it_is_valid_and_stores_it(fleet: RunningFleet, open_tab: TabOpener) -> None:
    tab = open_tab(f"https://{fleet.status()['listen']}/", ignore_https_errors=True)
    enter_token(tab, "no Ä")
    # The dialog stays open, because no HTTP header can contain this token.
    assert tab.page.evaluate("document.getElementById('token').open")
    assert tab.page.is_hidden("#token-refused")
    enter_token(tab, "another-one-of-them")
    tab.wait_for("document.getElementById('token').open && !document.getElementById('token-refused').hidden")
    assert tab.barriers() == []
    enter_token(tab, f" {TOKEN} ")
    tab.wait_for("document.getElementById('queues')")
    assert tab.page.evaluate(KEPT) == TOKEN
    assert tab.page.evaluate("localStorage.getItem('rota-token')") is None
    tab.page.reload()
    tab.wait_for("document.getElementById('queues')")
    assert not tab.page.evaluate("document.getElementById('token').open")
    assert [text for text in tab.complaints if "401" not in text] == []


def test_actions_of_the_page_take_effect_and_are_shown(fleet: RunningFleet, tab: Tab) -> None:
    client = fleet.client
    do(tab, "#/queues/mail", "Pause", "mail is paused")
    tab.page.wait_for_selector("main button:has-text('Resume')")
    waits = client.enqueue("note", args=["waits"], queue="mail")
    do(tab, f"#/task/{waits.id}", "Cancel", "was cancelled")
    # The page shows the change without a press of "Refresh".
    tab.page.wait_for_selector("article .mark:has-text('cancelled')")
    do(tab, "#/queues/mail", "Resume", "mail is resumed")
    dead = client.enqueue("give_up", args=["dies"], queue="mail")
    dead.wait(30)
    client.pause("mail")
    do(tab, "#/dead/mail", "Revive", "is back in its queue")
    tab.page.wait_for_selector("#dead :text('There are none.')")
    assert dead.status().state is State.READY
    client.resume("mail")
    do(tab, "#/", "Scale", "3 workers", typed="3")
    tab.wait_for("document.getElementById('pools/default').innerText.includes('3 of 3')")
    assert len(fleet.log("exporter.action")) == 5


def test_the_status_page_shows_why_an_action_was_refused(fleet: RunningFleet, tab: Tab) -> None:
    gone = fleet.client.enqueue("note", args=["gone"], queue="mail", delay=600)
    tab.page.evaluate("(place) => { location.hash = place; }", f"#/task/{gone.id}")
    tab.page.click("main button:has-text('Cancel')")
    fleet.client.cancel(gone.id)
    tab.page.click("#confirm-do")
    tab.wait_for("document.querySelector('#toast.bad')?.innerText.includes('is waiting or running')")
    tab.page.evaluate("location.hash = '#/'")
    tab.page.click("main button:has-text('Scale')")
    tab.page.fill("#confirm-workers", "")
    tab.page.keyboard.press("Enter")
    # The dialog stays open, because it requires a number.
    assert tab.page.evaluate("document.getElementById('confirm').open")
    tab.page.click("#confirm-leave")
    assert not tab.page.evaluate("document.getElementById('confirm').open")


def test_rota_top_names_the_missing_option_if_the_fleet_needs_a_token(fleet: RunningFleet) -> None:
    assert fleet.rota("top", "--once").returncode == 0
    url = node_at(str(fleet.status()["listen"]), certificate="fleet.pem").url
    trusted = {"SSL_CERT_FILE": str(fleet.folder / "fleet.pem")}
    assert fleet.rota("top", "--once", "--url", url, "--token-file", "token", **trusted).returncode == 0
    refused = fleet.rota("top", "--once", "--url", url, **trusted)
    assert (refused.returncode, "--token-file" in refused.stderr) == (69, True), refused.stderr
