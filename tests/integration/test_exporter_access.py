"""Access to a real exporter, depending on the settings in `[http]`: which clients may read, with and without TLS, and
which actions are permitted.
"""

import contextlib
import json
import os
import socket
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rota.protocol.new_tasks import NewTask
from rota.protocol.store import Store
from rota.server.address import parse_address
from rota.server.connection import Connection
from support.browser import LEADS_HERE, TabOpener
from support.certificates import certificate
from support.exporting import DEADLINE_SECONDS, Exporter, settings_for
from support.masters import ON_ONE_SERVER
from support.servers import Server
from support.waiting import until

NO_SERVER = "redis://127.0.0.1:1/0"  # nothing listens on this port, so connections are refused at once
TOKEN = "an old token of some length"
JSON: dict[str, Any] = {"Content-Type": "application/json"}
READ_TOKEN = "a-token-that-only-reads"
BEARER = f"Bearer {TOKEN}"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def locked(namespace: str, token_file: Path) -> Iterator[Exporter]:
    """Yield an exporter that requires a token from its clients."""
    made = Exporter(settings_for(NO_SERVER, namespace, "mail", token_file=str(token_file)))
    yield made.start()
    made.close()


@pytest.mark.parametrize("path", ["/metrics", "/status.json", "/dead.json", "/task.json?id=a"])
def test_requests_without_the_token_are_refused(locked: Exporter, path: str) -> None:
    for authorization in ("", "Bearer other", f"Basic {TOKEN}"):
        refused = locked.get(path, Authorization=authorization)
        assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "http] token_file" in refused.body
    assert locked.get(path, Authorization=BEARER).status != 401


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/"])
def test_health_probes_and_the_page_without_data_need_no_token(locked: Exporter, path: str) -> None:
    assert locked.get(path).status != 401


def test_a_new_token_applies_from_the_next_request(locked: Exporter, token_file: Path) -> None:
    token_file.write_text("a new token of some length\n")
    assert locked.get("/status.json", Authorization=BEARER).status == 401
    assert locked.get("/status.json", Authorization="bearer a new token of some length").status == 200
    token_file.unlink()  # the file is missing for a moment while it is being replaced
    assert locked.get("/status.json", Authorization="bearer a new token of some length").status == 200


def test_an_address_that_sends_wrong_tokens_has_to_wait(locked: Exporter) -> None:
    answers = [locked.get("/status.json", Authorization="Bearer wrong") for _ in range(30)]
    refused = [answer.status for answer in answers]
    assert refused[:10] == [401] * 10
    waiting = answers[refused.index(429)]
    assert waiting.headers["Retry-After"] == "1"
    assert "wait a second" in waiting.body
    assert locked.get("/livez").status != 429
    until(lambda: locked.get("/status.json", Authorization=BEARER).status == 200, "the end of the wait")


# TLS


def https_get(exporter: Exporter, cert: Path, path: str) -> str:
    """Return the response to a client that trusts only this certificate. Raises URLError if the exporter uses another
    certificate.
    """
    context = ssl.create_default_context(cafile=str(cert))
    with urllib.request.urlopen(
        f"https://{exporter.target}{path}", timeout=DEADLINE_SECONDS, context=context
    ) as answer:
        text: str = answer.read().decode()
    return text


