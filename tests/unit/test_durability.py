"""What is asked of the server behind an enqueue, and how its answer is judged."""

import pytest

from rota.protocol.wire import command, pack
from rota.server.session import Confirmation, confirmation, level_of


def made(durability: str, *, failover: bool = False) -> Confirmation:
    found = confirmation(level_of(durability), failover=failover, timeout_seconds=4.0)
    assert found is not None
    return found


def wire(*args: str | int) -> bytes:
    return command((pack(args),))


def test_none_asks_for_nothing() -> None:
    assert confirmation("none", failover=True, timeout_seconds=5.0) is None


def test_wait_asks_for_a_replica_in_less_time_than_an_answer_may_take() -> None:
    assert made("wait").waiting == wire("WAIT", 1, 3000)
    assert made("wait").trial == wire("WAIT", 1, 1)


def test_waitaof_asks_for_the_disk_and_for_that_of_a_replica_where_one_may_take_over() -> None:
    assert made("waitaof").waiting == wire("WAITAOF", 1, 0, 3000)
    assert made("waitaof", failover=True).waiting == wire("WAITAOF", 1, 1, 3000)


def test_a_time_too_short_for_milliseconds_is_not_for_ever() -> None:
    short = confirmation("wait", failover=False, timeout_seconds=0.0001)
    assert short is not None
    assert short.waiting == wire("WAIT", 1, 1)


@pytest.mark.parametrize(
    ("durability", "failover", "reply", "lack"),
    [
        ("wait", False, 1, ""),
        ("wait", True, 2, ""),
        ("wait", False, 0, "no replica has them"),
        ("waitaof", False, [1, 0], ""),
        ("waitaof", False, [0, 2], "the server has not written them to its disk"),
        ("waitaof", True, [1, 1], ""),
        ("waitaof", True, [1, 0], "no replica has them on its disk"),
        (
            "waitaof",
            True,
            [0, 0],
            "the server has not written them to its disk and no replica has them on its disk",
        ),
    ],
)
def test_what_is_missing_is_told(durability: str, failover: bool, reply: object, lack: str) -> None:
    assert made(durability, failover=failover).lack(reply) == lack


def test_another_level_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match='expected one of "none", "wait", "waitaof", got \'fsync\''):
        level_of("fsync")
