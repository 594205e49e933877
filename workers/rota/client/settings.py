"""What a client is made from, and the defaults of what nobody says."""

import errno
import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_NAMESPACE: Final = "rota"
DEFAULT_REDIS_URL: Final = "redis://127.0.0.1:6379/0"  # of a fleet, and of clients that find its configuration file
DEFAULT_MAX_PAYLOAD_KB: Final = 256
DEFAULT_MAX_RESULT_KB: Final = 256
DEFAULT_TIMEOUT_SECONDS: Final = 5.0
DEFAULT_DURABILITY: Final = "none"
DEFAULT_LEASE_SECONDS: Final = 30.0
DEFAULT_TIME_LIMIT_SECONDS: Final = 3600.0  # of a fleet


MOST_FILE_BYTES: Final = 1 << 20


def read_settings_file(path: "Path") -> bytes:
    """Return the content of a file of settings. Raises OSError, also for what is no regular file, such as a device or a
    pipe, which may have no end, and for more than MOST_FILE_BYTES."""
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        content = file.read(MOST_FILE_BYTES + 1)
    if len(content) > MOST_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MOST_FILE_BYTES} bytes", str(path))
    return content


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would be waited for until somebody writes


class ClientSettings(NamedTuple):
    """What a client is made from; None where a source does not say."""

    redis_url: str | None = None
    namespace: str | None = None
    max_payload_kb: int | None = None
    durability: str | None = None
    timeout_seconds: float | None = None
    redis_tls_ca: str | None = None
    redis_tls_cert: str | None = None
    redis_tls_key: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether no other source could add anything."""
        *others, ca, cert, key = self
        return all(others) and (not self._speaks_tls or all((ca, cert, key)))

    @property
    def _speaks_tls(self) -> bool:
        return str(self.redis_url).lower().startswith("rediss")  # what is no text is refused later

    def or_else(self, other: "ClientSettings") -> "ClientSettings":
        """These, and the other's where these do not say. A server of these without TLS takes no files of the other."""
        if self.redis_url and not self._speaks_tls:
            other = other._replace(redis_tls_ca=None, redis_tls_cert=None, redis_tls_key=None)
        return ClientSettings._make(mine or theirs for mine, theirs in zip(self, other, strict=True))
