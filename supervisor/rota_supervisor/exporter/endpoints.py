"""The endpoints of the exporter: immediate responses, pages that take longer, and the files of the status page. All
endpoints except the actions only read."""

import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from prometheus_client.exposition import choose_encoder

from rota.display_text import printable
from rota.telemetry import log, log_events
from rota_supervisor.exporter.access import METRICS, AccessRules
from rota_supervisor.exporter.exporter_settings import ExporterSettings
from rota_supervisor.exporter.exposition import ScrapeOptions
from rota_supervisor.exporter.http_connection import Endpoint, HttpRequest, HttpResponse, json_response, text_response
from rota_supervisor.exporter.node_status import node_status, nodes_reader
from rota_supervisor.exporter.observer import Observer, Probe
from rota_supervisor.exporter.redis_thread import RedisThread, connector
from rota_supervisor.fleet_snapshot import Health, one_line

_METHODS: Final = ("GET", "HEAD")
_METHODS_OF: Final = {"/actions": ("POST",)}
_FAILED: Final = text_response(
    "the request failed in the exporter: see the log for the error\n", status=HTTPStatus.INTERNAL_SERVER_ERROR
)
_FASTEST: Final = 1  # 15 ms for 20,000 series; the default level takes 60 ms for a result that is a third smaller
_GZIP: Final = 31  # the `wbits` of zlib for the gzip format
_MAX_DIGITS: Final = 16  # the maximum length of an event number that a request may contain


class Site:
    """The site that serves `/metrics`, `/livez`, `/readyz`, `/status.json`, `/dead.json`, `/task.json`, `/actions` and
    the status page.

    `immediate_response` and `page` are called in two different threads. `immediate_response` uses `probe`; `page` uses
    `observer` and `redis`. `redis` is None if this node does not read the queues. `access` decides which requests are
    admitted. Health responses are sent to all clients.

    `between` is a function that updates the history. The caller must call it about once a second, but never at the same
    time as `page`.
    """

    def __init__(
        self,
        settings: ExporterSettings,
        probe: Probe,
        observer: Observer,
        redis: RedisThread | None,
        access: AccessRules,
    ) -> None:
        self._settings = settings
        self._access = access
        self._observer = observer
        self._assets = Assets()
        self._redis = redis
        self.between: Callable[[], object] = observer.note_history
        self._read_nodes = nodes_reader(settings, redis)
        self._health: dict[str, Endpoint] = {
            "/livez": lambda request: _health(probe.alive(), request),
            "/readyz": lambda request: _health(probe.ready(), request),
        }
        self._pages: dict[str, Endpoint] = {
            METRICS: self._scrape,
            "/status.json": self._status,
            **dict.fromkeys(("/actions", "/dead.json", "/task.json"), self._request_of_person),
        }

    def immediate_response(self, request: HttpRequest) -> HttpResponse | None:
        """Return the response if it can be made at once: health, a file of the status page, or a refusal. Returns None
        if the request has to be passed to `page`.
        """
        path = request.path
        if path not in self._health and path not in self._pages and path not in self._assets:
            known = " ".join(sorted({"/"} | self._health.keys() | self._pages.keys()))
            return text_response(f"there is no such path; the paths are: {known}\n", status=HTTPStatus.NOT_FOUND)
        methods = _METHODS_OF.get(path, _METHODS)
        if request.method not in methods:
            allowed = ", ".join(methods)
            text = f"{path} accepts only {allowed}\n"
            return text_response(text, ("Allow", allowed), status=HTTPStatus.METHOD_NOT_ALLOWED)
        if path in self._health:
            return _guarded(self._health[path], request)
        if refusal := self._access.refusal_of(request, is_public=path in self._assets):
            return refusal
        return _guarded(self._assets.response, request) if path in self._assets else None

    def scrape_kind(self, request: HttpRequest) -> str:
        """Return a key for the format of the scrape, or "" if the request is not a scrape of all metrics.

        Clients whose scrapes have the same key can share one response.
        """
        if request.path != METRICS or request.query not in ("", "created"):
            return ""
        content_type = choose_encoder(request.headers.get("accept", ""))[1]
        return f"{content_type} {request.query} {_takes_gzip(request)}"

    def page(self, request: HttpRequest) -> HttpResponse:
        """Return the page for a request. This can take seconds."""
        return _guarded(self._pages[request.path], request)

    def _status(self, request: HttpRequest) -> HttpResponse:
        seen = self._observer.observe()
        found = None if seen.reading is None else self._read_nodes()  # If Redis did not reply, skip this query.
        return json_response(node_status(self._settings, seen, found, _events_after(request)))

    def _request_of_person(self, request: HttpRequest) -> HttpResponse:
        return self._of_people[request.path](request)

    @cached_property
    def _of_people(self) -> Mapping[str, Endpoint]:
        """The endpoints for people. They have their own connection to Redis, because the connection for scrapes can be
        busy for seconds while it reads all queues.
        """
        # This module is imported only when needed, because it imports the part of the client that inspects tasks.
        from rota_supervisor.exporter.page_requests import requests_of_people  # noqa: PLC0415

        redis = None if self._redis is None else RedisThread(connector(self._settings.server))
        return requests_of_people(self._settings, redis)

    def _scrape(self, request: HttpRequest) -> HttpResponse:
        """Return the response to `/metrics` in the format that the client accepts.

        `?name[]=NAME` selects metrics by name, and `?created` adds the time at which each series began.
        """
        query = parse_qs(request.query, keep_blank_values=True)
        accept = request.headers.get("accept", "")
        names = frozenset(query.get("name[]", ()))
        content_type, body = self._observer.scrape(ScrapeOptions(accept, names, "created" in query))
        headers = [("Content-Type", content_type)]
        if _takes_gzip(request):
            body = zlib.compress(body, _FASTEST, wbits=_GZIP)
            headers.append(("Content-Encoding", "gzip"))
        return HttpResponse(HTTPStatus.OK, tuple(headers), body)


