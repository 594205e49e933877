"""Which server and namespace the default clients get, which durability, and how long they wait.

Each value comes from the first that has it: `rota.configure`; the environment (ROTA_REDIS_URL or the file in
ROTA_REDIS_URL_FILE, ROTA_REDIS_TLS_CA, ROTA_REDIS_TLS_CERT, ROTA_REDIS_TLS_KEY, ROTA_NAMESPACE, ROTA_DURABILITY,
ROTA_TIMEOUT_SECONDS); the file in ROTA_CONFIG, else ./rota.toml; REDIS_URL; if there is such a file, the defaults of
the fleet that reads it. In a worker, the settings of its fleet come between the first and the second.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from rota.client.blocking.client import Client
from rota.client.enqueue_options import OnCommit
from rota.client.interception import NO_SERVER, interception
from rota.durations import positive_seconds
from rota.errors import NotConfigured
from rota.server.session import Durability, level_of
from rota.tasks import fleet_settings
from rota.tasks.fleet_settings import ClientSettings

if TYPE_CHECKING:
    from rota.client.aio import AsyncClient

CONFIG_FILE = "rota.toml"
_TLS_FILES = ("redis_tls_ca", "redis_tls_cert", "redis_tls_key")
_NOT_CONFIGURED = (
    "no server is configured, and there is no rota.toml in the current folder ({folder}). Start the program in the "
    "folder of the fleet's rota.toml, or give one of: rota.configure(redis_url=...); the environment variable "
    "ROTA_REDIS_URL; ROTA_CONFIG, the path of a rota.toml; REDIS_URL"
)


_OTHER_KIND = (
    "rota.configure was given a Redis client {0} and none {1}, which this call needs: call rota.configure(redis=...) "
    "once more with such a client"
)
_KINDS = ("of asyncio", "that blocks")


def make_client(configured: ClientSettings, on_commit: OnCommit | None = None) -> Client:
    """The default client of this process. Raises NotConfigured, InvalidName or ValueError."""
    given = _arguments(configured)
    return Client(
        given.redis_url, given.namespace, redis=_client_of(given, given.redis), on_commit=on_commit, **given.options
    )


def make_async_client(configured: ClientSettings, on_commit: OnCommit | None) -> "AsyncClient":
    """The default client of an event loop. Raises as `make_client`."""
    from rota.client.aio import AsyncClient  # noqa: PLC0415 - for those alone who use asyncio

    given = _arguments(configured)
    return AsyncClient(
        given.redis_url,
        given.namespace,
        redis=_client_of(given, given.async_redis),
        on_commit=on_commit,
        **given.options,
    )


class _Options(TypedDict):
    max_payload_kb: int
    durability: Durability
    timeout_seconds: float
    redis_tls_ca: str
    redis_tls_cert: str
    redis_tls_key: str


class _Arguments(NamedTuple):
    redis_url: str | None
    redis: Any
    async_redis: Any
    namespace: str
    options: _Options


def _client_of(given: _Arguments, redis: Any) -> Any:
    """Return the application's client of the kind that is wanted, None if there is a URL. Raises NotConfigured."""
    if redis is None and given.redis_url is None:
        raise NotConfigured(_OTHER_KIND.format(*_KINDS if given.redis is None else reversed(_KINDS)))
    return redis


def _arguments(configured: ClientSettings) -> _Arguments:
    found = resolve(configured, os.environ, Path.cwd())
    url = found.redis_url
    if url is None and not found.has_redis and interception.interceptor is not None:
        url = NO_SERVER
    if url is None and not found.has_redis:
        raise NotConfigured(_NOT_CONFIGURED.format(folder=Path.cwd()))
    options = _Options(
        max_payload_kb=found.max_payload_kb or fleet_settings.DEFAULT_MAX_PAYLOAD_KB,
        durability=level_of(found.durability or fleet_settings.DEFAULT_DURABILITY),
        timeout_seconds=found.timeout_seconds or fleet_settings.DEFAULT_TIMEOUT_SECONDS,
        redis_tls_ca=found.redis_tls_ca or "",
        redis_tls_cert=found.redis_tls_cert or "",
        redis_tls_key=found.redis_tls_key or "",
    )
    namespace = found.namespace or fleet_settings.DEFAULT_NAMESPACE
    return _Arguments(url, found.redis, found.async_redis, namespace, options)


