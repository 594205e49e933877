"""Whom the search for the primary asks, what it makes of the answers, and what it says when there is none."""

from collections.abc import Sequence

import pytest

from rota.server.address import Address, Query, ReplyOrError, parse_address, search
from rota.server.server_errors import ConnectionLost, Refused, ServerError

URL = "redis+sentinel://me:secret@one:1,two:2,three:3/shop/4?sentinel_username=guard&sentinel_password=open"
PRIMARY = [b"master", 100, []]
REPLICA = [b"slave", b"10.0.0.9", 6379, b"connected", 100]
SILENT = ConnectionLost("no connection to one:1: Connection refused")


def named(host: str, port: int = 6379) -> Sequence[bytes]:
    return [host.encode(), str(port).encode()]


def asked(*answers: ReplyOrError) -> tuple[list[Query], ServerError | None]:
    """The questions when these answers are given, and the error that it ends with."""
    searching = search(parse_address(URL))
    questions = [next(searching)]
    for answer in answers:
        try:
            questions.append(searching.send(answer))
        except StopIteration:
            return questions, None
        except ServerError as error:
            return questions, error
    raise AssertionError(f"still asks {questions[-1]}")


def told(error: ServerError | None) -> str:
    assert isinstance(error, ConnectionLost)
    assert error.reason == "sentinel"
    return str(error)


def test_the_first_sentinel_is_asked_and_the_server_it_names_for_its_role() -> None:
    questions, error = asked(named("10.0.0.1"), PRIMARY)
    assert error is None
    assert questions[0].args == ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop")
    assert questions[0].address == Address("one", 1, username="guard", password="open")
    assert questions[1].args == ("ROLE",)
    assert questions[1].address == Address("10.0.0.1", 6379, database=4, username="me", password="secret")


def test_a_silent_sentinel_and_one_that_does_not_know_the_service_are_passed_over() -> None:
    questions, error = asked(SILENT, None, named("10.0.0.1"), PRIMARY)
    assert error is None
    assert [question.address.host for question in questions] == ["one", "two", "three", "10.0.0.1"]


def test_a_replica_is_not_taken_and_the_next_sentinel_may_know_better() -> None:
    questions, error = asked(named("10.0.0.1"), REPLICA, named("10.0.0.2"), PRIMARY)
    assert error is None
    assert questions[-1].address.host == "10.0.0.2"


def test_a_server_that_is_of_no_use_is_tried_once_however_many_name_it() -> None:
    lost = ConnectionLost("no connection to 10.0.0.1:6379: Connection refused")
    questions, error = asked(named("10.0.0.1"), lost, named("10.0.0.1"), named("10.0.0.1"), b"OK 3 usable Sentinels")
    assert [question.address.host for question in questions] == ["one", "10.0.0.1", "two", "three", "three"]
    assert told(error) == (
        "no primary of 'shop': one:1, two:2, three:3 named 10.0.0.1:6379 (no connection: Connection refused)"
    )


def test_a_missing_quorum_is_told() -> None:
    quorum = Refused("NOQUORUM 1 usable Sentinels")
    _, error = asked(named("10.0.0.1"), REPLICA, SILENT, SILENT, quorum)
    assert told(error).endswith("NOQUORUM 1 usable Sentinels")
    assert "one:1 named 10.0.0.1:6379 (a replica)" in told(error)


def test_an_unknown_service_is_told_with_those_that_are_known() -> None:
    masters = [[b"name", b"mymaster", b"ip", b"10.0.0.1"], [b"name", b"cache"]]
    questions, error = asked(None, None, SILENT, masters)
    assert questions[-1].args == ("SENTINEL", "MASTERS")
    assert told(error).endswith("two:2 knows 'mymaster', 'cache'")
    assert "one:1, two:2 did not know it" in told(error)


@pytest.mark.parametrize(
    "answer",
    [
        b"OK",
        7,
        [],
        [b"10.0.0.1"],
        [b"10.0.0.1", b"x"],
        [b"10.0.0.1", b"65536"],
        [b"10.0.0.1", b"0655350"],
        [b"h\0st", b"6379"],
        [b"10.0.0.1", b"9" * 9999],
        [b"10.0.0.1", 6379],
        [b"", b"6379"],
        [b"a..b", b"6379"],
        [b"\xff", b"6379"],
    ],
)
def test_an_answer_that_is_no_place_is_told_and_passed_over(answer: ReplyOrError) -> None:
    questions, error = asked(answer, named("10.0.0.1"), PRIMARY)
    assert error is None
    assert [question.address.host for question in questions] == ["one", "two", "10.0.0.1"]
    _, error = asked(answer, SILENT, SILENT, b"OK")
    assert told(error).startswith(f"no primary of 'shop': one:1 replied {repr(answer)[:20]}")
    assert len(told(error)) < 300


def test_services_that_are_none_do_not_end_the_search_otherwise() -> None:
    odd = [b"name", [b"name", b"cache"], [b"name", 7], [b"name", b"\xff"], [b"ip"], [[b"name"], b"x"]]
    assert told(asked(None, None, None, odd)[1]).endswith("three:3 knows 'cache', '\ufffd', '?', '?'")
    assert "knows" not in told(asked(None, None, None, b"OK")[1])


def test_sentinels_that_watch_nothing_are_told_of() -> None:
    assert told(asked(None, None, None, [])[1]).endswith("three:3 knows no service")


def test_without_any_sentinel_each_is_told_with_its_reason() -> None:
    questions, error = asked(SILENT, SILENT, Refused("NOAUTH Authentication required."))
    assert len(questions) == 3
    assert told(error) == (
        "no primary of 'shop': one:1 did not reply (no connection: Connection refused); "
        "two:2 did not reply (no connection to one:1: Connection refused); "
        "three:3 did not reply (NOAUTH Authentication required.)"
    )


def test_a_primary_that_refuses_us_is_no_case_for_the_next_sentinel() -> None:
    wrong = Refused("WRONGPASS invalid username-password pair", "wrongpass")
    questions, error = asked(named("10.0.0.1"), wrong)
    assert error is wrong
    assert len(questions) == 2


@pytest.mark.parametrize("word", [b"sentinel", b"something"])
def test_only_a_master_is_a_primary(word: bytes) -> None:
    _, error = asked(named("10.0.0.1"), [word], SILENT, SILENT, ConnectionLost("gone"))
    assert "named 10.0.0.1:6379" in told(error)


def test_sentinels_of_a_service_over_tls_are_asked_over_tls() -> None:
    searching = search(parse_address("rediss+sentinel://one/shop"))
    assert next(searching).address.tls
    assert searching.send(named("redis.example")).address.tls
