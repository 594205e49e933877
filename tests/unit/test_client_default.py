"""The choice of the server for the default client."""

import asyncio
from pathlib import Path

import pytest
import redis
import redis.asyncio

import rota
from rota.client.blocking.client import Client
from rota.client.default_clients import DefaultClient, default_client, resolve
from rota.protocol.signatures import SigningSettings
from rota.server.endpoint import UrlEndpoint
from rota.tasks.fleet_settings import DEFAULT_NAMESPACE, ClientSettings, own_fleet
from rota_supervisor.config.loader import Sources, load_config

NOTHING = ClientSettings()


def url(configured: ClientSettings, environment: dict[str, str], folder: Path) -> str | None:
    return resolve(configured, environment, folder).redis_url


def test_each_client_setting_comes_from_the_first_source_that_has_it(tmp_path: Path) -> None:
    environment = {"REDIS_URL": "redis://fallback"}
    assert url(NOTHING, environment, tmp_path) == "redis://fallback"
    keys = 'redis_url = "redis://file"\nnamespace = "filed"\ndurability = "wait"\n'
    (tmp_path / "rota.toml").write_text(f"{keys}[limits]\nmax_payload_kb = 9")
    assert url(NOTHING, environment, tmp_path) == "redis://file"
    environment["ROTA_REDIS_URL"] = "redis://environment"
    found = resolve(NOTHING, environment, tmp_path)
    assert found == ClientSettings("redis://environment", "filed", 9, "wait", 5.0)
    environment |= {"ROTA_NAMESPACE": "named", "ROTA_LIMITS__MAX_PAYLOAD_KB": "7", "ROTA_DURABILITY": "waitaof"}
    environment["ROTA_TIMEOUT_SECONDS"] = "7.5"
    found = resolve(ClientSettings(redis_url="redis://configured"), environment, tmp_path)
    assert found == ClientSettings("redis://configured", "named", 7, "waitaof", 7.5)
    assert resolve(ClientSettings(durability="none"), environment, tmp_path).durability == "none"
    assert resolve(ClientSettings(timeout_seconds=2), environment, tmp_path).timeout_seconds == 2


def test_settings_sources_that_would_be_overridden_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "rota.toml").write_text("this is not TOML")
    broken = {"ROTA_REDIS_URL_FILE": "/nowhere/secret", "ROTA_LIMITS__MAX_PAYLOAD_KB": "big"}
    broken["ROTA_TIMEOUT_SECONDS"] = "long"
    told = ClientSettings("redis://configured", "shop", 256, "none", 2.0, signing=SigningSettings())
    assert resolve(told, broken, tmp_path) == told
    environment = {"ROTA_REDIS_URL": "redis://e", "ROTA_NAMESPACE": "e", "ROTA_LIMITS__MAX_PAYLOAD_KB": "7"}
    environment |= {"ROTA_DURABILITY": "wait", "ROTA_TIMEOUT_SECONDS": "1.5", "ROTA_SIGNING__KEYS": "{}"}
    found = ClientSettings("redis://e", "e", 7, "wait", 1.5, signing=SigningSettings())
    assert resolve(NOTHING, environment, tmp_path) == found


@pytest.mark.parametrize("content", ["", 'namespace = "shop"', "[http]\nlisten = ''"])
def test_a_rota_toml_without_a_url_selects_the_default_server_of_the_fleet(tmp_path: Path, content: str) -> None:
    assert url(NOTHING, {}, tmp_path) is None
    (tmp_path / "rota.toml").write_text(content)
    of_fleet = load_config(Sources(tmp_path / "rota.toml")).config
    found = resolve(NOTHING, {}, tmp_path)
    assert (found.redis_url, found.namespace or DEFAULT_NAMESPACE) == (of_fleet.redis_url, of_fleet.namespace)
    assert resolve(NOTHING, {"ROTA_CONFIG": str(tmp_path / "rota.toml")}, Path("/")).redis_url == of_fleet.redis_url
    assert url(NOTHING, {"REDIS_URL": "redis://platform"}, tmp_path) == "redis://platform"


