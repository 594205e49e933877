"""A small threaded HTTP server over the listening socket that the master bound and every exporter inherits.

At most MAX_REQUESTS are answered at once; others wait in the socket's backlog, as they do while one
exporter follows another. A client that stalls is dropped after QUIET_SECONDS.
"""

import socket
import sys
import threading
from collections.abc import Iterable
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final

from rota.telemetry import events, log
from rota_supervisor.exporter.libraries import WSGIRequestHandler, WSGIServer

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

MAX_REQUESTS: Final = 16
QUIET_SECONDS: Final = 10.0
_MAX_BODY: Final = 1 << 16


class _Handler(WSGIRequestHandler):
    timeout = QUIET_SECONDS
    server_version = "rota"
    sys_version = ""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class named it
        """Scrapes and probes are not worth a line each."""


class Server(ThreadingMixIn, WSGIServer):
    """Serves `application` on `listener`, a thread a request."""

    daemon_threads = True
    timeout = 0

    def __init__(self, listener: socket.socket, application: "WSGIApplication") -> None:
        address = listener.getsockname()[:2]
        super().__init__(address, _Handler, bind_and_activate=False)
        self.socket.close()  # the one it made; ours is bound already
        self.socket = listener
        self.socket.setblocking(False)
        self.server_name, self.server_port = address
        self.setup_environ()
        self.set_app(guarded(application))
        self._counting = threading.Lock()
        self._busy = 0

    @property
    def busy(self) -> int:
        """How many clients are being answered."""
        return self._busy

    @property
    def is_full(self) -> bool:
        """Whether the next client has to wait."""
        return self._busy >= MAX_REQUESTS

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one client, in its thread."""
        self._count(1)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._counting:
            self._busy += change

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's signature
        """Say what went wrong, unless it is the client that left or stalled."""
        if not isinstance(sys.exception(), OSError):
            log.logger().warning(events.EXPORTER_REQUEST_FAILED, exc_info=True)


def guarded(application: "WSGIApplication") -> "WSGIApplication":
    """The application, with every failure of it logged and answered as such."""

    def serve(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        _read_body(environ)
        try:
            return application(environ, start_response)
        except Exception:  # noqa: BLE001 - the boundary of a request: whatever failed, the next one is answered
            log.logger().error(events.EXPORTER_REQUEST_FAILED, path=environ.get("PATH_INFO"), exc_info=True)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain")])
            return [b"the exporter failed to answer; its log says why\n"]

    return serve


def _read_body(environ: "WSGIEnvironment") -> None:
    # Closing a connection with unread data resets it, and the client may lose the answer it was sent.
    length = environ.get("CONTENT_LENGTH") or "0"
    if length.isdecimal():
        environ["wsgi.input"].read(min(int(length), _MAX_BODY))
