"""The link to the server. It reconnects after a loss, keeps its connection if the server only refuses a command, and
reports each outage once.
"""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from rota.child.child_settings import LogSettings
from rota.child.slot_memory import SlotMemory
from rota.protocol.store import Store
from rota.protocol.tiers import QueueShare, domain_of, pack_tiers
from rota.protocol.turns import Turn, TurnStatus
from rota.protocol.wire import command, pack
from rota.server.address import parse_address
from rota.server.connection import DEFAULT_OPTIONS, ConnectionOptions
from rota.server.link import Link
from rota.server.server_errors import ConnectionLost, PushedBack, error_of_reply
from rota.telemetry import log
from rota.telemetry.recorder import Recorder
from support.servers import Server


@pytest.fixture
def logged() -> Iterator[int]:
    reading, writing = os.pipe()
    log.configure(LogSettings(), fd=writing)
    yield reading
    os.close(reading)
    os.close(writing)


@pytest.fixture
def link(server: Server) -> Iterator[Link]:
    with closing(_link_to(server, DEFAULT_OPTIONS)) as made:
        yield made


def _link_to(server: Server, options: ConnectionOptions) -> Link:
    return Link(parse_address(server.url), options, Recorder(SlotMemory.create(1).slot(0).metrics))


def _events(fd: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in os.read(fd, 1 << 16).splitlines()]


def test_an_outage_and_its_end_are_logged_once(link: Link, logged: int) -> None:
    first = link.connection()
    delays = [link.failed(ConnectionLost("gone", "network")) for _ in range(5)]
    assert delays[4] > delays[0] > 0
    assert link.connection() is not first
    link.succeeded()
    link.succeeded()
    assert [line["event"] for line in _events(logged)] == ["redis.lost", "redis.back"]
    assert link.failed(ConnectionLost("gone", "network")) < delays[4]


def test_a_slot_that_moves_for_long_is_tried_again_often(link: Link) -> None:
    delays = [link.failed(error_of_reply("TRYAGAIN the slot moves")) for _ in range(20)]
    assert max(delays) <= 0.2


def test_a_connection_is_kept_if_the_server_only_refuses_a_command(link: Link, logged: int) -> None:
    first = link.connection()
    link.failed(PushedBack("OOM", "oom"))
    assert link.connection() is first
    assert _events(logged)[0]["reason"] == "oom"


# Calls that are sent now, and whose replies are read later

_LOST: Any = Store("link").turn("nobody", pack_tiers([domain_of([QueueShare("q")])]), Turn(0))


def test_a_pipelined_reply_can_be_read_after_other_commands(link: Link) -> None:
    connection = link.connection()
    connection.run(_LOST)
    pipelined = link.pipeline(_LOST)
    assert pipelined is not None
    assert link.connection().execute("PING") == b"PONG"
    assert link.connection() is connection
    assert pipelined.reply().status is TurnStatus.LOST
    assert connection.execute("ECHO", "in order") == b"in order"


def test_a_connection_with_a_late_pipelined_reply_is_not_reused(
    server: Server,
) -> None:
    with closing(_link_to(server, replace(DEFAULT_OPTIONS, read_seconds=0.3))) as link:
        first = link.connection()
        # The server executes the following commands only after this one has returned.
        first.send(command((pack(("BLPOP", "link:nothing", "1")),)))
        pipelined = link.pipeline(_LOST)
        assert pipelined is not None
        assert link.connection() is not first
        assert link.connection().execute("ECHO", "in order") == b"in order"
        with pytest.raises(ConnectionLost):
            pipelined.reply()


def test_a_pipelined_script_unknown_to_the_server_is_sent_as_text(link: Link) -> None:
    link.connection().execute("SCRIPT", "FLUSH")
    pipelined = link.pipeline(_LOST)
    assert pipelined is not None
    assert pipelined.reply().status is TurnStatus.LOST


def test_a_pipelined_reply_is_lost_if_its_connection_closes(link: Link) -> None:
    assert link.pipeline(_LOST) is None
    first = link.connection()
    pipelined = link.pipeline(_LOST)
    first.close()
    assert pipelined is not None
    with pytest.raises(ConnectionLost):
        pipelined.reply()
    link.failed(ConnectionLost("gone", "network"))
    assert link.connection().execute("PING") == b"PONG"
