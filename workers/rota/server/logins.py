"""Logins: the user and the password with which a connection authenticates. This module is for logins that can change
while connections are in use.

They come from a provider in the application, or from the URL of a fleet, which a reload can change. A password from a
provider may expire. The provider is called again before that, and after the server has refused a login.
"""

import contextlib
import importlib
import json
import math
import operator
import os
import struct
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from rota.display_text import HIDDEN, may_hold_credentials
from rota.server.server_errors import REASON_CREDENTIALS, ConnectionLost

SETTING: Final = "redis_credentials"
URL_SETTING: Final = "redis_url"
# After the first of these shares of a password's lifetime, the provider is called again, which leaves time in case the
# provider fails for a while. After the second share, connections are replaced. The interval between the two leaves time
# for the master, which checks twice a second and passes the new login to its children.
_REQUESTED_AFTER: Final = 0.8
_RENEWED_AFTER: Final = 0.9
_HEAD: Final = struct.Struct("<II")  # length and checksum of the login in shared memory
_MAX_BYTES: Final = 1 << 17
_PIPE_BYTES: Final = 1 << 16
# Prefixes of the names of files that do not belong to the application.
_NOT_THEIRS: Final = (__file__, str(importlib.__file__), "<frozen ")
_WHAT_TO_RETURN: Final = "return (user, password), or (user, password, expiry as Unix time)"


@runtime_checkable
class HasCredentials(Protocol):
    """A provider with the interface of redis-py's providers."""

    def get_credentials(self) -> tuple[Any, ...]:
        """Return the user and the password, followed by their expiry time if it is known."""


CredentialProvider = str | HasCredentials | Callable[[], tuple[Any, ...]]
"""A provider of user and password, or its import path, for example "module:name"."""


class LoginUnknown(ConnectionLost):
    """Raised if the provider failed, so that no user and password are known."""

    def __init__(self, text: str) -> None:
        super().__init__(text, REASON_CREDENTIALS)


class ProviderFault(LoginUnknown):
    """Raised if no login is possible until the provider or the setting that names it is changed."""


class Login(NamedTuple):
    """A user and a password. `since` is the time at which the process received them, and `until` the time at which they
    expire, both in seconds of CLOCK_BOOTTIME."""

    user: str
    password: str
    since: float = 0.0
    until: float = math.inf

    def __repr__(self) -> str:  # the password must not appear in a log
        return f"Login(user={self.user!r}, until={self.until!r})"

    @property
    def request_at(self) -> float:
        """The time at which the provider should be called for another login."""
        return self.since + _REQUESTED_AFTER * (self.until - self.since)

    @property
    def renew_at(self) -> float:
        """The time at which a connection that was made with this login should be replaced."""
        return self.since + _RENEWED_AFTER * (self.until - self.since)


@runtime_checkable
class Logins(Protocol):
    """A source of logins for connections."""

    setting: str  # the setting that determines the logins, for error messages

    def kept(self) -> Login | None:
        """Return the login if this process has one, without waiting. Otherwise return None."""
        ...

    def current(self) -> Login:
        """Return the login. This may block. Raises LoginUnknown if there is no login."""
        ...

    def refused(self) -> bool:
        """Record that the server refused the login. Returns whether the caller should try again at once, because
        `current` may now return another login."""
        ...


class Renewal(NamedTuple):
    """Decides when a connection is replaced because its login expires. `login` is the login with which it was made."""

    login: Login
    logins: Logins

    @property
    def is_due(self) -> bool:
        """Whether to replace the connection now, because its login expires soon and another login is available."""
        return boottime() >= self.login.renew_at and self.logins.kept() != self.login


