"""Error replies fall into three kinds, by their first word."""

import pytest

from rota.server.server_errors import ConnectionLost, PushedBack, Refused, ServerError, UnknownScript, error_of_reply


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
def test_the_first_word_of_an_error_says_what_to_do(text: str, kind: type[ServerError], reason: str) -> None:
    error = error_of_reply(text)
    assert type(error) is kind
    assert error.reason == reason
    assert str(error) == text
