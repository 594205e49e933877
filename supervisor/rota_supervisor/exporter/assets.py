"""The files of the status page, as browsers get them: read and compressed once, at the first request for any."""

import gzip
import zlib
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Final

from rota_supervisor.exporter.client import Answer, HttpRequest

_FOLDER: Final = Path(__file__).with_name("site")
_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
# Only what we serve runs, looks and is asked, in nobody's frame: the page shows names that producers chose.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file, plain and compressed, with the headers of both."""

    plain: bytes
    compressed: bytes
    headers: tuple[tuple[str, str], ...]
    tag: str

    def answer(self, request: HttpRequest) -> Answer:
        if self.tag in request.headers.get("if-none-match", ""):
            return Answer(HTTPStatus.NOT_MODIFIED, self.headers, b"")
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Answer(HTTPStatus.OK, (*self.headers, ("Content-Encoding", "gzip")), self.compressed)
        return Answer(HTTPStatus.OK, self.headers, self.plain)


class Assets:
    """The files by the paths at which they are served."""

    def __init__(self) -> None:
        self._files = {f"/{'' if file.name == 'index.html' else file.name}": file for file in _FOLDER.iterdir()}

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def answer(self, request: HttpRequest) -> Answer:
        """Return the file at the path of a request, which is one of these."""
        return self._read[request.path].answer(request)

    @cached_property
    def _read(self) -> dict[str, Asset]:
        return {path: _asset(file) for path, file in self._files.items()}


def _asset(file: Path) -> Asset:
    plain = file.read_bytes()
    tag = f'"{len(plain):x}-{zlib.crc32(plain):08x}"'  # hashlib would bring OpenSSL along
    headers = (
        ("Content-Type", f"{_KINDS[file.suffix]}; charset=utf-8"),
        ("Content-Security-Policy", POLICY),
        ("Cache-Control", "no-cache"),  # kept, and asked about each time: an upgrade shows at once
        ("ETag", tag),
        ("Referrer-Policy", "no-referrer"),
        ("Vary", "Accept-Encoding"),
        ("X-Content-Type-Options", "nosniff"),
    )
    return Asset(plain, gzip.compress(plain, mtime=0), headers, tag)
