"""No secret from a file or from the environment is shown, even if the URL that contains it is mistyped or in the wrong
place.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.display_text import HIDDEN, redact
from rota.server.address import parse_address
from rota_supervisor.config.errors import ConfigError
from rota_supervisor.config.loader import Sources, as_toml, load_config

SECRET = "S3cr-et"

MISTYPED = {
    "redis://u:S3cr-et@h:6379/0": "redis://u:***@h:6379/0",
    "redis://:S3cr-et@h": "redis://:***@h",
    "redis://S3cr-et@h": "redis://***@h",
    "redis://S3cr-et:@h": "redis://***@h",
    "redis://u:S3cr-et": "redis://u:***",
    "redis://u:63S3cr-et": "redis://u:***",
    "redis://u:S3cr-et/0": "redis://u:***",
    "redis://u:x@S3cr-et@h": "redis://u:***@h",
    "redis://u:x/S3cr-et@h": "redis://***",
    "redis://u:x?S3cr-et@h": "redis://***",
    "redis://u:x#S3cr-et@h": "redis://***",
    "redis://u:S3cr-et@h:port": "redis://u:***@h:***",
    "redis://u:S3cr-et@[::1": "redis://u:***@***",
    "redis://h:6379/S3cr-et": "redis://h:6379/***",
    "redis://h:6379/3S3cr-et": "redis://h:6379/***",
    "redis://h/0/S3cr-et": "redis://h/***",
    "redis://h/0?S3cr-et": "redis://h/0?***",
    "redis://h/0?db=S3cr-et": "redis://h/0?db=***",
    "redis://h/0?db=1S3cr-et": "redis://h/0?db=***",
    "redis://h/0?db=1&S3cr-et": "redis://h/0?db=1&***",
    "redis://h/0?db=1&password=S3cr-et": "redis://h/0?db=1&password=***",
    "redis://h/0?password=S3cr-et": "redis://h/0?password=***",
    "redis://h/0?passwordS3cr-et": "redis://h/0?***",
    "redis://h/0?socket_S3cr-et=3": "redis://h/0?***",
    "redis://h/0?auth=S3cr-et": "redis://h/0?***",
    "redis://h/0#S3cr-et": "redis://h/0***",
    "redis://h 0 S3cr-et": "redis://***",
    "redis:/u:S3cr-et@h": "***",
    "redis//u:S3cr-et@h": "***",
    "redis:u:S3cr-et@h": "***",
    "redis;//u:S3cr-et@h": "***",
    " redis://u:S3cr-et@h": "***",
    '"redis://u:S3cr-et@h"': "***",
    "u:S3cr-et@h:6379": "***",
    "u:S3cr-et": "***",
    ":S3cr-et@h": "***",
    "S3cr-et": "***",
    "localhost:S3cr-et": "***",
    "localhost:6379/S3cr-et": "localhost:6379***",
    "redis:S3cr-et": "redis:***",
    "redis:/S3cr-et": "redis:/***",
    "redis//localhost:6S3cr-et": "redis//***",
    "http://u:S3cr-et@h": "http://u:***@***",
    "http://h/S3cr-et": "http://***",
    "unix:///run/r@1/r.sock?password=S3cr-et": "unix:///run/r@1/r.sock?password=***",
    "unix://u:S3cr-et@/run/r.sock": "unix://u:***@/run/r.sock",
    "unix://S3cr-et/run/r.sock": "unix://***",
    "redis+sentinel://u:S3cr-et@a:1,b:2/shop/0": "redis+sentinel://u:***@a:1,b:2/shop/0",
    "redis+sentinel://a:1,b:S3cr-et/shop": "redis+sentinel://a:1,b:***",
    "redis+sentinel://a:1,b:2/shop/S3cr-et": "redis+sentinel://a:1,b:2/shop/***",
    "redis+sentinel://a/shop?sentinel_password=S3cr-et": "redis+sentinel://a/shop?sentinel_password=***",
    "redis+sentinel://a/shop?password=S3cr-et": "redis+sentinel://a/shop?password=***",
    "redis+sentinels://a/S3cr-et": "redis+sentinels://***",
}
SHOWN_WHOLE = [
    "redis://localhost",
    "redis://localhost:6379/0",
    "REDIS://localhost/15",
    "rediss://cache-1.shop.example:6380/3",
    "redis://bücher.example/0",
    "redis://[fe80::1]:6379/0",
    "redis://localhost:6379?db=3",
    "redis:///2",
    "unix:///run/redis/redis.sock?db=2",
    "redis+sentinel://one:26379,two,[::1]:26379/my.master/0",
]
# Keys that take a text, a number, a list or a table, but not a URL. The test sets each of them to a URL, as a user may
# do by mistake.
KEYS = (
    "namespace = {}",
    "redis_ulr = {}",
    "redis_url_file = {}",
    "workers = {}",
    "imports = [{}]",
    "tiers = [[{}]]",
    "tiers = [{}]",
    "tiers = {}",
    "durability = {}",
    "queues = {}",
    "limits = {}",
    "control.socket = {}",
    "control.pid_file = {}",
    "http.listen = {}",
    "log.level = {}",
    "pools.a.queues = [{}]",
    "queues.default.weight = {}",
    "queues.default.rate = {}",
    "queues.default.cap = [{{x = {}}}]",
    "{} = 1",
    "queues.{}.weight = 2",
    "queues.{} = 2",
    "pools.{}.workers = 2",
    "tasks.{}.retries = 2",
    "limits.{} = 2",
)
VARIABLES = ("NAMESPACE", "REDIS_URL_FILE", "WORKERS", "TIERS", "QUEUES", "HTTP__LISTEN", "LIMITS__DRAIN_SECONDS")


@pytest.mark.parametrize(("url", "shown"), MISTYPED.items())
def test_only_the_valid_parts_of_a_mistyped_url_are_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize("url", SHOWN_WHOLE)
def test_a_url_without_a_secret_is_shown_whole(url: str) -> None:
    assert redact(url) == url
    assert parse_address(url)


@given(st.text(min_size=1), st.sampled_from(["{}", "redis://{}", "redis://h/{}", "redis://h/0?{}", "redis://h:1{}"]))
def test_any_text_can_be_redacted_and_redacting_twice_changes_nothing(text: str, pattern: str) -> None:
    shown = redact(pattern.format(text))
    assert redact(shown) in (shown, HIDDEN) or HIDDEN in shown


@pytest.mark.parametrize("url", MISTYPED)
@pytest.mark.parametrize("source", ["file", "environment", "platform", "secret file"])
def test_no_message_about_a_url_quotes_its_secret(tmp_path: Path, url: str, source: str) -> None:
    text, environment = "", {}
    match source:
        case "file":
            text = f"redis_url = {_quoted(url)}"
        case "environment":
            environment = {"ROTA_REDIS_URL": url}
        case "platform":
            environment = {"REDIS_URL": url}
        case _:
            (tmp_path / "secret").write_text(url)
            text = 'redis_url_file = "secret"'
    assert SECRET not in _everything_shown(tmp_path, text, environment)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("url", ["redis://u:S3cr-et@h:6379/0", "redis://:S3cr-et@h", "u:S3cr-et@h:6379"])
def test_an_error_about_a_url_under_a_wrong_key_does_not_quote_it(tmp_path: Path, url: str, key: str) -> None:
    shown = _everything_shown(tmp_path, key.format(_quoted(url)), {})
    assert SECRET not in shown
    assert shown.startswith("fault: ")


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize(
    "url", ["redis://u:S3cr-et@h:6379/0", '["redis://:S3cr-et@h"]', "u:S3cr-et@h:6379", "redis//:S3cr-et@h"]
)
def test_an_error_about_a_url_in_a_wrong_variable_does_not_quote_it(tmp_path: Path, url: str, variable: str) -> None:
    shown = _everything_shown(tmp_path, "", {f"ROTA_{variable}": url})
    assert SECRET not in shown
    assert shown.startswith("fault: ")


@pytest.mark.parametrize("value", ["u:S3cr-et", "S3cr-et@h"])
@pytest.mark.parametrize("key", ["workers", "durability", "http.listen", "queues.default.rate", "limits", "log.format"])
def test_an_error_about_a_value_that_may_be_credentials_does_not_quote_it(tmp_path: Path, key: str, value: str) -> None:
    assert SECRET not in _everything_shown(tmp_path, f"{key} = {_quoted(value)}", {})


@pytest.mark.parametrize("url", ["redis//:S3cr-et@h", "redis:/:S3cr-et@h", "S3cr-et@h", "redis//S3cr-et"])
@pytest.mark.parametrize(
    "text", ["namespace = {}", "tiers = [[{}]]", 'adopt."queue:a".task = {}', "adopt.a.queue = {}"]
)
def test_an_error_about_a_mistyped_url_in_place_of_a_name_does_not_quote_it(
    tmp_path: Path, url: str, text: str
) -> None:
    shown = _everything_shown(tmp_path, text.format(_quoted(url)), {})
    assert (SECRET in shown, shown.startswith("fault: ")) == (False, True), shown


def test_an_error_about_a_url_in_place_of_a_file_path_does_not_quote_it() -> None:
    with pytest.raises(ConfigError) as error:
        load_config(Sources(Path("redis://u:S3cr-et@h:6379/0"), required=True))
    assert str(error.value) == "-c, ROTA_CONFIG: expected the path of a file, got a URL"


def _quoted(text: str) -> str:
    return f"'{text}'"


def _everything_shown(folder: Path, text: str, environment: dict[str, str]) -> str:
    file = folder / "rota.toml"
    file.write_text(text)
    try:
        found = load_config(Sources(file, required=True, environment=environment))
    except ConfigError as error:
        return "\n".join(f"fault: {fault}" for fault in error.faults)
    return "\n".join([*found.warnings, as_toml(found, origins=True)])


@pytest.mark.parametrize(
    "typo", ["localhost", "localhost:6379", "127.0.0.1:6379/0", "redis:/localhost:6379", "redis//localhost"]
)
def test_an_error_about_a_mistyped_url_without_a_secret_quotes_it(typo: str) -> None:
    with pytest.raises(ValueError, match=f"'{typo}' is not a Redis URL: a Redis URL begins with redis://"):
        parse_address(typo)


def test_the_error_about_a_hidden_value_explains_why_it_is_hidden() -> None:
    with pytest.raises(ValueError, match=r"^the value, which is not shown because it may be a password, is not a "):
        parse_address("hunter2")
