"""The parsing of Redis URLs, and the hiding of secrets in them."""

import re
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.display_text import redact
from rota.server.address import DEFAULT_PORT, Address, Cluster, Sentinels, Topology, parse_address

KEY = "{shop}:tasks"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost", Address(host="localhost")),
        ("redis://", Address()),
        ("redis://10.0.0.5:6380/3", Address(host="10.0.0.5", port=6380, database=3)),
        ("redis://localhost?db=4", Address(host="localhost", database=4)),
        ("redis://localhost/2?db=4", Address(host="localhost", database=4)),
        ("redis://localhost/2?db=", Address(host="localhost", database=2)),
        ("rediss://user:pw@shop.example", Address(host="shop.example", tls=True, username="user", password="pw")),
        ("redis://:p%40ss%2Fword@localhost", Address(host="localhost", password="p@ss/word")),
        ("redis://[::1]:7000/0", Address(host="::1", port=7000)),
        ("unix:///run/redis/server.sock", Address(path="/run/redis/server.sock")),
        ("unix:///run/my%20redis.sock?db=5", Address(path="/run/my redis.sock", database=5)),
    ],
)
def test_a_url_is_parsed_into_an_address(url: str, expected: Address) -> None:
    assert parse_address(url) == expected


def address_behind(sentinels: Sentinels, **more: Any) -> Address:
    return Address(host="", port=0, sentinels=sentinels, **more)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis+sentinel://one/shop", address_behind(Sentinels("shop", (("one", 26379),)))),
        (
            "redis+sentinel://me:p%40ss@one:1,two,[::1]:3/shop/2",
            address_behind(
                Sentinels("shop", (("one", 1), ("two", 26379), ("::1", 3))), database=2, username="me", password="p@ss"
            ),
        ),
        ("redis+sentinel://:p,ss@one/shop/", address_behind(Sentinels("shop", (("one", 26379),)), password="p,ss")),
        (
            "rediss+sentinel://one/shop?db=3&sentinel_username=guard&sentinel_password=p%26ss",
            address_behind(Sentinels("shop", (("one", 26379),), "guard", "p&ss"), database=3, tls=True),
        ),
    ],
)
def test_a_sentinel_url_is_parsed_into_an_address(url: str, expected: Address) -> None:
    assert parse_address(url) == expected


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("redis+sentinel://one:26379", "names no service"),
        ("redis+sentinel://one:26379,two:26379/", "names no service"),
        ("redis+sentinel:///shop", "a sentinel has no host"),
        ("redis+sentinel://one,,two/shop", "a sentinel has no host"),
        ("redis+sentinel://one:port/shop", "no port"),
        ("redis+sentinel://[::1/shop", "as in [::1]"),
        ("redis+sentinel://one/shop/first", "the database is not a number"),
        ("redis+sentinel://me:hunter2@one/shop?socket_timeout=3", "has the option 'socket_timeout'"),
        ("redis+sentinel://one/shop?sentinel_password=hunter2&password=hunter2", "has the option 'password'"),
        (
            "redis+sentinel://one/shop?sentinel_password=hun#hunter2",
            "contains a '#': in a user or a password, write %23",
        ),
        ("redis+sentinel://me:hun#hunter2@one/shop", "contains a '#': in a user or a password, write %23"),
        ("redis+sentinel://one/shop?sentinel_password=hun&hunter2", "has the option *** (not shown"),
        ("redis+sentinel://me:hun?hunter2@one/shop", "has the option *** (not shown"),
        ("redis+sentinel://one:port/shop?sentinel_password=hun@hunter2", "no port"),
        ("redis+sentinel://one:port/shop?sentinel_password=hun%23@hunter2", "no port"),
    ],
)
def test_an_invalid_sentinel_url_is_refused_without_its_password(url: str, what: str) -> None:
    with pytest.raises(ValueError, match=re.escape(what)) as refusal:
        parse_address(url)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis+cluster://one", Address("", 0, cluster=Cluster((("one", 6379),), KEY))),
        ("redis+cluster://one/0", Address("", 0, cluster=Cluster((("one", 6379),), KEY))),
        (
            "rediss+cluster://me:p%40ss@one:1,two,[::1]:3/?db=0",
            Address(
                *("", 0),
                tls=True,
                username="me",
                password="p@ss",
                cluster=Cluster((("one", 1), ("two", 6379), ("::1", 3)), KEY),
            ),
        ),
    ],
)
def test_a_cluster_url_is_parsed_into_an_address(url: str, expected: Address) -> None:
    address = parse_address(url, key=KEY)
    assert address == expected
    assert address.topology is Topology.CLUSTER
    assert address.has_failover


