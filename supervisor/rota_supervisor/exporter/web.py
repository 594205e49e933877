"""The endpoints: what is answered at once, and the pages that take longer. They only read."""

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from rota.printable import printable
from rota.telemetry import events, log
from rota_supervisor.exporter import fleet, libraries, page, status
from rota_supervisor.exporter.client import Answer, HttpRequest, text_answer
from rota_supervisor.exporter.observer import Observer
from rota_supervisor.exporter.settings import ExporterSettings

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"
# No scripts, nothing fetched, in nobody's frame: the page shows names that producers chose.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_METHODS: Final = ("GET", "HEAD")
_FAILED: Final = text_answer(
    "the exporter failed to answer; its log says why\n", status=HTTPStatus.INTERNAL_SERVER_ERROR
)
_Endpoint = Callable[[HttpRequest], Answer]


class Site:
    """`/metrics /livez /readyz /status.json /`. `at_once` and `page` are called in two threads: the one asks `probe`,
    the other `observer`. `between` is to be called between pages, every second or so."""

    def __init__(self, settings: ExporterSettings, probe: fleet.Probe, observer: Observer) -> None:
        registry = libraries.prometheus.CollectorRegistry()
        registry.register(observer)
        self._metrics: WSGIApplication = libraries.make_wsgi_app(registry)
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
        """`/metrics`, in the format, the compression and the choice of names that prometheus_client negotiates."""
        begun: list[tuple[HTTPStatus, tuple[tuple[str, str], ...]]] = []

        def start(line: str, headers: list[tuple[str, str]], *_: Any) -> Any:
            begun.append((HTTPStatus(int(line.split(maxsplit=1)[0])), tuple(headers)))

        of_ours = {"REQUEST_METHOD": "GET", "PATH_INFO": request.path, "QUERY_STRING": request.query}
        of_theirs = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()}
        body = b"".join(self._metrics(of_theirs | of_ours, start))
        return Answer(*begun[0], body)


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