def test_rota_config_selects_another_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "rota.toml").write_text('redis_url = "redis://here"')
    other = tmp_path / "other.toml"
    other.write_text('redis_url = "redis://other"')
    assert url(NOTHING, {"ROTA_CONFIG": str(other)}, tmp_path) == "redis://other"
    assert url(NOTHING, {"ROTA_CONFIG": "other.toml"}, tmp_path) == "redis://other"


def test_the_redis_url_may_be_read_from_a_separate_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("redis://secret\n")
    (tmp_path / "rota.toml").write_text('redis_url_file = "secret"')
    assert url(NOTHING, {}, tmp_path) == "redis://secret"
    assert url(NOTHING, {"ROTA_REDIS_URL_FILE": str(tmp_path / "secret")}, Path("/")) == "redis://secret"


def test_an_error_about_a_url_file_names_the_file_without_quoting_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    (tmp_path / "rota.toml").write_text('redis_url_file = "secret"')
    with pytest.raises(rota.NotConfigured, match=r"secret, which contains no Redis URL$"):
        resolve(NOTHING, {}, tmp_path)


@pytest.mark.parametrize(
    ("environment", "toml", "what"),
    [
        ({"ROTA_CONFIG": "gone.toml"}, "", "ROTA_CONFIG names"),
        ({"ROTA_REDIS_URL_FILE": "/nowhere/secret"}, "", "ROTA_REDIS_URL_FILE names /nowhere/secret"),
        ({"ROTA_LIMITS__MAX_PAYLOAD_KB": "big"}, "", "must be a whole number, got 'big'"),
        ({"ROTA_TIMEOUT_SECONDS": "0"}, "", "ROTA_TIMEOUT_SECONDS must be a number of seconds above 0, got '0'"),
        ({"ROTA_DURABILITY": "much"}, "", 'ROTA_DURABILITY: durability: expected one of "none", "wait", "waitaof"'),
        ({}, 'durability = "much"', "rota.toml: durability: expected one of"),
        ({}, "redis_url = ", "is not valid TOML"),
        ({}, "redis_url = 7", "rota.toml: redis_url: expected text, got a value of type int"),
        ({}, "redis_url = ['redis://:pw@h']", "rota.toml: redis_url: expected text, got a value of type list"),
        ({}, "limits.max_payload_kb = '1'", "limits.max_payload_kb: expected a whole number, got a value of type str"),
        ({}, "limits = 5", "rota.toml: limits: expected a table, got a value of type int"),
        ({}, 'redis_url_file = "gone"', "/gone, which cannot be read: No such file or directory"),
    ],
)
def test_an_error_names_the_settings_source_that_is_unusable(
    tmp_path: Path, environment: dict[str, str], toml: str, what: str
) -> None:
    (tmp_path / "rota.toml").write_text(toml)
    with pytest.raises(rota.NotConfigured) as caught:
        resolve(NOTHING, environment, tmp_path)
    assert what in str(caught.value)