@pytest.mark.parametrize("url", ["redis+cluster://one/1", "redis+cluster://one?db=2", "redis+cluster://one/shop"])
def test_a_cluster_has_only_one_database(url: str) -> None:
    with pytest.raises(ValueError, match="a cluster has only database 0"):
        parse_address(url)


@pytest.mark.parametrize("url", ["redis+cluster://", "redis+cluster://one,", "redis+cluster://one:port"])
def test_a_node_without_a_valid_host_and_port_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="a node of the cluster has no host or no port"):
        parse_address(url)


def test_the_password_of_a_cluster_is_not_shown() -> None:
    url = "redis+cluster://me:hunter2@one:1,two:2/0"
    assert "hunter2" not in repr(parse_address(url))
    assert redact(url) == "redis+cluster://me:***@one:1,two:2/0"
    assert redact("redis+cluster://one:1,two:hunter2") == "redis+cluster://one:1,two:***"


def test_the_passwords_of_sentinels_and_servers_are_not_shown() -> None:
    url = "redis+sentinel://me:hunter2@one:1,two:2/shop?sentinel_password=hunter2"
    assert "hunter2" not in repr(parse_address(url))
    assert redact(url) == "redis+sentinel://me:***@one:1,two:2/shop?sentinel_password=***"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis+sentinel://h:26379/mymaster?sentinel_password=p@ssword", "redis+sentinel://***"),
        ("redis+sentinel://h/mymaster?sentinel_password=a#b@ssword", "redis+sentinel://***"),
        ("redis+sentinel://me:pw@h/mymaster?sentinel_password=p@ssword", "redis+sentinel://***"),
        ("redis://me:p?ss@word", "redis://***"),
        ("redis://me:p#ss@word", "redis://***"),
        ("h/mymaster?sentinel_password=p@ssword", "***"),
        ("redis+sentinel://h/mymaster?sentinel_password=a#b", "redis+sentinel://h/mymaster?sentinel_password=***"),
        (
            "redis+sentinel://h/mymaster?sentinel_password=a#b&sentinel_username=c",
            "redis+sentinel://h/mymaster?sentinel_password=***",
        ),
        ("unix:///run/redis.sock?password=p@ss#word", "unix:///run/redis.sock?password=***"),
    ],
)
def test_no_part_of_an_unquoted_password_is_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "", "redis+clusters://x"])
def test_an_unknown_url_scheme_is_refused_with_the_supported_ones(url: str) -> None:
    with pytest.raises(ValueError, match="begins with redis://, rediss:// or unix://"):
        parse_address(url)


@pytest.mark.parametrize("url", ["redis://localhost:port", "redis://localhost:99999", "redis://localhost/one"])
def test_a_url_with_an_invalid_port_or_database_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not a Redis URL"):
        parse_address(url)


@pytest.mark.parametrize(
    ("url", "option"),
    [
        ("rediss://shop.example?ssl_cert_reqs=none", "ssl_cert_reqs"),
        ("redis://localhost/0?db=1&socket_timeout=3", "socket_timeout"),
        ("redis://localhost/0?protocol", "protocol"),
        ("unix:///run/redis.sock?password=hunter2", "password"),
    ],
)
def test_an_unsupported_option_of_a_url_is_refused_by_name(url: str, option: str) -> None:
    with pytest.raises(ValueError, match=f"has the option '{option}'") as refusal:
        parse_address(url)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("url", ["redis://[::1", "redis://me:hunter2@[::1", "redis://me:hunter2@\u2100"])
def test_a_url_with_an_invalid_host_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not a Redis URL: the host is not valid") as refusal:
        parse_address(url)
    assert repr(redact(url)) in str(refusal.value)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("url", ["redis://me:hunter2@localhost:x", "http://me:hunter2@localhost"])
def test_an_error_about_a_redis_url_does_not_contain_the_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"\*\*\*") as refusal:
        parse_address(url)
    assert "hunter2" not in str(refusal.value)


def test_an_address_does_not_show_its_password() -> None:
    assert "hunter2" not in repr(parse_address("redis://me:hunter2@localhost"))


_PASSWORDS = st.text(min_size=4, max_size=30).filter(lambda text: text.isprintable())


@given(_PASSWORDS, st.integers(1, 65535), st.integers(0, 15))
def test_any_quoted_password_is_parsed_and_redacted(password: str, port: int, database: int) -> None:
    quoted = quote(password, safe="")
    url = f"redis://me:{quoted}@example:{port}/{database}"
    assert parse_address(url) == Address("example", port, "", False, database, "me", password)
    assert redact(url) == f"redis://me:***@example:{port}/{database}"


def test_a_url_without_a_password_is_shown_unchanged() -> None:
    assert redact("redis://localhost:6379/0") == "redis://localhost:6379/0"
    assert parse_address("redis://localhost").port == DEFAULT_PORT
