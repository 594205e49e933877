"""The logins that a provider returns: valid values, the times of calls to the provider, and the reports of failed
calls.
"""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rota.client.default_clients import resolve
from rota.server import logins
from rota.server.address import ServerAccess, address_with
from rota.server.connection import Connection
from rota.server.logins import Login, LoginUnknown, ProvidedLogins, ProviderFault, login_of, logins_of, request_login
from rota.server.server_errors import error_of_reply
from rota.tasks.fleet_settings import ClientSettings

KEY = "{shop}:tasks"
NOW = 1000.0
UNIX_NOW = 1_700_000_000.0
SECRET = "hunter2"


@pytest.fixture(name="module")
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that writes the module `shop_auth`. Each test imports this module again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shop_auth", raising=False)

    def write(text: str) -> None:
        (tmp_path / "shop_auth.py").write_text(text)

    return write


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [NOW]
    monkeypatch.setattr(logins, "boottime", lambda: clock[0])
    return clock


RETURNED = {
    "of a user": (("shop", SECRET), Login("shop", SECRET, NOW)),
    "of the default user": ((SECRET,), Login("", SECRET, NOW)),
    "without an end": (("shop", SECRET, None), Login("shop", SECRET, NOW)),
    "that expires": (("shop", SECRET, UNIX_NOW + 900), Login("shop", SECRET, NOW, NOW + 900)),
}


@pytest.mark.parametrize(("returned", "login"), RETURNED.values(), ids=RETURNED)
def test_a_credentials_provider_may_return_a_password(returned: tuple[Any, ...], login: Login) -> None:
    assert login_of(returned, "here", UNIX_NOW, NOW) == login
    assert SECRET not in repr(login)


WRONG = {
    "None": (None, "returned NoneType"),
    "a dict": ({"user": SECRET}, "returned dict"),
    "bytes": (("shop", SECRET.encode()), "returned (str, bytes)"),
    "four things": (("shop", SECRET, 1, 2), "returned (str, str, int, int)"),
    "a text as the time": (("shop", SECRET, "soon"), "returned (str, str, str)"),
    "a time that is no number": (("shop", SECRET, math.nan), "expired nan s ago"),
    "what has expired": (("shop", SECRET, UNIX_NOW - 12), "expired 12 s ago: check the clock of this machine"),
}


@pytest.mark.parametrize(("returned", "message"), WRONG.values(), ids=WRONG)
def test_an_invalid_result_of_a_provider_is_described_but_not_quoted(returned: object, message: str) -> None:
    with pytest.raises(LoginUnknown) as told:
        login_of(returned, "here", UNIX_NOW, NOW)
    assert message in str(told.value)
    assert SECRET not in str(told.value)


FAULTS = {
    "no module": ("", "shop_nothing:login", "ModuleNotFoundError: No module named 'shop_nothing'"),
    "a module that fails": ("1 / 0", "shop_auth:login", "cannot be imported: ZeroDivisionError: division by zero ("),
    "no such name": ("", "shop_auth:login", "module 'shop_auth' has no 'login'"),
    "no function": ("login = 5", "shop_auth:login", "got a value of type int: name a function"),
    "a list": ("def login(): return []", "shop_auth:login", "returned list, but must return (user, password)"),
}


@pytest.mark.parametrize(("text", "provider", "message"), FAULTS.values(), ids=FAULTS)
def test_an_error_about_an_unusable_provider_names_its_setting(
    module: Callable[[str], None], text: str, provider: str, message: str
) -> None:
    module(text)
    with pytest.raises(ProviderFault) as told:
        request_login(provider)
    assert str(told.value).startswith(f"redis_credentials = '{provider}': ")
    assert "importlib" not in str(told.value)
    assert message in str(told.value)


def test_an_exception_of_a_provider_is_reported_without_secrets(module: Callable[[str], None]) -> None:
    module(f"def login(): raise RuntimeError('no answer of https://me:{SECRET}@vault/v1, try later')")
    with pytest.raises(LoginUnknown) as told:
        request_login("shop_auth:login")
    assert "the provider failed: RuntimeError: no answer of *** try later (" in str(told.value)
    assert "shop_auth.py:1)" in str(told.value)
    assert not isinstance(told.value, ProviderFault)
    assert told.value.__suppress_context__


def test_credential_providers_of_redis_py_may_be_a_class_or_an_object(module: Callable[[str], None]) -> None:
    text = "class Own:\n    def get_credentials(self): return 'shop', 'word'\nown = Own()"
    module(text)
    assert [request_login(f"shop_auth:{name}")[:2] for name in ("Own", "own", "own.get_credentials")] == [
        ("shop", "word")
    ] * 3