def resolve(configured: ClientSettings, environment: Mapping[str, str], folder: Path) -> ClientSettings:
    """Each value from the first source that has it; `folder` is the current one. What decides nothing is not read.

    Raises NotConfigured when a source is there and cannot be read.
    """
    found = configured
    if found.timeout_seconds is None:  # the file is the fleet's, and says nothing of it
        seconds = _seconds("ROTA_TIMEOUT_SECONDS", environment.get("ROTA_TIMEOUT_SECONDS"))
        found = found._replace(timeout_seconds=seconds)
    for source in (_in_environment, _in_file):
        if not found.is_complete:
            found = found.or_else(source(environment, folder))
    url = environment.get("REDIS_URL")
    if not (found.redis_url or found.has_redis or url) and _config_file(environment, folder):
        url = fleet_settings.DEFAULT_REDIS_URL
    return found.or_else(ClientSettings(redis_url=url))


def _config_file(environment: Mapping[str, str], folder: Path) -> Path | None:
    """The file that a fleet started here would read; None if it would read none."""
    named = environment.get("ROTA_CONFIG")
    path = folder / (named or CONFIG_FILE)
    return path if named or path.exists() else None


def _in_environment(environment: Mapping[str, str], _: Path) -> ClientSettings:
    url = environment.get("ROTA_REDIS_URL")
    url_file = environment.get("ROTA_REDIS_URL_FILE")
    if not url and url_file:
        url = _read_url(Path(url_file), "ROTA_REDIS_URL_FILE")
    payload = environment.get("ROTA_LIMITS__MAX_PAYLOAD_KB") or "0"
    if not payload.isdecimal():
        raise NotConfigured(f"ROTA_LIMITS__MAX_PAYLOAD_KB must be a whole number, got {payload!r}")
    durability = _level("ROTA_DURABILITY", environment.get("ROTA_DURABILITY"))
    found = ClientSettings(url, environment.get("ROTA_NAMESPACE"), int(payload), durability)
    ca, cert, key = (environment.get(f"ROTA_{name.upper()}") for name in _TLS_FILES)
    return found._replace(redis_tls_ca=ca, redis_tls_cert=cert, redis_tls_key=key)


def _in_file(environment: Mapping[str, str], folder: Path) -> ClientSettings:
    path = _config_file(environment, folder)
    if path is None:
        return ClientSettings()
    try:
        table = tomllib.loads(_read(path, "ROTA_CONFIG" if environment.get("ROTA_CONFIG") else "the current directory"))
    except tomllib.TOMLDecodeError as error:
        raise NotConfigured(f"{path} is not TOML: {error}") from None
    url = _value(path, table, "redis_url", str)
    url_file = _value(path, table, "redis_url_file", str)
    if not url and url_file:
        url = _read_url(path.parent / url_file, f"redis_url_file in {path}")
    limits = _value(path, table, "limits", dict) or {}
    found = ClientSettings(
        url,
        _value(path, table, "namespace", str),
        _value(path, limits, "max_payload_kb", int),
        _level(str(path), _value(path, table, "durability", str)),
    )
    files = (_value(path, table, name, str) for name in _TLS_FILES)
    ca, cert, key = (file and str(path.parent / file) for file in files)
    return found._replace(redis_tls_ca=ca, redis_tls_cert=cert, redis_tls_key=key)


def _read(path: Path, what: str) -> str:
    try:
        return fleet_settings.read_settings_file(path).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotConfigured(f"{what} names {path}, which cannot be read: {error}") from None


def _read_url(path: Path, what: str) -> str:
    text = _read(path, what)
    if "://" not in text:  # a bare password, say: what refuses a URL would quote it
        raise NotConfigured(f"{what} names {path}, which holds no Redis URL")
    return text


def _level(where: str, text: str | None) -> str | None:
    try:
        return level_of(text) if text else None
    except ValueError as error:
        raise NotConfigured(f"{where}: {error}") from None


def _seconds(where: str, text: str | None) -> float:
    try:
        return positive_seconds(float(text), where) if text else fleet_settings.DEFAULT_TIMEOUT_SECONDS
    except ValueError:
        raise NotConfigured(f"{where} must be a number of seconds above 0, got {text!r}") from None


def _value(path: Path, table: Mapping[str, Any], key: str, kind: type[Any]) -> Any:
    value = table.get(key)
    if value is not None and not isinstance(value, kind):
        raise NotConfigured(f"{path}: {key} must be of type {kind.__name__}, got {value!r}")
    return value
