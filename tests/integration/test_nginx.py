"""The status page behind nginx with single sign-on. nginx uses the configuration in `deploy/nginx`.

A small server takes the place of oauth2-proxy. It recognizes a user by a cookie, and returns the user's groups."""

import contextlib
import os
import shutil
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from support.certificates import certificate
from support.exporting import DEADLINE_SECONDS, Exporter, settings_for
from support.prose import ROOT
from support.servers import free_port
from support.waiting import until

TOKEN: Final = "a-token-that-may-act"
READ_TOKEN: Final = "a-token-that-only-reads"
NO_SERVER: Final = "redis://127.0.0.1:1/0"
GROUPS: Final = {"session=anna": "staff,rota-operators", "session=ben": "staff,rota-operators-of-other"}


class SignOn(BaseHTTPRequestHandler):
    """A fake for the part of oauth2-proxy that nginx uses."""

    def do_GET(self) -> None:
        groups = GROUPS.get(self.headers.get("Cookie", ""))
        is_page = self.path == "/oauth2/sign_in"
        self.send_response(200 if is_page else 401 if groups is None else 202)
        self.send_header("X-Auth-Request-Groups", groups or "")
        self.send_header("Content-Length", "7" if is_page else "0")
        self.end_headers()
        if is_page:
            self.wfile.write(b"sign in")

    def log_message(self, *_: object) -> None:
        """Write no log."""


class Reply(NamedTuple):
    status: int
    body: str


class Proxy(NamedTuple):
    """nginx in front of an exporter."""

    port: int
    trusted: ssl.SSLContext

    def request(self, path: str, cookie: str = "", data: bytes | None = None, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"Host": "rota.example.com", "Content-Type": "application/json", "Cookie": cookie, **named}
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", data, sent)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS, context=self.trusted) as reply:
                return Reply(reply.status, reply.read().decode())
        except urllib.error.HTTPError as refusal:
            with refusal:
                return Reply(refusal.code, refusal.read().decode())


@pytest.fixture(name="proxy")
def _proxy(namespace: str, tmp_path: Path) -> Iterator[Proxy]:
    tokens = {"token_file": TOKEN, "read_token_file": READ_TOKEN}
    for name, token in tokens.items():
        (tmp_path / name).write_text(token)
    files = {name: str(tmp_path / name) for name in tokens}
    with contextlib.ExitStack() as stack:
        exporter = Exporter(settings_for(NO_SERVER, namespace, "mail", actions=True, **files)).start()
        stack.callback(exporter.close)
        port = free_port()
        nginx = start_nginx(tmp_path, port, exporter.target, stack.enter_context(sign_on()))
        stack.callback(nginx.wait)
        stack.callback(nginx.terminate)
        proxy = Proxy(port, ssl.create_default_context(cafile=str(tmp_path / "proxy.pem")))
        until(lambda: nginx.poll() is not None or is_up(proxy), "nginx")
        yield proxy


@contextlib.contextmanager
def sign_on() -> Iterator[int]:
    """Run the fake of oauth2-proxy, and yield its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), SignOn)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def start_nginx(folder: Path, port: int, target: str, sign_on_port: int) -> "subprocess.Popen[bytes]":
    """Start nginx with the shipped configuration, in which only addresses and paths are replaced."""
    binary = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if binary is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no nginx on this machine")
    made = certificate(folder, "proxy")
    shipped = (ROOT / "deploy/nginx/rota.conf").read_text()
    for before, after in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/nginx/tls/fullchain.pem", str(made.cert)),
        ("/etc/nginx/tls/privkey.pem", str(made.key)),
        ("/etc/nginx/rota-tokens.conf", str(folder / "tokens.conf")),
        ("http://127.0.0.1:9477", f"http://{target}"),
        ("http://127.0.0.1:4180", f"http://127.0.0.1:{sign_on_port}"),
    ):
        assert before in shipped
        shipped = shipped.replace(before, after)
    (folder / "rota.conf").write_text(shipped)
    (folder / "tokens.conf").write_text(f'set $rota_token "{TOKEN}";\nset $rota_read_token "{READ_TOKEN}";\n')
    temporary = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary} include {folder}/rota.conf; }}\n"
    )
    return subprocess.Popen([binary, "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")])


def is_up(proxy: Proxy) -> bool:
    try:
        return bool(proxy.request("/").status)
    except urllib.error.URLError:
        return False


def pause(proxy: Proxy, cookie: str, **headers: str) -> Reply:
    return proxy.request("/actions", cookie, b'{"verb": "pause", "queue": "mail"}', **headers)


def test_a_visitor_who_is_not_signed_in_gets_the_sign_in_page(proxy: Proxy) -> None:
    assert proxy.request("/status.json").body == "sign in"
    forged = proxy.request("/status.json", "session=nobody", X_Auth_Request_Groups="rota-operators")
    assert forged.body == "sign in"
    with_token = proxy.request("/status.json", Authorization=f"Bearer {TOKEN}")
    assert with_token.body == "sign in"


def test_every_signed_in_user_can_read_the_page_without_a_token(proxy: Proxy) -> None:
    for user in GROUPS:
        assert '"headlines"' in proxy.request("/status.json", user).body


def test_only_operators_may_perform_actions_on_the_status_page(proxy: Proxy) -> None:
    assert pause(proxy, "session=ben").status == 403
    assert pause(proxy, "session=ben", Authorization=f"Bearer {TOKEN}").status == 403
    assert pause(proxy, "session=anna").status == 503  # nginx admits the request, but Redis is down


def test_actions_that_another_site_sends_from_an_operators_browser_are_refused(proxy: Proxy) -> None:
    assert pause(proxy, "session=anna", Sec_Fetch_Site="cross-site").status == 403
    assert pause(proxy, "session=anna", Origin="https://evil.example").status == 403
    assert pause(proxy, "session=anna", Origin="https://rota.example.com").status == 503
    assert pause(proxy, "session=anna", Sec_Fetch_Site="same-origin", Origin="https://rota.example.com").status == 503