def test_tls_serves_many_requests_at_once(namespace: str, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "first")
    # This many queues have more metrics than a socket accepts at once.
    queues = [f"queue-{number}" for number in range(100)]
    exporter = Exporter(settings_for(NO_SERVER, namespace, *queues, tls_cert=str(cert), tls_key=str(key))).start()
    with closing(exporter):
        assert https_get(exporter, cert, "/livez") == "ok\n"
        scrapes: list[str] = []
        threads = [
            threading.Thread(target=lambda: scrapes.append(https_get(exporter, cert, "/metrics"))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(scrapes) == 8
        assert all('queue="queue-99"' in text for text in scrapes)
        with pytest.raises(OSError, match=r"reset|closed|Remote end"):
            exporter.get("/livez")  # a request without TLS fails


def test_a_renewed_certificate_is_served_without_a_restart(namespace: str, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "first")
    exporter = Exporter(settings_for(NO_SERVER, namespace, tls_cert=str(cert), tls_key=str(key))).start()
    with closing(exporter):
        before = exporter.pid
        for new, old in zip(certificate(tmp_path, "second"), (cert, key), strict=True):
            old.write_bytes(new.read_bytes())
        assert https_get(exporter, tmp_path / "second.pem", "/livez") == "ok\n"
        assert exporter.pid == before


# Actions


@pytest.fixture
def acting(server: Server, namespace: str, token_file: Path) -> Iterator[Exporter]:
    """Yield an exporter with actions enabled and a server that works."""
    made = Exporter(settings_for(server.url, namespace, "mail", token_file=str(token_file), actions=True))
    yield made.start()
    made.close()


@ON_ONE_SERVER
def test_a_read_only_token_cannot_perform_actions(server: Server, namespace: str, token_file: Path) -> None:
    reading = token_file.with_name("read-token")
    reading.write_text(f"{READ_TOKEN}\n")
    files = {"token_file": str(token_file), "read_token_file": str(reading)}
    with closing(Exporter(settings_for(server.url, namespace, "mail", **files, actions=True)).start()) as exporter:
        bearer = f"Bearer {READ_TOKEN}"
        assert {exporter.get(path, Authorization=bearer).status for path in ("/metrics", "/status.json")} == {200}
        pause = json.dumps({"verb": "pause", "queue": "mail"}).encode()
        refused = exporter.get("/actions", "POST", pause, Authorization=bearer, **JSON)
        assert (refused.status, "permits only reading" in refused.body) == (403, True)
        assert act(exporter, verb="resume", queue="mail") == (200, {"ok": True, "text": "mail was not paused"})


@ON_ONE_SERVER
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://elsewhere.example"}, 200),
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://{target}"}, 200),
        ({}, 200),
    ],
)
def test_actions_are_accepted_only_from_the_nodes_own_page_and_from_programs(
    acting: Exporter, headers: dict[str, str], status: int
) -> None:
    sent = {name: value.format(target=acting.target) for name, value in headers.items()}
    pause = json.dumps({"verb": "pause", "queue": "mail"}).encode()
    assert acting.get("/actions", "POST", pause, Authorization=BEARER, **JSON, **sent).status == status


def act(exporter: Exporter, **order: object) -> tuple[int, dict[str, object]]:
    """Request an action. Returns the status and the content of the response."""
    page = exporter.get("/actions", "POST", json.dumps(order).encode(), Authorization=BEARER, **JSON)
    return page.status, page.json()


@ON_ONE_SERVER
def test_actions_pause_and_resume_a_queue(acting: Exporter, server: Server, namespace: str) -> None:
    assert act(acting, verb="pause", queue="mail") == (200, {"ok": True, "text": "mail is paused"})
    assert act(acting, verb="pause", queue="mail") == (200, {"ok": True, "text": "mail was already paused"})
    with closing(Connection(parse_address(server.url))) as connection:
        assert connection.run(Store(namespace).overview(("mail",))).queues[0].paused
        assert act(acting, verb="resume", queue="mail")[0] == 200
        assert not connection.run(Store(namespace).overview(("mail",))).queues[0].paused


@ON_ONE_SERVER
def test_an_action_cancels_a_task_and_refuses_tasks_in_the_wrong_state(
    acting: Exporter, server: Server, namespace: str
) -> None:
    with closing(Connection(parse_address(server.url))) as connection:
        connection.run(Store(namespace).enqueue("nonce", [NewTask("a", "mail", b'["a","mail","t",[]]', "")]))
    assert act(acting, verb="revive", task_id="a")[0] == 409
    assert act(acting, verb="cancel", task_id="a") == (200, {"ok": True, "text": "task a was cancelled"})
    status, answer = act(acting, verb="cancel", task_id="b")
    assert (status, answer["ok"]) == (409, False)


