"""The classification of error replies into three kinds by their first word."""

from typing import Any

import pytest

from rota.protocol.scripts import ScriptCall
from rota.protocol.store import Blame, Store
from rota.protocol.tiers import NO_TIERS
from rota.protocol.turns import Turn
from rota.server.server_errors import (
    REASON_PROTOCOL,
    ConnectionLost,
    PushedBack,
    Refused,
    ServerError,
    UnknownScript,
    error_of_reply,
    read_reply,
)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("READONLY You can't write against a read only replica.", ConnectionLost, "readonly"),
        ("UNBLOCKED force unblock from blocking operation", ConnectionLost, "unblocked"),
        ("NOREPLICAS Not enough good replicas to write.", ConnectionLost, "noreplicas"),
        ("OOM command not allowed when used memory > 'maxmemory'.", PushedBack, "oom"),
        ("MISCONF Errors writing to the AOF file", PushedBack, "misconf"),
        ("LOADING Redis is loading the dataset in memory", PushedBack, "loading"),
        ("BUSY Redis is busy running a script.", PushedBack, "busy"),
        ("ERR max number of clients reached", PushedBack, "maxclients"),
        ("NOSCRIPT No matching script.", UnknownScript, "noscript"),
        ("NOPERM User x has no permissions", Refused, "noperm"),
        ("WRONGTYPE Operation against a key", Refused, "wrongtype"),
        ("ERR user_script:1: something", Refused, "other"),
        ("SOMETHINGNEW at all", Refused, "other"),
    ],
)
def test_the_first_word_of_an_error_reply_decides_its_kind(text: str, kind: type[ServerError], reason: str) -> None:
    error = error_of_reply(text)
    assert type(error) is kind
    assert error.reason == reason
    assert str(error) == text


@pytest.mark.parametrize(
    "text",
    [
        "NOAUTH Authentication required.",
        "NOAUTH HELLO must be called with the client already authenticated",
        "ERR Protocol error: unauthenticated multibulk length",
        "ERR Protocol error: unauthenticated bulk length",
    ],
)
def test_every_missing_password_error_has_the_reason_noauth(text: str) -> None:
    error = error_of_reply(text)
    assert (type(error), error.reason) == (Refused, "noauth")


def test_command_arguments_are_omitted_from_an_error_reply() -> None:
    error = error_of_reply("ERR unknown command 'AUTH', with args beginning with: 'default' 'hunter2' ")
    assert str(error) == "ERR unknown command 'AUTH'"


@pytest.mark.parametrize(
    "reply",
    [None, b"OK", 7, [], [b"ok"], [b"what", 1, 0, [], [], []], [b"ok", 1, 0, [], [b"\xff", b""], []], [None] * 4],
)
@pytest.mark.parametrize("name", ["turn", "reap"])
def test_an_unreadable_script_reply_counts_as_a_refusal(name: str, reply: object) -> None:
    store = Store("n")
    call: ScriptCall[Any] = store.turn("o", NO_TIERS, Turn(1)) if name == "turn" else store.reap_exited("o", Blame())
    with pytest.raises(Refused, match=f"the reply to {name} cannot be read") as refused:
        read_reply(call, reply)
    assert refused.value.reason == REASON_PROTOCOL
