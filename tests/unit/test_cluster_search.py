"""The search for the primary that has the slot of a namespace: which nodes are queried, how their replies are used, and
which error is raised if no node has the slot.
"""

from typing import Any

import pytest
from redis.crc import key_slot

from rota.protocol.keys import Keys
from rota.server.address import Address, Cluster, parse_address
from rota.server.logins import LoginUnknown
from rota.server.primary_search import Query, ReplyOrError, search, slot_of
from rota.server.server_errors import ConnectionLost, Refused, ServerError, TlsFilesFault, error_of_reply

KEY = Keys("shop").tasks
SLOT = 3808
SILENT = ConnectionLost("no connection to one:1: Connection refused")
SERVED = 0  # the reply to EXISTS; the key need not exist
ASK = error_of_reply(f"ASK {SLOT} 10.0.0.9:7009")
DOWN = error_of_reply("CLUSTERDOWN The cluster is down")


def address() -> Address:
    """Return an address that no other test has used, so that it knows only the nodes in its URL."""
    parse_address.cache_clear()
    return parse_address("redis+cluster://me:secret@one:1,two:2", key=KEY)


def node(host: str, port: int = 7000) -> list[Any]:
    return [host.encode(), port, b"an id", []]


def slots(*owner_and_replicas: list[Any]) -> list[Any]:
    """Return a reply to CLUSTER SLOTS in which the slot of the namespace belongs to the first of these nodes."""
    return [[0, SLOT - 1, node("10.0.0.8")], [SLOT, 16383, *owner_and_replicas]]


def moved(host_and_port: str) -> ServerError:
    return error_of_reply(f"MOVED {SLOT} {host_and_port}")


def run_search(at: Address, *answers: ReplyOrError) -> tuple[list[Query], ServerError | None]:
    """Return the queries of a search that gets these replies, and the error with which the search ends, or None."""
    searching = search(at)
    queries = [next(searching)]
    for answer in answers:
        try:
            queries.append(searching.send(answer))
        except StopIteration:
            return queries, None
        except ServerError as error:
            return queries, error
    raise AssertionError(f"still queries {queries[-1]}")


def asked(queries: list[Query]) -> list[tuple[str, int, str]]:
    return [(query.address.host, query.address.port, str(query.args[0])) for query in queries]


@pytest.mark.parametrize("namespace", ["shop", "a", "x.y_z-1:2", "n" * 128])
def test_the_slot_is_that_of_other_clients(namespace: str) -> None:
    key = Keys(namespace).tasks
    assert slot_of(key) == key_slot(key.encode())


def test_a_node_names_the_owner_which_is_then_tried() -> None:
    queries, error = run_search(address(), slots(node("10.0.0.1"), node("10.0.0.2")), SERVED)
    assert error is None
    assert asked(queries) == [("one", 1, "CLUSTER"), ("10.0.0.1", 7000, "EXISTS")]
    assert {(query.address.username, query.address.password) for query in queries} == {("me", "secret")}
    assert queries[1].args == ("EXISTS", KEY)


def test_nodes_that_are_silent_are_skipped() -> None:
    queries, error = run_search(address(), SILENT, slots(node("10.0.0.1")), SERVED)
    assert error is None
    assert [host for host, _, _ in asked(queries)] == ["one", "two", "10.0.0.1"]


def test_a_redirection_is_followed() -> None:
    queries, error = run_search(address(), slots(node("10.0.0.1")), moved("10.0.0.2:7001"), SERVED)
    assert error is None
    assert asked(queries)[1:] == [("10.0.0.1", 7000, "EXISTS"), ("10.0.0.2", 7001, "EXISTS")]


def test_redirections_in_a_circle_end_in_an_error() -> None:
    there = slots(node("10.0.0.1"))
    _, error = run_search(address(), there, moved("10.0.0.2:1"), moved("10.0.0.1:7000"), there)
    assert "10.0.0.1:7000: the hash slot is at 10.0.0.2:1" in message_of(error)


def test_an_owner_whose_slot_is_being_moved_is_used() -> None:
    _, error = run_search(address(), slots(node("10.0.0.1")), ASK)
    assert error is None


def test_a_node_that_is_cut_off_is_passed_over() -> None:
    of_minority, of_majority = slots(node("10.0.0.1")), slots(node("10.0.0.2"))
    queries, error = run_search(address(), of_minority, DOWN, of_majority, SERVED)
    assert error is None
    assert asked(queries)[2:] == [("two", 2, "CLUSTER"), ("10.0.0.2", 7000, "EXISTS")]


def test_a_faulty_owner_is_tried_once_although_all_nodes_name_it() -> None:
    there = slots(node("10.0.0.1"))
    queries, error = run_search(address(), there, SILENT, there)
    assert [word for _, _, word in asked(queries)] == ["CLUSTER", "EXISTS", "CLUSTER"]
    assert "10.0.0.1:7000: no connection" in message_of(error)