@ON_ONE_SERVER
def test_invalid_actions_are_refused_with_a_message(acting: Exporter) -> None:
    for order in (
        {},
        {"verb": "purge"},
        {"verb": "pause"},
        {"verb": "pause", "queue": 3},
        {"verb": "pause", "queue": "a b"},
        {"verb": ["pause"]},
        {"verb": {"pause": 1}},
        {"verb": None},
        {"verb": "pause", "queue": ["mail"]},
        {"verb": "pause", "queue": "mail\ud800"},
        {"verb": "pause", "queue": "mail", "node": "elsewhere"},
        {"verb": "cancel", "task_id": {}},
        {"verb": "scale"},
        {"verb": "scale", "workers": "3"},
        {"verb": "scale", "workers": -1},
        {"verb": "scale", "workers": True},
        {"verb": "scale", "workers": 3, "pool": ["a"]},
        {"verb": "scale", "workers": 3, "more": 1},
    ):
        status, answer = act(acting, **order)
        assert (status, answer["ok"]) == (400, False), order
        assert answer["error"]
    for body in (b"", b"[]", b"3", b'"pause"', b"null", b"\xff", b"[" * 8000, b'{"verb": ' + b"9" * 8000 + b"}"):
        assert acting.get("/actions", "POST", body, Authorization=BEARER, **JSON).status == 400, body
    assert act(acting, verb="scale", workers=3)[0] == 503  # no master runs that could scale its pool
    assert acting.get("/actions", Authorization=BEARER).status == 405
    assert acting.get("/actions", "POST", b"{}", Authorization=BEARER).status == 415
    assert acting.get("/actions", "POST", b"{}", **JSON).status == 401
    refused = acting.get("/actions", "POST", b"x" * 10_000, Authorization=BEARER, **JSON)
    assert (refused.status, "a body may have at most 8,192 bytes" in refused.body) == (413, True)


def test_actions_are_refused_unless_they_are_enabled(locked: Exporter) -> None:
    status, answer = act(locked, verb="pause", queue="mail")
    assert status == 403
    assert "actions = true" in str(answer["error"])


def test_an_action_without_redis_returns_an_error(namespace: str, token_file: Path) -> None:
    exporter = Exporter(settings_for(NO_SERVER, namespace, token_file=str(token_file), actions=True)).start()
    with closing(exporter):
        status, answer = act(exporter, verb="pause", queue="mail")
    assert (status, "Redis did not reply" in str(answer["error"])) == (503, True)


@pytest.mark.parametrize("path", ["/metrics", "/status.json", "/metrics?name[]=rota_workers"])
def test_busy_clients_of_the_exporter_do_not_starve_scrapes(namespace: str, path: str) -> None:
    queues = (f"queue-{number}" for number in range(100))
    exporter = Exporter(settings_for(NO_SERVER, namespace, *queues))
    try:
        exporter.start()
        greedy = [Greedy(exporter, path) for _ in range(40)]
        with contextlib.ExitStack() as stack:
            for each in greedy:
                stack.enter_context(each)
            until(lambda: all(each.asked for each in greedy), "all clients send requests")
            scrapes = [exporter.get("/metrics").status for _ in range(20)]
            exporter.memory.slot(0).heartbeat()  # the master's heartbeat, because this test has no master
            page = exporter.get("/livez").status
    finally:
        exporter.close()
    assert scrapes == [200] * 20
    assert page == 200


def test_probes_are_answered_during_a_large_status_page(namespace: str) -> None:
    exporter = Exporter(settings_for(NO_SERVER, namespace, *(f"queue-{number}" for number in range(1000))))
    try:
        exporter.start()
        with ThreadPoolExecutor(1) as pool:
            page = pool.submit(exporter.get, "/status.json")
            probes = [exporter.get("/livez").status]
            while not page.done():
                probes.append(exporter.get("/livez").status)
            queues = page.result().json()["queues"]
    finally:
        exporter.close()
    assert len(queues) == 1000
    assert set(probes) == {200}
    assert len(probes) > 3, "and not one after the page"


