"""The text that describes how a queue is served. Python writes the text, and Python and Lua must read it with the same
result.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lupa import lua51

import rota
from rota.protocol.tiers import (
    VIRTUAL_UNIT,
    QueueShare,
    domain_of,
    pack_tiers,
    read_share,
    read_tiers,
    settings_of,
    settings_of_domain,
    share_text,
)
from rota.protocol.wire import pack

SOURCE = (Path(rota.__file__).parent / "lua/shared/share_text.lua").read_text()
LUA = lua51.LuaRuntime()
FUNCTIONS = LUA.execute(
    f"{SOURCE}\nreturn {{ read = read_share, setting = read_setting, text = share_text, plain = limits_nothing }}"
)
FIELDS = ("cost", "cap", "interval", "burst", "condition", "is_bounded")
SHARES = st.builds(
    QueueShare,
    st.sampled_from(("mail", "9", "t-*", "a:b.c")),
    st.sampled_from((0.5, 1.0, 3.0)),
    st.integers(0, 10**6),
    st.integers(0, 10**9),
    st.integers(1, 10**6),
    st.sampled_from(("", "night", "9:b_c.d-e")),
)


def read_by_lua(settings: str, name: str) -> dict[str, Any]:
    """Return the fields that Lua reads from a list of queue settings for this name."""
    share = LUA.table()
    at = settings.index(f" {name}=") + len(name) + 3
    behind = FUNCTIONS.setting(share, settings, at)
    assert settings[at - 1 : behind - 1] == FUNCTIONS.text(share)
    return {field: share[field] for field in FIELDS}


def fields_of(share: QueueShare) -> dict[str, Any]:
    """Return the fields that Lua must read for this share."""
    is_bounded = share.cap > 0 or share.interval_us > 0 or share.condition != ""
    values = (round(VIRTUAL_UNIT / share.weight), share.cap, share.interval_us, share.burst, share.condition or None)
    return dict(zip(FIELDS, (*values, is_bounded), strict=True))


@given(st.lists(SHARES, min_size=1, unique_by=lambda share: share.name))
def test_lua_reads_the_settings_of_each_queue_as_they_were_written(shares: list[QueueShare]) -> None:
    settings = settings_of_domain(domain_of([*shares, QueueShare("z*")]))
    assert [read_by_lua(settings, each.name) for each in shares] == [fields_of(each) for each in shares]
    is_bounded = any(fields_of(each)["is_bounded"] for each in shares)
    assert FUNCTIONS.plain(settings) == FUNCTIONS.plain(settings_of(shares)) == (not is_bounded)


@given(SHARES)
def test_python_reads_the_settings_of_a_queue_as_they_were_written(share: QueueShare) -> None:
    assert read_share(share.name, share_text(share).encode()) == share


@given(st.lists(st.lists(SHARES, min_size=1, unique_by=lambda share: share.name), max_size=3))
def test_python_reads_the_tiers_in_a_heartbeat_as_they_were_written(tiers: list[list[QueueShare]]) -> None:
    domains = [domain_of([*shares, QueueShare("z*")], ["z9"]) for shares in tiers]
    assert read_tiers(pack_tiers(domains)) == [list(domain.queues) for domain in domains]
    plain = [domain_of(shares) for shares in tiers]
    assert read_tiers(pack_tiers(plain)) == tiers


def test_queue_settings_with_an_extra_number_are_refused() -> None:
    with pytest.raises(ValueError, match="too many values"):
        read_tiers(pack((1, "q", " q=720 0 0 1 7:night", 1, "q")))


@pytest.mark.parametrize(
    "text", ["720 0 0 1 7", "720 0 0 1 7:night", "720 0 0", "720 0 0 1:", "0 0 0 1", "720 0 0 1x", "-"]
)
@pytest.mark.parametrize("rest", ["", " mail=720 0 0 1", " 9=-"])
def test_malformed_queue_settings_are_refused_and_count_as_limited(text: str, rest: str) -> None:
    """If a script continued after a part that it cannot read, it could overlook a condition that follows."""
    settings = f" q={text}{rest}"
    with pytest.raises(lua51.LuaError, match="ROTA not the settings of a queue: "):
        FUNCTIONS.setting(LUA.table(), settings, 4)
    assert not FUNCTIONS.plain(settings) or text in ("-", "0 0 0 1")


def test_a_queue_served_elsewhere_does_not_count_as_limited() -> None:
    assert FUNCTIONS.plain(" t-*=720 0 0 1 t-9=- u=72 0 0 5 v=-")
    assert not FUNCTIONS.plain(" t-*=720 0 0 1 t-9=- u=72 1 0 5 v=-")