def test_a_slot_without_a_node_is_reported() -> None:
    _, error = run_search(address(), [[0, SLOT - 1, node("10.0.0.8")]], [])
    assert message_of(error).endswith(
        f"one:1: knows no primary of hash slot {SLOT}; two:2: knows no primary of hash slot {SLOT}"
    )


def test_all_nodes_of_the_cluster_are_queried_after_the_first_search() -> None:
    at = address()
    assert run_search(at, slots(node("10.0.0.1"), node("10.0.0.2")), SERVED)[1] is None
    queries, error = run_search(at, SILENT, SILENT, SILENT, slots(node("10.0.0.2")), SERVED)
    assert error is None
    assert [host for host, _, _ in asked(queries)] == ["one", "10.0.0.8", "10.0.0.1", "10.0.0.2", "10.0.0.2"]


def test_a_node_that_did_not_reply_is_queried_last_by_later_searches() -> None:
    at = address()
    searching = search(at)
    assert next(searching).address.host == "one"
    searching.close()  # the caller gave up, because the node did not reply before its deadline
    assert next(search(at)).address.host == "two"


def test_a_node_that_has_left_the_cluster_does_not_erase_the_known_nodes() -> None:
    at = address()
    assert run_search(at, slots(node("10.0.0.1")), SERVED)[1] is None
    silent = [SILENT] * 3
    assert "knows no primary" in message_of(run_search(at, [], *silent)[1])
    queries, error = run_search(at, [], SILENT, slots(node("10.0.0.1")), SERVED)
    assert error is None
    assert asked(queries)[2:] == [("10.0.0.1", 7000, "CLUSTER"), ("10.0.0.1", 7000, "EXISTS")]


@pytest.mark.parametrize(
    ("named", "used"),
    [
        (node("10.0.0.1"), ("10.0.0.1", 7000)),
        (node("redis-0.example"), ("redis-0.example", 7000)),
        ([None, 7000], ("one", 7000)),  # the node knows only its port, so its host is the one that was queried
        (node(""), ("one", 7000)),
    ],
)
def test_each_form_of_a_node_in_a_reply_is_understood(named: list[Any], used: tuple[str, int]) -> None:
    queries, error = run_search(address(), slots(named), SERVED)
    assert error is None
    assert asked(queries)[1][:2] == used


@pytest.mark.parametrize("named", [node("?"), node("a\0b"), [b"10.0.0.1", 70_000], b"no list", []])
def test_a_node_to_which_no_connection_is_possible_is_skipped(named: Any) -> None:
    queries, error = run_search(address(), slots(named), slots(node("10.0.0.1")), SERVED)
    assert error is None
    assert asked(queries)[1][0] == "two"


@pytest.mark.parametrize(
    ("text", "used"), [("10.0.0.2:7001", ("10.0.0.2", 7001)), (":7001", ("10.0.0.1", 7001)), ("::1:7", ("::1", 7))]
)
def test_each_form_of_a_redirection_is_understood(text: str, used: tuple[str, int]) -> None:
    queries, error = run_search(address(), slots(node("10.0.0.1")), moved(text), SERVED)
    assert error is None
    assert asked(queries)[2][:2] == used


@pytest.mark.parametrize("text", ["?:7001", "nowhere", ":", "10.0.0.2:x", ""])
def test_a_redirection_without_an_address_is_a_fault_of_the_node(text: str) -> None:
    queries, error = run_search(address(), slots(node("10.0.0.1")), moved(text), SILENT)
    assert len(queries) == 3
    assert "10.0.0.1:7000: MOVED" in message_of(error)


@pytest.mark.parametrize("text", ["NOPERM this user has no permissions to run 'cluster|slots'", "WRONGPASS no"])
def test_a_refused_login_or_permission_ends_the_search(text: str) -> None:
    refusal = error_of_reply(text)
    queries, error = run_search(address(), refusal)
    assert error is refusal
    assert isinstance(error, Refused)
    assert len(queries) == 1


@pytest.mark.parametrize("fault", [LoginUnknown("the provider failed"), TlsFilesFault("redis_tls_ca cannot be read")])
def test_a_fault_of_this_process_ends_the_search(fault: ServerError) -> None:
    queries, error = run_search(address(), fault)
    assert error is fault
    assert len(queries) == 1


def test_the_search_has_time_for_all_nodes() -> None:
    of_two = Address("", 0, cluster=Cluster((("one", 1), ("two", 2)), KEY))
    of_three = Address("", 0, cluster=Cluster((("one", 1), ("two", 2)), KEY, [("three", 3), ("one", 1)]))
    assert of_three.search_seconds == 1.5 * of_two.search_seconds > 0


def message_of(error: ServerError | None) -> str:
    assert isinstance(error, ConnectionLost)
    assert error.reason == "cluster"
    assert str(error).startswith(f"no node of the cluster has hash slot {SLOT}: ")
    return str(error)
