"""A poller adopts items from legacy lists. The server notifies the poller of pushed items, and the poller knows when
scheduled items are due. If the poller ends, another one takes over.
"""

import json
import re
import time

import pytest
import redis

from rota.child.child_settings import ServerSettings
from rota.child.slots import Phase
from rota.protocol.replies import LegacySource
from support.child_harness import ChildHarness
from support.masters import ON_ONE_SERVER
from support.waiting import until

_BELL = re.compile(rb" name=rota:poller:\d+:bell .* flags=\w*B\w* .* cmd=blpop ")
LATE_SECONDS = 2.0  # a generous limit; an adoption without a notification takes longer


@pytest.fixture
def sources(harness: ChildHarness) -> tuple[LegacySource, LegacySource]:
    """Return a list and a sorted set as sources, with names that only this test uses."""
    return LegacySource(f"queue:{harness.namespace}", "default"), LegacySource(f"delayed:{harness.namespace}")


def item(label: str) -> str:
    return json.dumps([label, "default", "note", [label]])


def push(harness: ChildHarness, source: LegacySource, label: str) -> None:
    harness.connection.execute("RPUSH", source.key, item(label))


def schedule(harness: ChildHarness, source: LegacySource, label: str, seconds: float) -> float:
    """Add an item to the sorted set with ZADD. Returns the time at which the item is due."""
    due_at = round(time.time() + seconds, 6)
    harness.connection.execute("ZADD", source.key, repr(due_at), item(label))
    return due_at


def has_listener(harness: ChildHarness) -> bool:
    """Whether a poller has asked the server for notifications about changed keys. If so, a connection of the poller has
    the flag `B`.
    """
    return any(_BELL.search(line) for line in harness.connection.execute("CLIENT", "LIST").splitlines())


def until_listening(harness: ChildHarness) -> None:
    until(lambda: has_listener(harness), "a poller that listens")


def until_ready(harness: ChildHarness, label: str) -> float:
    """Wait until this item has become a ready task. Returns the number of seconds that this took."""
    began = time.monotonic()
    until(lambda: harness.state(label) == "ready", label)
    return time.monotonic() - began


def test_pushed_and_due_items_are_adopted_in_time(
    harness: ChildHarness, sources: tuple[LegacySource, LegacySource]
) -> None:
    harness.start_poller(adopts=sources)
    until_listening(harness)
    for number in range(5):
        push(harness, sources[0], f"now-{number}")
        assert until_ready(harness, f"now-{number}") < LATE_SECONDS
    dues = {f"due-{number}": schedule(harness, sources[1], f"due-{number}", 0.3 - number / 20) for number in range(5)}
    for label, due_at in dues.items():
        until_ready(harness, label)
        assert time.time() >= due_at
    lane = harness.connection.execute("LRANGE", harness.store.keys.delayed_lane("default"), 0, -1)
    assert [entry.split(b" ")[0].decode() for entry in lane] == sorted(dues, reverse=True)
    for due_us, ready_us in (map(int, entry.split(b" ")[3:5]) for entry in lane):
        assert 0 <= ready_us - due_us < LATE_SECONDS * 1_000_000


@ON_ONE_SERVER
def test_another_poller_adopts_pushed_items_after_the_first_is_killed(
    harness: ChildHarness, sources: tuple[LegacySource, LegacySource]
) -> None:
    first = harness.start_poller(adopts=sources)
    until_listening(harness)
    harness.start_poller(5, adopts=sources).until_phase(Phase.IDLE)
    first.kill()
    push(harness, sources[0], "meanwhile")
    until_ready(harness, "meanwhile")
    until_listening(harness)
    push(harness, sources[0], "afterwards")
    until_ready(harness, "afterwards")


def test_poller_adopts_items_without_client_tracking(
    harness: ChildHarness, sources: tuple[LegacySource, LegacySource], redis_client: "redis.Redis"
) -> None:
    redis_client.acl_setuser(
        "deaf",
        enabled=True,
        reset=True,
        passwords=["+secret"],
        categories=["+@all"],
        commands=["-client|tracking"],
        keys=["*"],
    )
    try:
        url = harness.server.url.replace("//", "//deaf:secret@")
        harness.start_poller(adopts=sources, server=ServerSettings(url, harness.namespace)).until_phase(Phase.IDLE)
        for label in ("one", "two"):
            push(harness, sources[0], label)
            until_ready(harness, label)
        schedule(harness, sources[1], "due", 0.05)
        until_ready(harness, "due")
        assert not has_listener(harness)
        assert "no permissions" in harness.events("adopt.tracking_refused")[0]["error"]
    finally:
        redis_client.acl_deluser("deaf")


@ON_ONE_SERVER
def test_a_legacy_list_of_the_wrong_type_is_logged_once_and_skipped(
    harness: ChildHarness, sources: tuple[LegacySource, LegacySource]
) -> None:
    harness.connection.execute("SET", sources[1].key, "no set")
    harness.start_poller(adopts=sources)
    until_listening(harness)
    for label in ("one", "two"):
        push(harness, sources[0], label)
        until_ready(harness, label)
    [told] = until(lambda: harness.events("adopt.failed"))
    assert (told["source"], "it is a string" in told["error"]) == (sources[1].key, True)
