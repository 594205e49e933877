"""The settings of clients, with their defaults: the server, the namespace, and the limits of the calls that this
process makes."""

import errno
import os
import select
import stat
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from rota.protocol.signatures import SigningSettings

DEFAULT_NAMESPACE: Final = "rota"
# The default of fleets, and of clients that read a fleet's configuration file.
DEFAULT_REDIS_URL: Final = "redis://127.0.0.1:6379/0"
DEFAULT_MAX_PAYLOAD_KB: Final = 256
DEFAULT_MAX_RESULT_KB: Final = 256
DEFAULT_TIMEOUT_SECONDS: Final = 5.0
DEFAULT_DURABILITY: Final = "none"
DEFAULT_LEASE_SECONDS: Final = 30.0
DEFAULT_TIME_LIMIT_SECONDS: Final = 3600.0  # for fleets


MOST_FILE_BYTES: Final = 1 << 20
PIPE_SECONDS: Final = 5.0
_CHUNK_BYTES: Final = 1 << 16


def check_payload_limit(max_payload_kb: object) -> int:
    """Return a valid limit for a body in KiB. Raises TypeError or ValueError if the limit is not valid."""
    if isinstance(max_payload_kb, bool) or not isinstance(max_payload_kb, int):
        raise TypeError(f"max_payload_kb must be a whole number, got {max_payload_kb!r}")
    if max_payload_kb < 1:
        raise ValueError(f"max_payload_kb must be 1 or more, got {max_payload_kb}")
    return max_payload_kb


def read_settings_file(path: "Path") -> bytes:
    """Return the content of a settings file, or of a pipe such as the shell's `<(...)`.

    Raises OSError if the file cannot be read, is a device, or has more than MOST_FILE_BYTES, or is a pipe whose writer
    has not closed it within PIPE_SECONDS.
    """
    with open(path, "rb", buffering=0, opener=_open_at_once) as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISFIFO(mode):
            content = _read_pipe(file.fileno(), path)
        elif stat.S_ISREG(mode):
            content = os.read(file.fileno(), MOST_FILE_BYTES + 1)
        else:
            raise OSError(errno.EINVAL, "the path is neither a regular file nor a pipe", str(path))
    if len(content) > MOST_FILE_BYTES:
        raise OSError(errno.EFBIG, f"the file has more than {MOST_FILE_BYTES} bytes", str(path))
    return content


def _open_at_once(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a pipe would block until another process opens it for writing.
    return os.open(path, flags | os.O_NONBLOCK)


def _read_pipe(fd: int, path: "Path") -> bytes:
    content = b""
    until = time.monotonic() + PIPE_SECONDS
    ready = select.poll()
    ready.register(fd, select.POLLIN)
    while len(content) <= MOST_FILE_BYTES:
        if not ready.poll(max(0.0, until - time.monotonic()) * 1000):
            raise OSError(
                errno.ETIMEDOUT, f"the pipe was not closed by its writer within {PIPE_SECONDS:g} s", str(path)
            )
        chunk = os.read(fd, _CHUNK_BYTES)
        if not chunk:
            break
        content += chunk
    return content


class ClientSettings(NamedTuple):
    """The settings from which a client is made. Settings come from several sources, and a field is None if the source
    of these settings does not set it."""

    redis_url: str | None = None  # the URL of the server, unless the application passes its own client
    namespace: str | None = None
    max_payload_kb: int | None = None  # the largest body of a task, in KiB
    durability: str | None = None  # "none", "wait" or "waitaof"
    timeout_seconds: float | None = None  # the time limit of a call, in seconds
    redis_tls_ca: str | None = None  # path of a file with the certificate authorities to trust
    redis_tls_cert: str | None = None  # path of the client's certificate
    redis_tls_key: str | None = None  # path of the key of the client's certificate
    redis: Any = None  # the application's own blocking Redis client
    async_redis: Any = None  # the application's own asyncio Redis client
    redis_credentials: Any = None  # supplies the user and password for `redis_url`
    signing: "SigningSettings | None" = None  # the keys that sign and verify tasks

    @property
    def has_redis(self) -> bool:
        """Whether the application passed its own Redis client, blocking or asyncio, instead of a URL."""
        return self.redis is not None or self.async_redis is not None

    @property
    def is_complete(self) -> bool:
        """Whether every setting that another source could supply is set already, so that no other source has to be
        read."""
        others = (self.namespace, self.max_payload_kb, self.durability, self.timeout_seconds, self.signing)
        files = (self.redis_tls_ca, self.redis_tls_cert, self.redis_tls_key)
        return all(others) and (self.has_redis or bool(self.redis_url and (not self._speaks_tls or all(files))))

    @property
    def _speaks_tls(self) -> bool:
        return str(self.redis_url).lower().startswith("rediss")  # a value that is not a string is rejected later

    def or_else(self, other: "ClientSettings") -> "ClientSettings":
        """Return these settings, with missing fields taken from `other`.

        If these settings already name a server, fields that belong to the server of `other` are not taken. There are
        two exceptions. If these settings have a URL, `redis_credentials` is taken from `other`. If that URL uses TLS,
        the TLS files are taken too.
        """
        if self.redis_url:
            other = other._replace(redis=None, async_redis=None)
        if self.has_redis:
            other = other._replace(redis_url=None, redis_credentials=None)
        if self.has_redis or (self.redis_url and not self._speaks_tls):
            other = other._replace(redis_tls_ca=None, redis_tls_cert=None, redis_tls_key=None)
        return ClientSettings._make(mine or theirs for mine, theirs in zip(self, other, strict=True))


class OwnFleet:
    """The settings of the fleet that this process works for, if it is a worker. In any other process, there are
    none."""

    def __init__(self) -> None:
        self.settings = ClientSettings()


own_fleet: Final = OwnFleet()
"""The client settings of the fleet in a worker. The worker sets them before any user code runs, so that tasks that
enqueue tasks reach their own fleet."""
