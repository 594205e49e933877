"""The default clients, through which tasks are enqueued unless a call names another client, and their settings.

Each setting comes from the first of these sources that has it:

1. `rota.configure`.
2. In a worker, the settings of its fleet.
3. The environment: ROTA_REDIS_URL or the file in ROTA_REDIS_URL_FILE, ROTA_REDIS_CREDENTIALS, ROTA_REDIS_TLS_CA,
   ROTA_REDIS_TLS_CERT, ROTA_REDIS_TLS_KEY, ROTA_NAMESPACE, ROTA_DURABILITY, ROTA_TIMEOUT_SECONDS.
4. The file in ROTA_CONFIG, or else ./rota.toml.
5. REDIS_URL.
6. If the file of source 4 exists, the defaults of a fleet that uses this file.
"""

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, cast

from rota.client.enqueue_options import (
    NO_SERVER,
    OnCommit,
    OnCommitOption,
    ProgressOption,
    check_on_commit,
    interception,
)
from rota.durations import Duration, positive_seconds
from rota.errors import NotConfigured
from rota.foreign_names import FOREIGN_NAMES, fault_in_option
from rota.soft_limit import time_limit_deferred
from rota.tasks import fleet_settings
from rota.tasks.fleet_settings import ClientSettings, own_fleet

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from rota.client.aio import AsyncClient, AsyncHandle
    from rota.client.blocking.client import Client
    from rota.client.blocking.handles import Handle
    from rota.client.status import TaskStatus
    from rota.protocol.replies import CancelStatus
    from rota.protocol.signatures import SigningSettings
    from rota.server.endpoint import RedisClient
    from rota.server.logins import CredentialProvider
    from rota.server.session import Durability
    from rota.tasks.call import Call

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class DefaultClient:
    """The default clients: a blocking one, and one for each event loop. They are made on first use.

    There is no lock, because it could stay locked in a forked child. If two threads use the default client for the
    first time at the same moment, each makes a client, and only one of them is kept. The settings of `configure` have
    precedence over those of the fleet.
    """

    def __init__(self) -> None:
        self.configured = ClientSettings()
        self._fleet = own_fleet.settings
        self.on_commit: OnCommit | None = None
        self.client: Client | None = None
        self._of_loops: dict[AbstractEventLoop, AsyncClient] = {}

    def get(self) -> "Client":
        """Return the blocking client. Raises NotConfigured, or ValueError if the URL is not valid."""
        if self._fleet is not own_fleet.settings:
            self._enter_fleet()
        client = self.client
        if client is None:
            # If TimeLimit were raised during this import, the module would stay half imported.
            with time_limit_deferred:
                client = make_client(self._settings(), self.on_commit)
            if interception.interceptor is None:  # With a stand-in, the client may have no server, so it is not kept.
                self.client = client
        return client

    def of_loop(self, loop: "AbstractEventLoop") -> "AsyncClient":
        """Return the client of a running loop. Raises the errors of `get`."""
        if self._fleet is not own_fleet.settings:
            self._enter_fleet()
        client = self._of_loops.get(loop)
        if client is None:
            client = make_async_client(self._settings(), self.on_commit)
            if interception.interceptor is None:
                open_ones = {each: of_it for each, of_it in self._of_loops.items() if not each.is_closed()}
                self._of_loops = open_ones | {loop: client}
        return client

    def _settings(self) -> ClientSettings:
        return self.configured.or_else(_for_server_of(self.configured, self._fleet))

    def forget(self) -> None:
        """Forget the clients, so that the next use makes new ones."""
        self.client = None
        of_loops = self._of_loops
        self._of_loops = {}
        for client in of_loops.values():
            client.close_soon()

    def _enter_fleet(self) -> None:
        """Switch to the settings of the fleet when this process has become a worker. The application may have used a
        default client with other settings while it was imported."""
        self._fleet = own_fleet.settings
        self.forget()


_default = DefaultClient()


