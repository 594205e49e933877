"""The confirmation that a client requests from the server after an enqueue, and how the client interprets the reply."""

import pytest

from rota.protocol.wire import command, pack
from rota.server.session import Confirmation, confirmation, level_of


def made(durability: str, *, failover: bool = False) -> Confirmation:
    found = confirmation(level_of(durability), failover=failover, timeout_seconds=4.0)
    assert found is not None
    return found


def wire(*args: str | int) -> bytes:
    return command((pack(args),))


def test_durability_none_requests_no_confirmation() -> None:
    assert confirmation("none", failover=True, timeout_seconds=5.0) is None


def test_durability_wait_times_out_before_the_clients_own_timeout() -> None:
    assert made("wait").waiting == wire("WAIT", 1, 3000)
    assert made("wait").trial == wire("WAIT", 1, 1)


def test_waitaof_waits_for_a_replica_only_with_failover() -> None:
    assert made("waitaof").waiting == wire("WAITAOF", 1, 0, 3000)
    assert made("waitaof", failover=True).waiting == wire("WAITAOF", 1, 1, 3000)


def test_a_timeout_below_a_millisecond_does_not_wait_forever() -> None:
    short = confirmation("wait", failover=False, timeout_seconds=0.0001)
    assert short is not None
    assert short.waiting == wire("WAIT", 1, 1)


@pytest.mark.parametrize(
    ("durability", "failover", "reply", "lack"),
    [
        ("wait", False, 1, ""),
        ("wait", True, 2, ""),
        ("wait", False, 0, "no replica has the tasks"),
        ("waitaof", False, [1, 0], ""),
        ("waitaof", False, [0, 2], "the server has not written the tasks to its disk"),
        ("waitaof", True, [1, 1], ""),
        ("waitaof", True, [1, 0], "no replica has the tasks on its disk"),
        (
            "waitaof",
            True,
            [0, 0],
            "the server has not written the tasks to its disk and no replica has the tasks on its disk",
        ),
    ],
)
def test_a_missing_confirmation_of_durability_is_described(
    durability: str, failover: bool, reply: object, lack: str
) -> None:
    assert made(durability, failover=failover).lack(reply) == lack


def test_an_unknown_durability_level_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match='expected one of "none", "wait", "waitaof", got \'fsync\''):
        level_of("fsync")