class Greedy:
    """A client that requests a page again and again during the block. `asked` counts its requests."""

    def __init__(self, exporter: Exporter, path: str) -> None:
        self._exporter, self._path = exporter, path
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self.asked = 0

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_SECONDS)

    def _poll(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(OSError):  # the exporter may have closed the connection
                self._exporter.get(self._path)
            self.asked += 1


# Without a token: the permitted host names and machines


@pytest.fixture
def unlocked(namespace: str) -> Iterator[Exporter]:
    """Yield an exporter that requires no token. Its settings permit an additional host name."""
    made = Exporter(settings_for(NO_SERVER, namespace, "mail", allowed_hosts=("Rota.example.com",), actions=True))
    yield made.start()
    made.close()


EVERYTHING = ("/", "/main.js", "/metrics", "/status.json", "/dead.json", "/task.json?id=a")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9477", "localhost.evil.example", "2130706433"])
def test_a_request_with_an_unknown_host_name_is_refused(unlocked: Exporter, host: str) -> None:
    for path in EVERYTHING:
        refused = unlocked.get(path, Host=host)
        assert (refused.status, "[http] allowed_hosts" in refused.body) == (403, True), path
    assert unlocked.get("/actions", "POST", b'{"verb": "pause", "queue": "mail"}', Host=host, **JSON).status == 403
    assert [unlocked.get(path, Host=host).status for path in ("/livez", "/readyz")] == [200, 503]


def test_a_dns_rebinding_attack_cannot_read_anything_about_the_fleet(unlocked: Exporter, open_tab: TabOpener) -> None:
    port = unlocked.target.rpartition(":")[2]
    statuses = """async () => Promise.all(["status.json", "dead.json", "metrics", ""].map(
        async (path) => (await fetch("/" + path)).status))"""
    ours = open_tab(f"http://127.0.0.1:{port}/livez").page
    assert ours.evaluate(statuses) == [200, 503, 200, 200]  # "dead.json" needs Redis, which is unreachable
    theirs = open_tab(f"http://evil.{LEADS_HERE}:{port}/livez").page
    # The browser does reach the exporter by this host name.
    assert theirs.evaluate('async () => (await fetch("/livez")).status') != 403
    assert theirs.evaluate(statuses) == [403, 403, 403, 403]


ADDRESSES = ("127.0.0.1:80", "10.1.2.3:9477", "[::1]:9477", "[fe80::1]")
NAMES = ("localhost", "LOCALHOST.:9477", "app.localhost", "rota.example.com:443", os.uname().nodename)


@pytest.mark.parametrize("host", [*NAMES, *ADDRESSES])
def test_requests_with_a_known_host_name_or_any_address_are_allowed(unlocked: Exporter, host: str) -> None:
    assert unlocked.get("/metrics", Host=host).status == 200
    assert unlocked.get("/", Host=host).status == 200


def test_the_token_allows_any_host_name(locked: Exporter) -> None:
    assert locked.get("/metrics", Host="rota.internal:9477", Authorization=BEARER).status == 200
    assert locked.get("/metrics", Host="rota.internal:9477").status == 401


@pytest.mark.parametrize("host", ["", "rota.internal:9477"])
def test_other_machines_can_only_scrape_and_probe_without_a_token(namespace: str, host: str, own_address: str) -> None:
    with closing(Exporter(settings_for(NO_SERVER, namespace, "mail"), listen="0.0.0.0").start()) as exporter:
        there = exporter.at(own_address)
        headers: dict[str, Any] = {"Host": host} if host else {}
        for path in EVERYTHING:
            answer = there.get(path, **headers)
            assert answer.status == (200 if path == "/metrics" else 403), path
            assert answer.status == 200 or "set [http] token_file" in answer.body
        assert [there.get(path, **headers).status for path in ("/livez", "/readyz")] == [200, 503]
        # `rota top` uses this address when it runs on the same machine.
        assert exporter.at("127.0.0.1").get("/").status == 200


def test_other_machines_have_full_access_with_the_token(namespace: str, token_file: Path, own_address: str) -> None:
    settings = settings_for(NO_SERVER, namespace, "mail", token_file=str(token_file))
    with closing(Exporter(settings, listen="0.0.0.0").start()) as exporter:
        assert exporter.at(own_address).get("/").status == 200
        assert exporter.at(own_address).get("/dead.json").status == 401
        assert exporter.at(own_address).get("/metrics", Authorization=BEARER).status == 200


@pytest.fixture
def own_address() -> str:
    """Return the address at which other machines reach this machine. If there is no such address, skip the test."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
        try:
            # Connecting a datagram socket sends nothing, but makes the kernel choose the source address.
            asking.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but those of loopback")
        return str(asking.getsockname()[0])
