"""The Redis login of a fleet that gets its password from a provider, a function of the application
(`redis_credentials`).

The master imports no code of the application, so a separate process calls the provider. The login is stored in shared
memory, which all children read when they connect (`rota.server.logins.SharedLogins`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rota.child.child_process import boottime_seconds
from rota.durations import Backoff
from rota.server.logins import Login, LoginUnknown, ProviderFault, SharedLogins, fleet_login
from rota.telemetry import log, log_events
from rota_supervisor.code_probe import fetch_login
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.background import beside

CHECK_SECONDS: Final = 0.5
FIRST_PAUSE_SECONDS: Final = 1.0
MOST_PAUSE_SECONDS: Final = 30.0


@dataclass(slots=True)
class RenewalPlan:
    """A plan that determines when to call the provider next.

    A provider is called before its login expires, after the server has refused the login, and when the configuration
    names another provider. If a call does not remove the reason for it, the provider is called again at growing
    intervals.
    """

    login: Login
    provider: str
    is_refused: bool = False
    _backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS))
    _not_before: float = 0.0

    def is_due(self, provider: str, now: float) -> bool:
        """Whether to call the configured provider now."""
        is_wanted = self.is_refused or provider != self.provider or now >= self.login.request_at
        if not is_wanted and now >= self._not_before:
            self._backoff.reset()
        return is_wanted and now >= self._not_before

    def is_another(self, login: Login) -> bool:
        """Whether this login differs from the last one.

        The two logins can be equal: a child may report late that the server refused an earlier login, and then the
        provider is called unnecessarily.
        """
        return login._replace(since=self.login.since) != self.login

    def provider_called(self, provider: str, login: Login | None, now: float) -> None:
        """Update the plan after a call of the provider. `login` is None if the call failed."""
        self._not_before = now + self._backoff.next_seconds()
        if login is not None:
            self.login = login
            self.provider = provider
            self.is_refused = False


class LoginKeeper:
    """The background work that keeps the login in shared memory valid."""

    def __init__(self, state: MasterState, shared: SharedLogins, fetch: Callable[[str], Login]) -> None:
        """`fetch` calls a provider and returns the login. This call can block, and it can raise LoginUnknown."""
        self._state = state
        self._shared = shared
        self._fetch = fetch
        self._plan = RenewalPlan(shared.current(), state.config.redis_credentials)

    async def keep(self) -> None:
        """Check twice a second whether a call of the provider is due, and make the call. Runs forever."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self._plan.is_refused |= self._shared.take_refusals()
            provider = self._state.config.redis_credentials
            if self._plan.is_due(provider, boottime_seconds()):
                await self._renew(provider)

    async def _renew(self, provider: str) -> None:
        login = None
        try:
            login = await beside(lambda: self._fetch(provider))
        except (LoginUnknown, OSError) as error:
            log.logger().error(log_events.LOGIN_FAILED, error=str(error))
        else:
            self._shared.put(login)
            self._shared.take_refusals()  # Discard the refusals that children have reported for the previous login.
            if self._plan.is_another(login):
                log.logger().info(log_events.LOGIN_RENEWED, user=login.user)
        self._plan.provider_called(provider, login, boottime_seconds())

    async def fault_of(self, provider: str) -> str:
        """Call the provider of a configuration that is being loaded. Return the provider's error, or "" if it returns a
        login."""
        try:
            await beside(lambda: self._fetch(provider))
        except (LoginUnknown, OSError) as error:
            return str(error)
        return ""


def fetch_first_login(config: Config, folder: str) -> None:
    """Fetch the first login from the provider, if there is one, and share it with the children. Raises Failure."""
    if not config.redis_credentials:
        return
    try:
        login = fetch_login(config.redis_credentials, folder)
    except LoginUnknown as error:
        code = ExitCode.CONFIG if isinstance(error, ProviderFault) else ExitCode.UNREACHABLE
        raise Failure(code, str(error)) from None
    fleet_login.shared = SharedLogins.create(login)
