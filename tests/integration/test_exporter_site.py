"""The files of the status page. All of them are served and small, and clients can revalidate them. No other files are
served.
"""

import gzip
import re
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import rota_supervisor.exporter
from support.exporting import DEADLINE_SECONDS, Exporter, small_fleet

FOLDER = Path(rota_supervisor.exporter.__file__).with_name("site")
MOST_SCRIPT_BYTES = 60_000


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    made = small_fleet("redis://127.0.0.1:1/0", "site")
    yield made.start()
    made.close()


def test_every_site_file_is_served_and_every_reference_exists(exporter: Exporter) -> None:
    served = {file.name: exporter.get(f"/{file.name}") for file in FOLDER.iterdir() if file.name != "index.html"}
    index = exporter.get("/")
    assert index.body == (FOLDER / "index.html").read_text(encoding="utf-8")
    for name, page in served.items():
        assert (page.status, page.body) == (200, (FOLDER / name).read_text(encoding="utf-8")), name
        assert (
            page.headers["Content-Type"]
            == {
                ".js": "text/javascript; charset=utf-8",
                ".css": "text/css; charset=utf-8",
            }[Path(name).suffix]
        )
    named = re.findall(r'(?:src|href)="([\w.]+\.(?:js|css))"', index.body)
    named += [name for page in served.values() for name in re.findall(r'from "\./([\w.]+)"', page.body)]
    assert set(named) == set(served)
    assert sum(len(page.body.encode()) for name, page in served.items() if name.endswith(".js")) < MOST_SCRIPT_BYTES


def test_the_content_security_policy_allows_only_code_of_the_page_itself(exporter: Exporter) -> None:
    index = exporter.get("/")
    policy = dict(part.strip().partition(" ")[::2] for part in index.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert not re.search(r"<script>|<style|style=|\son\w+=", index.body)


def fetch(exporter: Exporter, path: str, **headers: str) -> tuple[int, Message, bytes]:
    """Return the status, the headers and the raw body of a response. In the names of headers, write `_`
    for a hyphen.
    """
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urlopen(Request(f"http://{exporter.target}{path}", headers=sent), timeout=DEADLINE_SECONDS) as answer:
            return answer.status, answer.headers, answer.read()
    except HTTPError as unchanged:
        with unchanged:
            return unchanged.code, unchanged.headers, unchanged.read()


def test_site_files_are_compressed_and_sent_only_if_they_changed(exporter: Exporter) -> None:
    _, headers, body = fetch(exporter, "/main.js", Accept_Encoding="gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body) == (FOLDER / "main.js").read_bytes()
    status, _, body = fetch(exporter, "/main.js", If_None_Match=headers["ETag"])
    assert (status, body) == (304, b"")
    assert fetch(exporter, "/main.js", If_None_Match='"other"')[0] == 200


def test_the_exporter_serves_no_other_file_of_the_package(exporter: Exporter) -> None:
    for path in ("/index.html", "/../web.py", "/%2e%2e/web.py", "/site/main.js", "/main.js/"):
        assert exporter.get(path).status == 404, path