def _guarded(make: Endpoint, request: HttpRequest) -> HttpResponse:
    try:
        return make(request)
    except Exception:  # noqa: BLE001 - a failed request must not affect the next one
        log.logger().error(log_events.EXPORTER_REQUEST_FAILED, path=request.path, exc_info=True)
        return _FAILED


def _takes_gzip(request: HttpRequest) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _events_after(request: HttpRequest) -> int:
    """Return the number of the last event that the client already has, or 0 if the request does not contain it."""
    [number] = parse_qs(request.query).get("events_after", ["0"])[:1]
    return int(number) if number.isdecimal() and len(number) <= _MAX_DIGITS else 0


def _health(found: Health, request: HttpRequest) -> HttpResponse:
    status = HTTPStatus.OK if found.ok else HTTPStatus.SERVICE_UNAVAILABLE
    if "verbose" in parse_qs(request.query, keep_blank_values=True):
        return json_response(found.to_json(), status)
    return text_response(f"{printable(one_line(found.to_json()))}\n", status=status)


_FOLDER: Final = Path(__file__).with_name("site")
_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
# The page shows names that producers chose. In case such a name contains markup, the page may load and call only this
# server, and no other page may frame it.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the status page, both uncompressed and compressed."""

    plain: bytes
    compressed: bytes
    headers: tuple[tuple[str, str], ...]  # the headers that the uncompressed and the compressed file share
    tag: str  # the ETag

    def response(self, request: HttpRequest) -> HttpResponse:
        if self.tag in request.headers.get("if-none-match", ""):
            return HttpResponse(HTTPStatus.NOT_MODIFIED, self.headers, b"")
        if _takes_gzip(request):
            return HttpResponse(HTTPStatus.OK, (*self.headers, ("Content-Encoding", "gzip")), self.compressed)
        return HttpResponse(HTTPStatus.OK, self.headers, self.plain)


class Assets:
    """The files of the status page, by path."""

    def __init__(self) -> None:
        self._files = {f"/{'' if file.name == 'index.html' else file.name}": file for file in _FOLDER.iterdir()}

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def response(self, request: HttpRequest) -> HttpResponse:
        """Return the file that the request asks for."""
        return self._read[request.path].response(request)

    @cached_property
    def _read(self) -> dict[str, Asset]:
        return {path: _asset(file) for path, file in self._files.items()}


def _asset(file: Path) -> Asset:
    plain = file.read_bytes()
    tag = f'"{len(plain):x}-{zlib.crc32(plain):08x}"'  # not `hashlib`, which would load OpenSSL
    headers = (
        ("Content-Type", f"{_KINDS[file.suffix]}; charset=utf-8"),
        ("Content-Security-Policy", POLICY),
        ("Cache-Control", "no-cache"),  # Browsers store the file but revalidate it, so an upgrade takes effect at once.
        ("ETag", tag),
        ("Referrer-Policy", "no-referrer"),
        ("Vary", "Accept-Encoding"),
        ("X-Content-Type-Options", "nosniff"),
    )
    return Asset(plain, gzip.compress(plain, mtime=0), headers, tag)
