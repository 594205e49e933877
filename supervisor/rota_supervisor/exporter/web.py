"""The endpoints: what is answered at once, and the pages that take longer. They only read."""

import json
import zlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs

from rota.printable import printable
from rota.telemetry import events, log
from rota_supervisor.exporter import exposition, fleet, page, status
from rota_supervisor.exporter.client import Answer, HttpRequest, text_answer
from rota_supervisor.exporter.observer import Observer
from rota_supervisor.exporter.settings import ExporterSettings

_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"
# No scripts, nothing fetched, in nobody's frame: the page shows names that producers chose.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_METHODS: Final = ("GET", "HEAD")
_FAILED: Final = text_answer(
    "the exporter failed to answer; its log says why\n", status=HTTPStatus.INTERNAL_SERVER_ERROR
)
_FASTEST: Final = 1  # 15 ms for 20,000 series; the default level takes 60 and saves a third
_GZIP: Final = 31  # wbits
_Endpoint = Callable[[HttpRequest], Answer]


class Site:
    """`/metrics /livez /readyz /status.json /`. `at_once` and `page` are called in two threads: the one asks `probe`,
    the other `observer`. `between` is to be called between pages, every second or so."""

    def __init__(self, settings: ExporterSettings, probe: fleet.Probe, observer: Observer) -> None:
        self._observer = observer
        self.between = observer.note_lag

        def state() -> dict[str, Any]:
            return status.status(settings, observer.observe())

        self._health: dict[str, _Endpoint] = {
            "/livez": lambda asked: _health(probe.alive(), asked),
            "/readyz": lambda asked: _health(probe.ready(), asked),
        }
        self._pages: dict[str, _Endpoint] = {
            "/": lambda _: text_answer(page.page(state()), ("Content-Security-Policy", _POLICY), kind=_HTML),
            "/metrics": self._scrape,
            "/status.json": lambda _: _json(state()),
        }

    def at_once(self, request: HttpRequest) -> Answer | None:
        """Return health, or a refusal; None for a page."""
        path = request.path
        if path not in self._health and path not in self._pages:
            known = " ".join(sorted(self._health.keys() | self._pages.keys()))
            return text_answer(f"nothing is here; there are: {known}\n", status=HTTPStatus.NOT_FOUND)
        if request.method not in _METHODS:
            allowed = ", ".join(_METHODS)
            text = f"{path} only answers {allowed}\n"
            return text_answer(text, ("Allow", allowed), status=HTTPStatus.METHOD_NOT_ALLOWED)
        return _guarded(self._health[path], request) if path in self._health else None

    def page(self, request: HttpRequest) -> Answer:
        """Return a page, which takes a while."""
        return _guarded(self._pages[request.path], request)

    def _scrape(self, request: HttpRequest) -> Answer:
        """`/metrics`, in the format that the client asks for; `?name[]=NAME` for some names, `?created` for when series
        began."""
        query = parse_qs(request.query, keep_blank_values=True)
        is_openmetrics = "application/openmetrics-text" in request.headers.get("accept", "")
        wanted = exposition.Wanted(is_openmetrics, frozenset(query.get("name[]", ())), "created" in query)
        body = self._observer.scrape(wanted)
        headers = [("Content-Type", exposition.OPENMETRICS if is_openmetrics else exposition.PLAIN)]
        if "gzip" in request.headers.get("accept-encoding", ""):
            body = zlib.compress(body, _FASTEST, wbits=_GZIP)
            headers.append(("Content-Encoding", "gzip"))
        return Answer(HTTPStatus.OK, tuple(headers), body)


def _guarded(make: _Endpoint, request: HttpRequest) -> Answer:
    try:
        return make(request)
    except Exception:  # noqa: BLE001 - the boundary of a request: whatever failed, the next one is answered
        log.logger().error(events.EXPORTER_REQUEST_FAILED, path=request.path, exc_info=True)
        return _FAILED


def _health(found: fleet.Health, request: HttpRequest) -> Answer:
    answer = HTTPStatus.OK if found.ok else HTTPStatus.SERVICE_UNAVAILABLE
    if "verbose" in parse_qs(request.query, keep_blank_values=True):
        return _json(found.row(), answer)
    faults = "; ".join(check.seen for check in found.checks if not check.ok)
    return text_answer("ok\n" if found.ok else f"{printable(faults)}\n", status=answer)


def _json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return text_answer(json.dumps(value, indent=2) + "\n", status=status, kind=_JSON)