def test_a_provider_is_called_again_after_four_fifths_of_the_time(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: UNIX_NOW)
    passwords = iter("abc")
    provided = ProvidedLogins(lambda: ("shop", next(passwords), UNIX_NOW + 100))
    assert provided.current().password == "a"
    clock[0] += 79.9
    assert (provided.kept(), provided.current().password) == (provided.current(), "a")
    clock[0] += 0.2
    assert (provided.kept(), provided.current().password) == (None, "b")


def test_a_refused_login_is_replaced_by_one_more_call_of_the_provider() -> None:
    passwords = iter("abc")
    provided = ProvidedLogins(lambda: ("shop", next(passwords)))
    assert provided.current().password == "a"
    assert not provided.refused()  # False, because the provider was called just before
    assert provided.current().password == "b"
    assert provided.current().password == "b"
    assert provided.refused()
    assert provided.current().password == "c"


class Kept:
    """A stand-in for `Logins` that always has the same login until a test changes it."""

    setting = "redis_url_file"

    def __init__(self, login: Login) -> None:
        self.login = login

    def kept(self) -> Login:
        return self.login

    current = kept

    def refused(self) -> bool:
        return False


def test_a_connection_is_replaced_when_its_password_expires_soon(clock: list[float]) -> None:
    login = Login("shop", "word", NOW, NOW + 100)
    kept = Kept(login)
    renewal = address_with("redis://here", ServerAccess(logins=kept), KEY).renewal_of(login)
    assert renewal is not None
    kept.login = Login("shop", "next", NOW + 80, NOW + 180)
    due = []
    for seconds in (89, 91):
        clock[0] = NOW + seconds
        due.append(renewal.is_due)
    kept.login = login  # as if the provider had failed, so that a new connection would get the same login
    assert [*due, renewal.is_due] == [False, True, False]


def test_a_connection_with_an_unlimited_password_is_never_replaced() -> None:
    logins_without_end = ServerAccess(logins=Kept(Login("shop", "word")))
    assert address_with("redis://here", logins_without_end, KEY).renewal_of(Login("shop", "word")) is None
    assert address_with("redis://here", ServerAccess(), KEY).renewal_of(Login("", "")) is None
    assert not Connection.__new__(Connection).is_to_renew


def test_a_valid_password_is_kept_if_the_provider_fails(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: UNIX_NOW)
    answers: list[tuple[object, ...]] = [("shop", "word", UNIX_NOW + 100)]
    provided = ProvidedLogins(answers.pop)
    provided.current()
    clock[0] += 90
    assert provided.current()[:2] == ("shop", "word")
    # The provider fails, so the old login is used for most of its remaining time.
    assert provided.kept() == provided.current()
    clock[0] += 11
    with pytest.raises(LoginUnknown, match="IndexError"):
        provided.current()


def test_only_a_login_that_redis_refused_is_replaced() -> None:
    provided = logins_of(lambda: ("shop", "word"))
    address = address_with("redis://here", ServerAccess(logins=provided), KEY)
    address.login()
    address.login()
    assert not address.has_other_login(error_of_reply("NOPERM no"))
    assert address.has_other_login(error_of_reply("WRONGPASS no"))
    assert not address_with("redis://here", ServerAccess(), KEY).has_other_login(error_of_reply("WRONGPASS no"))


def test_a_url_with_a_password_and_a_provider_are_refused() -> None:
    access = ServerAccess(logins=logins_of("shop:login"))
    with pytest.raises(ValueError, match=r"redis://:\*\*\*@here' contains a user or a password") as told:
        address_with(f"redis://:{SECRET}@here", access, KEY)
    assert SECRET not in str(told.value)


def test_an_invalid_credentials_provider_is_refused() -> None:
    assert logins_of("") is logins_of(None) is None
    with pytest.raises(TypeError, match="redis_credentials: expected a function, an object with get_credentials"):
        logins_of(("shop", SECRET))


def test_the_default_client_uses_the_provider_of_the_fleet(tmp_path: Path) -> None:
    (tmp_path / "rota.toml").write_text('redis_url = "rediss://one"\nredis_credentials = "shop:file"\n')
    assert resolve(ClientSettings(), {}, tmp_path).redis_credentials == "shop:file"
    environment = {"ROTA_REDIS_URL": "redis://two", "ROTA_REDIS_CREDENTIALS": "shop:environment"}
    assert resolve(ClientSettings(), environment, tmp_path).redis_credentials == "shop:environment"
    del environment["ROTA_REDIS_CREDENTIALS"]
    assert resolve(ClientSettings(), environment, tmp_path).redis_credentials == "shop:file"


def test_a_url_given_by_the_application_is_not_combined_with_a_provider(tmp_path: Path) -> None:
    (tmp_path / "rota.toml").write_text('redis_credentials = "shop:file"\n')
    named = ClientSettings(redis_url="redis://three")
    assert resolve(named, {"ROTA_REDIS_CREDENTIALS": "shop:environment"}, tmp_path).redis_credentials is None
    assert resolve(ClientSettings(redis=object()), {}, tmp_path).redis_credentials is None