def _by_name(function: F) -> F:
    # Python's own error for an unknown option would not suggest the right name.
    @functools.wraps(function)
    def called(*positional: object, **given: object) -> object:
        if positional:
            raise TypeError("rota.configure takes only keyword arguments: use rota.configure(redis_url=...)")
        options = function.__kwdefaults__ or {}
        if unknown := sorted(given.keys() - options.keys()):
            raise TypeError(fault_in_option(unknown[0], "rota.configure", FOREIGN_NAMES["configure"], options))
        return function(**given)

    return cast("F", called)


@_by_name
def configure(
    *,
    redis_url: str | None = None,
    redis: "RedisClient | None" = None,
    namespace: str | None = None,
    max_payload_kb: int | None = None,
    durability: "Durability | None" = None,
    timeout_seconds: float | None = None,
    redis_tls_ca: str | None = None,
    redis_tls_cert: str | None = None,
    redis_tls_key: str | None = None,
    redis_credentials: "CredentialProvider | None" = None,
    signing_keys: "Mapping[str, str | bytes] | None" = None,
    sign_with: str = "",
    signing_required: bool = False,
    on_commit: OnCommitOption = ...,
) -> None:
    """Set the server of the default clients, the durability that they wait for, and their timeout.

        rota.configure(redis_url="redis://db.example:6379/0", namespace="mail", timeout_seconds=5)

    An option that is omitted keeps the value of an earlier call, or comes from the environment. `redis` is a Redis
    client of the application, blocking or for asyncio, to be used instead of a URL; an application that uses both kinds
    calls this function once for each. `on_commit` is described at `Task.using`; None means that each enqueue is sent at
    once. `Client` describes the other options.

    Raises:
        TypeError: If `on_commit` is not a function that takes a callback, if `redis` cannot be used, if both `redis`
            and `redis_url` are given, or if `max_payload_kb` is not a whole number.
        ValueError: If `timeout_seconds` or `max_payload_kb` is not above 0.
    """
    files = (redis_tls_ca, redis_tls_cert, redis_tls_key)
    given = ClientSettings(redis_url, namespace, max_payload_kb, durability, timeout_seconds, *files)
    signing = _given_signing(signing_keys, sign_with, required=signing_required)
    given = _checked(given._replace(redis_credentials=redis_credentials, signing=signing))
    given = given if redis is None else _with_client(given, redis)
    if on_commit is not ...:
        _default.on_commit = None if on_commit is None else check_on_commit(on_commit)
    _default.configured = given.or_else(_default.configured)
    _default.forget()


def _checked(given: ClientSettings) -> ClientSettings:
    """Return the settings if their numbers are valid. Raises TypeError or ValueError."""
    if given.max_payload_kb is not None:
        fleet_settings.check_payload_limit(given.max_payload_kb)
    if given.timeout_seconds is None:
        return given
    return given._replace(timeout_seconds=positive_seconds(given.timeout_seconds, "timeout_seconds"))


def _given_signing(
    keys: "Mapping[str, str | bytes] | None", sign_with: str, *, required: bool
) -> "SigningSettings | None":
    is_given = keys is not None or sign_with or required
    return _signing(keys or {}, sign_with, required=required) if is_given else None


def _signing(keys: Mapping[str, str | bytes], sign_with: str, *, required: bool) -> "SigningSettings":
    from rota.protocol.signatures import SigningSettings  # noqa: PLC0415 - only needed with keys

    return SigningSettings(keys, sign_with, required)


def _with_client(given: ClientSettings, redis: "RedisClient") -> ClientSettings:
    from rota.server.borrowed import check_source, is_asyncio  # noqa: PLC0415 - only needed with such a client

    files = (given.redis_tls_ca, given.redis_tls_cert, given.redis_tls_key)
    if given.redis_url or given.redis_credentials or any(files):
        raise TypeError("pass rota.configure either redis or redis_url (with its credentials and TLS files), not both")
    check_source(redis)
    return given._replace(async_redis=redis) if is_asyncio(redis) else given._replace(redis=redis)


