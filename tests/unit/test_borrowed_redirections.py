"""The replies of a cluster's nodes after which an endpoint with the application's client looks up the node again."""

import socket
from types import SimpleNamespace

import pytest

from rota.server.borrowed import BorrowedConnection
from rota.server.connection import DEFAULT_OPTIONS
from rota.server.server_errors import ServerError


@pytest.mark.parametrize(
    ("reply", "looks_up"),
    [
        ("MOVED 3808 10.0.0.1:6379", 1),
        ("CLUSTERDOWN The cluster is down", 1),  # another primary may have taken over from a node that is cut off
        ("TRYAGAIN Multiple keys request during rehashing of slot", 0),  # the node still has the slot
        ("READONLY You can't write against a read only replica.", 0),
    ],
)
def test_the_node_is_looked_up_again_if_another_one_may_have_the_slot(reply: str, looks_up: int) -> None:
    moves: list[str] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pool = SimpleNamespace(release=lambda _: None)
        connection = BorrowedConnection(SimpleNamespace(_sock=ours), pool, DEFAULT_OPTIONS, lambda: moves.append(reply))
        theirs.sendall(f"-{reply}\r\n".encode())
        with pytest.raises(ServerError):
            connection.receive()
    assert len(moves) == looks_up
