"""The search for the primary: which sentinels are queried, how their replies are used, and which error is raised if
there is no primary.
"""

from collections.abc import Sequence

import pytest

from rota.server.address import Address, parse_address
from rota.server.primary_search import Query, ReplyOrError, search
from rota.server.server_errors import ConnectionLost, Refused, ServerError

URL = "redis+sentinel://me:secret@one:1,two:2,three:3/shop/4?sentinel_username=guard&sentinel_password=open"
PRIMARY = [b"master", 100, []]
REPLICA = [b"slave", b"10.0.0.9", 6379, b"connected", 100]
SILENT = ConnectionLost("no connection to one:1: Connection refused")


def named(host: str, port: int = 6379) -> Sequence[bytes]:
    return [host.encode(), str(port).encode()]


def run_search(*answers: ReplyOrError) -> tuple[list[Query], ServerError | None]:
    """Return the queries of a search that gets these replies, and the error with which the search ends, or None."""
    searching = search(parse_address(URL))
    questions = [next(searching)]
    for answer in answers:
        try:
            questions.append(searching.send(answer))
        except StopIteration:
            return questions, None
        except ServerError as error:
            return questions, error
    raise AssertionError(f"still queries {questions[-1]}")


def message_of(error: ServerError | None) -> str:
    assert isinstance(error, ConnectionLost)
    assert error.reason == "sentinel"
    return str(error)


def test_the_search_asks_the_first_sentinel_and_then_the_server_it_names() -> None:
    questions, error = run_search(named("10.0.0.1"), PRIMARY)
    assert error is None
    assert questions[0].args == ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop")
    assert questions[0].address == Address("one", 1, username="guard", password="open")
    assert questions[1].args == ("ROLE",)
    assert questions[1].address == Address("10.0.0.1", 6379, database=4, username="me", password="secret")


def test_sentinels_that_are_silent_or_know_no_primary_are_skipped() -> None:
    questions, error = run_search(SILENT, None, named("10.0.0.1"), PRIMARY)
    assert error is None
    assert [question.address.host for question in questions] == ["one", "two", "three", "10.0.0.1"]


def test_if_a_sentinel_names_a_replica_the_next_sentinel_is_queried() -> None:
    questions, error = run_search(named("10.0.0.1"), REPLICA, named("10.0.0.2"), PRIMARY)
    assert error is None
    assert questions[-1].address.host == "10.0.0.2"


def test_an_unreachable_server_is_tried_once_even_if_all_sentinels_name_it() -> None:
    lost = ConnectionLost("no connection to 10.0.0.1:6379: Connection refused")
    questions, error = run_search(
        named("10.0.0.1"), lost, named("10.0.0.1"), named("10.0.0.1"), b"OK 3 usable Sentinels"
    )
    assert [question.address.host for question in questions] == ["one", "10.0.0.1", "two", "three", "three"]
    assert message_of(error) == (
        "no sentinel named a usable primary of 'shop': one:1, two:2, three:3 named 10.0.0.1:6379 (no connection: "
        "Connection refused)"
    )


def test_a_missing_quorum_of_sentinels_is_reported() -> None:
    quorum = Refused("NOQUORUM 1 usable Sentinels")
    _, error = run_search(named("10.0.0.1"), REPLICA, SILENT, SILENT, quorum)
    assert message_of(error).endswith("NOQUORUM 1 usable Sentinels")
    assert "one:1 named 10.0.0.1:6379 (a replica)" in message_of(error)


def test_an_unknown_sentinel_service_is_reported_with_the_known_ones() -> None:
    masters = [[b"name", b"mymaster", b"ip", b"10.0.0.1"], [b"name", b"cache"]]
    questions, error = run_search(None, None, SILENT, masters)
    assert questions[-1].args == ("SENTINEL", "MASTERS")
    assert message_of(error).endswith("two:2 knows 'mymaster', 'cache'")
    assert "one:1, two:2 did not know the service" in message_of(error)


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
def test_an_invalid_address_from_a_sentinel_is_reported_and_skipped(answer: ReplyOrError) -> None:
    questions, error = run_search(answer, named("10.0.0.1"), PRIMARY)
    assert error is None
    assert [question.address.host for question in questions] == ["one", "two", "10.0.0.1"]
    _, error = run_search(answer, SILENT, SILENT, b"OK")
    assert message_of(error).startswith(
        f"no sentinel named a usable primary of 'shop': one:1 replied {repr(answer)[:20]}"
    )
    assert len(message_of(error)) < 300


def test_invalid_sentinel_service_names_do_not_break_the_error_message() -> None:
    odd = [b"name", [b"name", b"cache"], [b"name", 7], [b"name", b"\xff"], [b"ip"], [[b"name"], b"x"]]
    assert message_of(run_search(None, None, None, odd)[1]).endswith("three:3 knows 'cache', '\ufffd', '?', '?'")
    assert "knows" not in message_of(run_search(None, None, None, b"OK")[1])


def test_a_sentinel_without_services_is_reported() -> None:
    assert message_of(run_search(None, None, None, [])[1]).endswith("three:3 knows no service")


def test_every_unreachable_sentinel_is_reported_with_its_reason() -> None:
    questions, error = run_search(SILENT, SILENT, Refused("NOAUTH Authentication required."))
    assert len(questions) == 3
    assert message_of(error) == (
        "no sentinel named a usable primary of 'shop': one:1 gave no address (no connection: Connection refused); "
        "two:2 gave no address (no connection to one:1: Connection refused); "
        "three:3 gave no address (NOAUTH Authentication required.)"
    )


def test_a_primary_that_refuses_the_login_ends_the_search() -> None:
    wrong = Refused("WRONGPASS invalid username-password pair", "wrongpass")
    questions, error = run_search(named("10.0.0.1"), wrong)
    assert error is wrong
    assert len(questions) == 2


@pytest.mark.parametrize("word", [b"sentinel", b"something"])
def test_a_server_without_the_master_role_is_not_accepted_as_primary(word: bytes) -> None:
    _, error = run_search(named("10.0.0.1"), [word], SILENT, SILENT, ConnectionLost("gone"))
    assert "named 10.0.0.1:6379" in message_of(error)


def test_the_primary_of_a_tls_service_is_searched_over_tls() -> None:
    searching = search(parse_address("rediss+sentinel://one/shop"))
    assert next(searching).address.tls
    assert searching.send(named("redis.example")).address.tls