@contextmanager
def default_client_set(redis_url: str, namespace: str) -> "Iterator[Client]":
    """Make the default client use this server within a `with` block, and restore the settings afterwards. For tests."""
    configured = _default.configured
    client_before = _default.client
    configure(redis_url=redis_url, namespace=namespace)
    try:
        with default_client() as client:
            yield client
    finally:
        _default.configured = configured
        _default.forget()
        _default.client = client_before


def default_client() -> "Client":
    """Return the default client. Raises NotConfigured if no source names a server."""
    return _default.get()


def blocking_client(given: "Client | AsyncClient | None", instead: str) -> "Client":
    """Return the given client, or else the default one.

    Raises TypeError if the client is an AsyncClient. The message then shows `instead`, the code that would work.
    """
    client = default_client() if given is None else given
    if client.is_async:
        raise TypeError(f"this client is an AsyncClient: use `{instead}`")
    return cast("Client", client)


def async_client(given: "Client | AsyncClient | None", instead: str) -> "AsyncClient":
    """Return the given client, or else the default one of the event loop.

    Raises TypeError if the client is a blocking one. The message then shows `instead`, the code that would work.
    """
    client = default_async_client() if given is None else given
    if not client.is_async:
        raise TypeError(f"this client is not an AsyncClient: use `{instead}`")
    return cast("AsyncClient", client)


def enqueue_many(
    calls: "Iterable[Call[R]]", *, on_commit: OnCommitOption = ..., progress: ProgressOption = None
) -> "list[Handle[R]]":
    """Enqueue many calls through the default client, and return their handles: see `Client.enqueue_many`."""
    return default_client().enqueue_many(calls, on_commit=on_commit, progress=progress)


def status(task_id: str, *, args: bool = False) -> "TaskStatus":
    """Return the status of a task, read through the default client: see `Client.status`."""
    return default_client().status(task_id, args=args)


def cancel(task_id: str, kill_after: Duration | None = None) -> "CancelStatus":
    """Cancel a task through the default client, and return the result as a CancelStatus: see `Client.cancel`."""
    return default_client().cancel(task_id, kill_after)


def default_async_client() -> "AsyncClient":
    """Return the default client of the running event loop.

    Raises:
        NotConfigured: If no source names a server.
        RuntimeError: If no event loop runs.
    """
    from asyncio import get_running_loop  # noqa: PLC0415 - `import rota` must not load asyncio

    return _default.of_loop(get_running_loop())


async def aenqueue_many(
    calls: "Iterable[Call[R]]", *, on_commit: OnCommitOption = ..., progress: ProgressOption = None
) -> "list[AsyncHandle[R]]":
    """Enqueue many calls through the default client of this event loop: see `AsyncClient.enqueue_many`."""
    return await default_async_client().enqueue_many(calls, on_commit=on_commit, progress=progress)


# The settings of the default clients

CONFIG_FILE = "rota.toml"
_TLS_FILES = ("redis_tls_ca", "redis_tls_cert", "redis_tls_key")
_NOT_CONFIGURED = (
    "no server is configured, and there is no rota.toml in the current folder ({folder}). Start the program in the "
    "folder of the fleet's rota.toml, call rota.configure(redis_url=...), or set one of these environment variables: "
    "ROTA_REDIS_URL, ROTA_CONFIG (the path of a rota.toml), or REDIS_URL"
)
_OTHER_KIND = (
    "rota.configure was given a Redis client {0}, but this call needs one {1}: call rota.configure(redis=...) again "
    "with a client {1}"
)
_KINDS = ("for asyncio", "that blocks")


def make_client(configured: ClientSettings, on_commit: OnCommit | None = None) -> "Client":
    """Make the blocking default client of this process. Raises NotConfigured, InvalidName or ValueError."""
    from rota.client.blocking.client import Client  # noqa: PLC0415 - `import rota` must not load sockets and JSON

    return Client(**_arguments(configured, lambda found: found.redis), on_commit=on_commit)


def make_async_client(configured: ClientSettings, on_commit: OnCommit | None) -> "AsyncClient":
    """Make the default client of an event loop. Raises the errors of `make_client`."""
    from rota.client.aio import AsyncClient  # noqa: PLC0415 - only needed with asyncio

    return AsyncClient(**_arguments(configured, lambda found: found.async_redis), on_commit=on_commit)


