"""The login of a fleet, which can change while the fleet runs. It comes from a provider in the application
(`redis_credentials`), or from the URL of the server.

The master imports no code of the application, so a separate process calls the provider. The login is stored in shared
memory, which all children read when they connect (`rota.server.logins.SharedLogins`).
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rota.child.child_process import boottime_seconds
from rota.durations import Backoff
from rota.server.logins import (
    Login,
    LoginUnknown,
    ProviderFault,
    SharedLogins,
    fleet_login,
)
from rota.tasks.fleet_settings import read_settings_file
from rota.telemetry import log, log_events
from rota.url_logins import login_in, without_login
from rota_supervisor.code_probe import fetch_login
from rota_supervisor.config.errors import Fault
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.background import beside
from rota_supervisor.server_check import refusal_of_login

CHECK_SECONDS: Final = 0.5
FIRST_PAUSE_SECONDS: Final = 1.0
MOST_PAUSE_SECONDS: Final = 30.0


@dataclass(slots=True)
class RenewalPlan:
    """The plan for the next reads of the login's source, which is a provider or a URL.

    The source is read before its login expires, after the server has refused the login, and when the configuration sets
    another source. If a read does not help, for example because the server refuses the new login too, the source is
    read again after pauses of growing length.
    """

    login: Login
    source: str  # the import path of the provider, or the URL
    is_refused: bool = False
    _last_read: str = ""
    _backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS))
    _not_before: float = 0.0

    def is_due(self, source: str, now: float) -> bool:
        """Whether to read the configured source now."""
        is_wanted = self.is_refused or source != self.source or now >= self.login.request_at
        if not is_wanted and now >= self._not_before:
            self._backoff.reset()
        is_new = source not in (self.source, self._last_read)  # the pauses of another source do not apply to it
        return is_wanted and (is_new or now >= self._not_before)

    def is_another(self, login: Login) -> bool:
        """Whether this login differs from the last one that was read.

        The source can give the same login again. This happens if a child reports only after a renewal that the server
        has refused the login from before the renewal. The source is then read without need.
        """
        return login._replace(since=self.login.since) != self.login

    def was_read(self, source: str, login: Login | None, now: float) -> None:
        """Update the plan after a read of the source. `login` is None if the source gave no login."""
        self._last_read = source
        self._not_before = now + self._backoff.next_seconds()
        if login is not None:
            self.login = login
            self.source = source
            self.is_refused = False


class LoginKeeper:
    """The background work that keeps the login in shared memory valid."""

    def __init__(self, state: MasterState, shared: SharedLogins, import_folder: str) -> None:
        """`import_folder`: the folder from which a provider is imported."""
        self._state = state
        self._shared = shared
        self._folder = import_folder
        self._plan = RenewalPlan(shared.current(), _source_of(state.config))

    async def keep(self) -> None:
        """Check twice a second, forever, whether to read the source of the login."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self._plan.is_refused |= self._shared.take_refusals()
            if self._plan.is_due(_source_of(self._state.config), boottime_seconds()):
                await self._renew(self._state.config)

    async def _renew(self, config: Config) -> None:
        login = None
        try:
            login = await beside(lambda: self._read(config))
        except (LoginUnknown, OSError) as error:
            log.logger().error(log_events.LOGIN_FAILED, error=str(error))
        else:
            self._shared.put(login)
            self._shared.take_refusals()  # Discard the refusals that children have reported for the previous login.
            if self._plan.is_another(login):
                log.logger().info(log_events.LOGIN_RENEWED, user=login.user)
        self._plan.was_read(_source_of(config), login, boottime_seconds())

    def _read(self, config: Config) -> Login:
        if config.redis_credentials:
            return fetch_login(config.redis_credentials, self._folder)
        return _login_of_url(config, Path(self._state.surroundings.file).parent)

    def would_change(self, config: Config) -> bool:
        """Whether a reload of this configuration would replace the provider of the login by another provider, or the
        login in the URL by another login for the same server."""
        now = self._state.config
        if now.redis_credentials or config.redis_credentials:
            return bool(now.redis_credentials) and config.redis_credentials not in ("", now.redis_credentials)
        is_same_server = without_login(config.redis_url) == without_login(now.redis_url)
        return is_same_server and login_in(config.redis_url) not in (None, login_in(now.redis_url))

    async def fault_of(self, config: Config) -> Fault | None:
        """Try the login that a reload would set. Return what is wrong with it, or None."""
        if not config.redis_credentials:
            refusal = await beside(lambda: refusal_of_login(config))
            return Fault("redis_url", refusal) if refusal else None
        try:
            await beside(lambda: self._read(config))
        except (LoginUnknown, OSError) as error:
            return Fault("redis_credentials", str(error))
        return None


def share_first_login(config: Config, folder: str) -> None:
    """Share the login with the children, if the configuration has one. Raises Failure if the provider fails.

    `folder`: the folder from which the provider is imported.
    """
    if login := _first_login(config, folder):
        fleet_login.shared = SharedLogins.create(login)


def _first_login(config: Config, folder: str) -> Login | None:
    if not config.redis_credentials:
        found = login_in(config.redis_url)
        return None if found is None else Login(*found)
    try:
        return fetch_login(config.redis_credentials, folder)
    except LoginUnknown as error:
        code = ExitCode.CONFIG if isinstance(error, ProviderFault) else ExitCode.UNREACHABLE
        raise Failure(code, str(error)) from None


def _source_of(config: Config) -> str:
    return config.redis_credentials or config.redis_url


def _login_of_url(config: Config, folder: Path) -> Login:
    """Return the login in the URL. If the URL comes from a file, the file is read again. Raises LoginUnknown and
    OSError."""
    url = config.redis_url
    if config.redis_url_file:
        url = read_settings_file(folder / config.redis_url_file).decode(errors="replace").strip()
    found = login_in(url)
    if found is None or without_login(url) != without_login(config.redis_url):
        raise LoginUnknown(
            "redis_url_file does not contain the server of this fleet with a user and a password: correct the file, or "
            "stop the master and start it again to use another server"
        )
    return Login(*found)
