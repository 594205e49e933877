"""The endpoints, as one WSGI application. They only read."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from rota_supervisor.exporter.health import Verdict
from rota_supervisor.exporter.libraries import CollectorRegistry, make_wsgi_app
from rota_supervisor.exporter.observer import Observer
from rota_supervisor.exporter.page import page
from rota_supervisor.exporter.settings import ExporterSettings
from rota_supervisor.exporter.status import status, verdict
from rota_supervisor.notice import Json

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_PLAIN: Final = "text/plain; charset=utf-8"
_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"
# No scripts, nothing fetched, in nobody's frame: the page shows names that producers chose.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_METHODS: Final = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of ours; `/metrics` is answered by prometheus_client."""

    body: str
    kind: str = _PLAIN
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()


class Site:
    """The application: `/metrics /livez /readyz /status.json /`."""

    def __init__(self, settings: ExporterSettings, observer: Observer) -> None:
        registry = CollectorRegistry()
        registry.register(observer)
        self._metrics: WSGIApplication = make_wsgi_app(registry)
        self._settings = settings
        self._observer = observer
        self._pages: dict[str, Callable[[bool], Response]] = {
            "/": self._front,
            "/livez": lambda verbose: _health(observer.alive(), verbose=verbose),
            "/readyz": lambda verbose: _health(observer.ready(), verbose=verbose),
            "/status.json": lambda _verbose: _json(self._state()),
        }

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics" and environ["REQUEST_METHOD"] in _METHODS:
            body = b"".join(self._metrics({**environ, "REQUEST_METHOD": "GET"}, start_response))
        else:
            response = self._respond(path, environ)
            body = response.body.encode()
            start_response(f"{response.status.value} {response.status.phrase}", _headers(response, len(body)))
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _respond(self, path: str, environ: "WSGIEnvironment") -> Response:
        if path != "/metrics" and path not in self._pages:
            known = " ".join(("/metrics", *sorted(self._pages)))
            return Response(f"nothing is here; there are: {known}\n", status=HTTPStatus.NOT_FOUND)
        if environ["REQUEST_METHOD"] not in _METHODS:
            allowed = ", ".join(_METHODS)
            text = f"{path} only answers {allowed}\n"
            return Response(text, status=HTTPStatus.METHOD_NOT_ALLOWED, headers=(("Allow", allowed),))
        query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        return self._pages[path]("verbose" in query)

    def _front(self, _verbose: bool) -> Response:
        return Response(page(self._state()), _HTML, headers=(("Content-Security-Policy", _POLICY),))

    def _state(self) -> Json:
        return status(self._settings, self._observer.observe(), self._observer.ready())


def _health(found: Verdict, *, verbose: bool) -> Response:
    answer = HTTPStatus.OK if found.ok else HTTPStatus.SERVICE_UNAVAILABLE
    if verbose:
        return _json(verdict(found), answer)
    faults = "; ".join(check.seen for check in found.checks if not check.ok)
    return Response("ok\n" if found.ok else f"{faults}\n", status=answer)


def _json(value: Json, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(json.dumps(value, indent=2) + "\n", _JSON, status)


def _headers(response: Response, length: int) -> list[tuple[str, str]]:
    return [
        ("Content-Type", response.kind),
        ("Content-Length", str(length)),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        *response.headers,
    ]