class _Arguments(TypedDict):
    redis_url: str | None
    namespace: str
    redis: Any
    max_payload_kb: int
    durability: "Durability"
    timeout_seconds: float
    redis_tls_ca: str
    redis_tls_cert: str
    redis_tls_key: str
    redis_credentials: Any
    signing_keys: "Mapping[str, str | bytes] | None"
    sign_with: str
    signing_required: bool


def _arguments(configured: ClientSettings, client_in: Callable[[ClientSettings], Any]) -> _Arguments:
    """Return the arguments for a new client. `client_in` returns the application's Redis client from the settings,
    either the blocking one or the one for asyncio."""
    found = resolve(configured, os.environ, Path.cwd())
    url = found.redis_url
    redis = client_in(found)
    if url is None and redis is None:
        if found.has_redis:
            raise NotConfigured(_OTHER_KIND.format(*_KINDS if found.redis is None else reversed(_KINDS)))
        if interception.interceptor is None:
            raise NotConfigured(_NOT_CONFIGURED.format(folder=Path.cwd()))
        url = NO_SERVER
    signing = found.signing
    return _Arguments(
        redis_url=url,
        namespace=found.namespace or fleet_settings.DEFAULT_NAMESPACE,
        redis=redis,
        max_payload_kb=found.max_payload_kb or fleet_settings.DEFAULT_MAX_PAYLOAD_KB,
        durability=cast("Durability", found.durability or fleet_settings.DEFAULT_DURABILITY),
        timeout_seconds=found.timeout_seconds or fleet_settings.DEFAULT_TIMEOUT_SECONDS,
        redis_tls_ca=found.redis_tls_ca or "",
        redis_tls_cert=found.redis_tls_cert or "",
        redis_tls_key=found.redis_tls_key or "",
        redis_credentials=found.redis_credentials,
        signing_keys=None if signing is None else signing.keys,
        sign_with="" if signing is None else signing.sign_with,
        signing_required=signing is not None and signing.required,
    )


_IN_WORDS: Final = {str: "text", int: "a whole number", bool: "true or false", dict: "a table"}


def resolve(configured: ClientSettings, environment: Mapping[str, str], folder: Path) -> ClientSettings:
    """Return each setting from the first source that has it. `folder` is the current directory.

    A source is not read if earlier sources have all of its settings. Raises NotConfigured if a source exists but cannot
    be read.
    """
    found = configured
    if found.timeout_seconds is None:  # Only the environment can have this setting.
        seconds = _seconds("ROTA_TIMEOUT_SECONDS", environment.get("ROTA_TIMEOUT_SECONDS"))
        found = found._replace(timeout_seconds=seconds)
    for source in (_in_environment, _in_file):
        if not found.is_complete:
            found = found.or_else(_for_server_of(configured, source(environment, folder)))
    url = environment.get("REDIS_URL")
    if not (found.redis_url or found.has_redis or url) and _config_file(environment, folder):
        url = fleet_settings.DEFAULT_REDIS_URL
    return found.or_else(ClientSettings(redis_url=url))


def _for_server_of(configured: ClientSettings, source: ClientSettings) -> ClientSettings:
    """Return a source's settings, without its credentials if `rota.configure` was given the URL of another server."""
    return source if configured.redis_url in (None, "", source.redis_url) else source._replace(redis_credentials=None)


def _config_file(environment: Mapping[str, str], folder: Path) -> Path | None:
    """Return the configuration file that a fleet would read here, or None if there is none."""
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
    found = found._replace(redis_credentials=environment.get("ROTA_REDIS_CREDENTIALS") or None)
    if keys := environment.get("ROTA_SIGNING__KEYS"):
        found = found._replace(signing=_signing_in_environment(keys, environment))
    return found._replace(redis_tls_ca=ca, redis_tls_cert=cert, redis_tls_key=key)