def boottime() -> float:
    """Return the time of CLOCK_BOOTTIME, in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ProvidedLogins:
    """The logins from a provider that this process calls itself."""

    setting = SETTING

    def __init__(self, provider: CredentialProvider) -> None:
        self._provider = provider
        self._login: Login | None = None
        self._is_new = False

    def kept(self) -> Login | None:
        """Return the login that the provider returned last, or None if it is time to call the provider again."""
        login = self._login
        return login if login is not None and boottime() < login.request_at else None

    def current(self) -> Login:
        """Return the login. This calls the provider if necessary. Raises LoginUnknown if the provider fails and the
        last login has expired."""
        login = self.kept()
        last = self._login
        self._is_new = login is None
        try:
            login = login or request_login(self._provider)
        except LoginUnknown:
            now = boottime()
            if last is None or now >= last.until:
                raise
            # Postpone the next call of the provider by a part of the rest of the password's lifetime.
            login = last._replace(since=now)
        self._login = login
        return login

    def refused(self) -> bool:
        """Forget the login that the server refused. Returns whether another attempt to connect is useful. It is not
        useful if the provider was called just before."""
        self._login = None
        return not self._is_new


class SharedLogins:
    """The login of a fleet, in memory that its master writes and its children read. If a reader finds that a write is
    in progress, it reads again. Through a pipe, the children notify the master if the server refuses the login. A task
    can change the flags of every descriptor that its worker has, so the master alone has the end that it reads."""

    def __init__(self, memory: int, bell: int, refusals: int = -1) -> None:
        self.memory = memory
        self.bell = bell  # the end of the pipe into which children write
        self.setting = SETTING
        self.to_read = memory  # a descriptor for the children, which lets them read but not write
        self._refusals = refusals  # the other end of the pipe, which only the master has

    @classmethod
    def create(cls, login: Login) -> "SharedLogins":
        """Create the memory, with a login in it, and the pipe."""
        refusals, bell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        made = cls(os.memfd_create("rota-login", os.MFD_CLOEXEC), bell, refusals)
        made.put(login)
        made.to_read = os.open(f"/proc/self/fd/{made.memory}", os.O_RDONLY | os.O_CLOEXEC)
        return made

    def put(self, login: Login) -> None:
        """Replace the login. Only the master calls this."""
        body = json.dumps(login).encode()
        os.pwrite(self.memory, _HEAD.pack(len(body), zlib.crc32(body)) + body, 0)

    def current(self) -> Login:
        """Return the login that the master wrote last."""
        while True:
            raw = os.pread(self.memory, _MAX_BYTES, 0)
            length, checksum = _HEAD.unpack_from(raw)
            body = raw[_HEAD.size : _HEAD.size + length]
            if zlib.crc32(body) == checksum:
                return Login(*json.loads(body))

    kept = current

    def refused(self) -> bool:
        """Notify the master that the server refused this login, so that the master reads its source again. Always
        returns False, because the master has no other login yet."""
        with contextlib.suppress(BlockingIOError):  # if the pipe is full, the master has been notified often enough
            os.write(self.bell, b"\0")
        return False

    def take_refusals(self) -> bool:
        """Whether the server has refused the login since this was last called. Only the master calls this."""
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self._refusals, _PIPE_BYTES))
        return False


class FleetLogin:
    """A holder of the login of the fleet that this process belongs to. The login is None if the process belongs to no
    fleet, or if the fleet has neither a provider nor a user or password in its URL."""

    def __init__(self) -> None:
        self.shared: SharedLogins | None = None


fleet_login: Final = FleetLogin()
"""The login of the fleet, which the master and its children set before they connect."""


def logins_of(provider: Any) -> Logins | None:
    """Return the source of logins for a provider, or None if there is no provider. Raises TypeError if the object is
    not a provider."""
    if not provider:
        return None
    if isinstance(provider, Logins):
        return provider
    if not isinstance(provider, str | HasCredentials) and not callable(provider):
        wanted = 'a function, an object with get_credentials(), or the import path of one as "module:name"'
        raise TypeError(f"{SETTING}: expected {wanted}, got {type(provider).__name__}")
    return ProvidedLogins(provider)


# Calling a provider


def request_login(provider: CredentialProvider) -> Login:
    """Call a provider and return its login. Raises ProviderFault if the provider cannot be imported, is not a provider,
    or does not return a login, and LoginUnknown if the call fails or the returned password has expired."""
    named = f"{SETTING} = {provider!r}" if isinstance(provider, str) else SETTING
    found: Any = _imported(provider, named) if isinstance(provider, str) else provider
    try:
        found = found() if isinstance(found, type) else found
        returned = getattr(found, "get_credentials", found)()
    except Exception as error:  # noqa: BLE001 - the border to the application's code
        # The original error may contain a secret.
        raise LoginUnknown(f"{named}: the provider failed: {_shown_error(error)}") from None
    return login_of(returned, named, time.time(), boottime())


def _imported(provider: str, named: str) -> Any:
    module, _, name = provider.partition(":")
    try:
        imported = _import(module)
    except Exception as error:  # noqa: BLE001 - likewise
        raise ProviderFault(f"{named}: module {module!r} cannot be imported: {_shown_error(error)}") from None
    try:
        found = operator.attrgetter(name)(imported)
    except AttributeError:
        raise ProviderFault(f"{named}: module {module!r} has no {name!r}") from None
    if not (callable(found) or isinstance(found, HasCredentials)):
        kind = type(found).__name__
        raise ProviderFault(
            f"{named}: expected a function, got a value of type {kind}: name a function, or an object "
            "with get_credentials()"
        )
    return found


def _import(module: str) -> ModuleType:
    """Import a module. If the module is not found, also look for it in the current folder, because the `rota.toml` that
    names the module may be there."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        folder = str(Path.cwd())
        if folder in sys.path or not f"{module}.".startswith(f"{error.name}."):
            raise
    sys.path.append(folder)
    return importlib.import_module(module)


def login_of(returned: object, named: str, unix_now: float, now: float) -> Login:
    """Convert `returned`, the object that a provider returned, to a Login. `named` is the setting of the provider, as
    messages show it. `unix_now` and `now` are the current time, in Unix time and by CLOCK_BOOTTIME. Raises
    ProviderFault or LoginUnknown if the login is not valid."""
    match returned:
        case (str(password),):
            return Login("", password, now)
        case (str(user), str(password)) | (str(user), str(password), None):
            return Login(user, password, now)
        case (str(user), str(password), int() | float() as expires_at) if expires_at > unix_now:
            return Login(user, password, now, now + expires_at - unix_now)
        case (str(), str(), int() | float() as expires_at):
            late = f"{unix_now - expires_at:.0f} s ago"
            raise LoginUnknown(
                f"{named}: the provider returned a password that expired {late}: check the clock of this machine"
            )
    kinds = ", ".join(type(each).__name__ for each in returned) if isinstance(returned, tuple) else ""
    shown = f"({kinds})" if kinds else type(returned).__name__
    raise ProviderFault(f"{named}: the provider returned {shown}, but must {_WHAT_TO_RETURN}")


def _shown_error(error: Exception) -> str:
    """Return an error's type, its text and the line of the application that raised it. Words that may contain a secret
    are hidden."""
    words = (HIDDEN if may_hold_credentials(word) else word for word in str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_NOT_THEIRS)]
    place = f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
    return f"{type(error).__name__}: {' '.join(words)}{place}"