@pytest.fixture(name="bare")
def _bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rota.client.default_clients._default", DefaultClient())
    for name in ("ROTA_REDIS_URL", "ROTA_REDIS_URL_FILE", "ROTA_NAMESPACE", "ROTA_CONFIG", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("bare")
class TestDefaultClient:
    def test_without_configuration_the_error_names_the_folder_and_every_option(self) -> None:
        with pytest.raises(rota.NotConfigured) as caught:
            rota.enqueue_many([])
        for way in ("rota.configure", "ROTA_REDIS_URL", "ROTA_CONFIG", "rota.toml", "REDIS_URL", str(Path.cwd())):
            assert way in str(caught.value)

    def test_the_default_client_is_created_again_after_configure(self) -> None:
        rota.configure(redis_url="redis://one")
        first = default_client()
        assert default_client() is first
        assert first.namespace == "rota"
        rota.configure(namespace="shop")
        second = default_client()
        assert second is not first
        assert second.namespace == "shop"

    def test_in_a_worker_the_default_client_uses_the_fleet_unless_configured(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ROTA_REDIS_URL", "redis://environment")
        monkeypatch.setenv("ROTA_NAMESPACE", "environment")
        monkeypatch.setattr(own_fleet, "settings", ClientSettings("redis://fleet", "fleet", 256, "none"))
        assert default_client().namespace == "fleet"
        rota.configure(namespace="shop")
        assert default_client().namespace == "shop"

    @pytest.mark.parametrize(
        ("configured", "logs_in"), [("redis://fleet", True), ("redis://other", False), ("redis://me:mine@fleet", False)]
    )
    def test_the_password_of_the_fleet_goes_to_no_other_server(
        self, monkeypatch: pytest.MonkeyPatch, configured: str, logs_in: bool
    ) -> None:
        fleet = ClientSettings("redis://fleet", "fleet", redis_credentials=lambda: ("shop", "of-the-fleet"))
        monkeypatch.setattr(own_fleet, "settings", fleet)
        rota.configure(redis_url=configured)
        endpoint = default_client()._driver.endpoint
        assert isinstance(endpoint, UrlEndpoint)
        assert (endpoint.credentials_in == "redis_credentials") == logs_in

    def test_an_invalid_namespace_is_refused(self) -> None:
        with pytest.raises(rota.InvalidName, match=r"namespace '\{shop\}' is not valid"):
            Client("redis://localhost", namespace="{shop}")
        rota.configure(redis_url="redis://one", namespace="a b")
        with pytest.raises(rota.InvalidName):
            default_client()


def test_a_redis_client_of_the_application_overrides_every_url(tmp_path: Path) -> None:
    own = redis.Redis()
    found = resolve(ClientSettings(redis=own), {"ROTA_REDIS_URL": "redis://e", "ROTA_REDIS_TLS_CA": "ca"}, tmp_path)
    assert (found.redis, found.redis_url, found.redis_tls_ca) == (own, None, None)
    after = ClientSettings(redis_url="redis://later").or_else(ClientSettings(redis=own, namespace="shop"))
    assert (after.redis, after.redis_url, after.namespace) == (None, "redis://later", "shop")


@pytest.mark.usefixtures("bare")
def test_blocking_and_asyncio_default_clients_use_separate_redis_clients() -> None:
    rota.configure(redis=redis.Redis(port=1), namespace="shop")
    assert default_client()._driver.endpoint.place == "localhost:1"

    async def place() -> str:
        return rota.default_async_client()._driver.endpoint.place

    with pytest.raises(rota.NotConfigured, match="that blocks, but this call needs one for asyncio"):
        asyncio.run(place())
    rota.configure(redis=redis.asyncio.Redis(port=2))
    assert (default_client()._driver.endpoint.place, asyncio.run(place())) == ("localhost:1", "localhost:2")
    rota.configure(redis_url="redis://127.0.0.1:3")
    assert (default_client()._driver.endpoint.place, asyncio.run(place())) == ("127.0.0.1:3", "127.0.0.1:3")
    assert default_client().namespace == "shop"


@pytest.mark.usefixtures("bare")
def test_a_redis_client_and_a_url_together_are_refused() -> None:
    own = redis.Redis()
    with pytest.raises(TypeError, match="either redis or redis_url"):
        rota.configure(redis=own, redis_url="redis://here")
    with pytest.raises(TypeError, match="either redis or redis_url"):
        Client("redis://here", redis=own)
    with pytest.raises(TypeError, match="either redis or redis_tls_ca"):
        Client(redis=own, redis_tls_ca="ca.pem")
    with pytest.raises(TypeError, match="pass redis_url=, or your own Redis client"):
        Client()


def test_an_unusable_redis_client_is_refused_with_advice() -> None:
    with pytest.raises(TypeError, match="to use your own Redis client, pass redis="):
        Client(redis.Redis())  # type: ignore[arg-type]  # that is the claim
    with pytest.raises(TypeError, match="expected a Redis client, got str: pass a Redis client"):
        Client(redis="redis://here")  # type: ignore[arg-type]  # likewise
    with pytest.raises(TypeError, match=r"use rota\.AsyncClient for this one"):
        Client(redis=redis.asyncio.Redis())
    with pytest.raises(TypeError, match=r"such as redis\.asyncio\.Redis, but this one blocks"):
        rota.AsyncClient(redis=redis.Redis())