def _signing_in_environment(keys: str, environment: Mapping[str, str]) -> "SigningSettings":
    import json  # noqa: PLC0415 - only needed with keys

    try:
        sources = json.loads(keys)
    except ValueError:
        sources = None
    if not isinstance(sources, dict) or not all(isinstance(source, str) for source in sources.values()):
        raise NotConfigured('ROTA_SIGNING__KEYS must be a JSON object such as {"2026-11": "file:/run/secrets/key"}')
    required = environment.get("ROTA_SIGNING__REQUIRED", "").lower()
    if required not in ("", "true", "false"):
        raise NotConfigured(f"ROTA_SIGNING__REQUIRED must be true or false, got {required!r}")
    return _signing(sources, environment.get("ROTA_SIGNING__SIGN_WITH", ""), required=required == "true")


def _in_file(environment: Mapping[str, str], folder: Path) -> ClientSettings:
    path = _config_file(environment, folder)
    if path is None:
        return ClientSettings()
    import tomllib  # noqa: PLC0415 - only needed with such a file

    try:
        table = tomllib.loads(_read(path, "ROTA_CONFIG" if environment.get("ROTA_CONFIG") else "the current directory"))
    except tomllib.TOMLDecodeError as error:
        raise NotConfigured(f"{path} is not valid TOML: {error}") from None
    url = _value(path, table, "redis_url", str)
    url_file = _value(path, table, "redis_url_file", str)
    if not url and url_file:
        url = _read_url(path.parent / url_file, f"redis_url_file in {path}")
    limits = _value(path, table, "limits", dict) or {}
    found = ClientSettings(
        url,
        _value(path, table, "namespace", str),
        _value(path, limits, "max_payload_kb", int, "limits."),
        _level(str(path), _value(path, table, "durability", str)),
        redis_credentials=_value(path, table, "redis_credentials", str) or None,
    )
    if signing := _value(path, table, "signing", dict):
        found = found._replace(signing=_signing_in_file(path, signing))
    files = (_value(path, table, name, str) for name in _TLS_FILES)
    ca, cert, key = (file and str(path.parent / file) for file in files)
    return found._replace(redis_tls_ca=ca, redis_tls_cert=cert, redis_tls_key=key)


def _signing_in_file(path: Path, table: Mapping[str, Any]) -> "SigningSettings":
    from rota.tasks.keyring import in_folder  # noqa: PLC0415 - only needed with keys

    sources = _value(path, table, "keys", dict, "signing.") or {}
    keys = {name: in_folder(_value(path, sources, name, str, "signing.keys."), path.parent) for name in sources}
    sign_with = _value(path, table, "sign_with", str, "signing.") or ""
    required = _value(path, table, "required", bool, "signing.") or False
    return _signing(keys, sign_with, required=required)


def _read(path: Path, what: str) -> str:
    try:
        return fleet_settings.read_settings_file(path).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise NotConfigured(f"{what} names {path}, which cannot be read: {reason}") from None


def _read_url(path: Path, what: str) -> str:
    text = _read(path, what)
    if "://" not in text:  # The file may contain just a password. An error message about an invalid URL would show it.
        raise NotConfigured(f"{what} names {path}, which contains no Redis URL")
    return text


def _level(where: str, text: str | None) -> str | None:
    from rota.server.session import level_of  # noqa: PLC0415 - only needed to make a client

    try:
        return level_of(text) if text else None
    except ValueError as error:
        raise NotConfigured(f"{where}: {error}") from None


def _seconds(where: str, text: str | None) -> float:
    try:
        return positive_seconds(float(text), where) if text else fleet_settings.DEFAULT_TIMEOUT_SECONDS
    except ValueError:
        raise NotConfigured(f"{where} must be a number of seconds above 0, got {text!r}") from None


def _value(path: Path, table: Mapping[str, Any], key: str, kind: type[Any], at: str = "") -> Any:
    value = table.get(key)
    if value is not None and not isinstance(value, kind):
        # The value itself is not shown, because it may contain a password.
        got = f"a value of type {type(value).__name__}"
        raise NotConfigured(f"{path}: {at}{key}: expected {_IN_WORDS[kind]}, got {got}")
    return value
