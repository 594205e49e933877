"""Schedules that a node no longer declares. If no other node is alive, the node removes them at once."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from rota.protocol.schedule_store import DeclaredSchedule, DeclareStatus, RemoveStatus, ScheduleStore
from rota.protocol.scripts import ScriptCall
from rota.server.aio_connection import AioConnection
from rota.server.server_errors import ConnectionLost, Refused
from rota_supervisor.master.effects.master_redis import ScheduleDeclarer

TICK = DeclaredSchedule("tick", b"{}")
NIGHTLY = DeclaredSchedule("nightly", b"{}")


class Node:
    """The heartbeats of a master, with a fake server."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.status = DeclareStatus.KEPT
        self.fail: list[Exception] = []
        self._declaring = ScheduleDeclarer(cast(AioConnection, self), ScheduleStore("n"))

    async def run(self, call: ScriptCall[Any]) -> Any:
        args = [part.decode() for part in call.args.data.split(b"\r\n")[1::2]]
        if call.script.name == "declare":
            return [self.status] * (len(args) // 3)
        if self.fail:
            raise self.fail.pop()
        self.removed.append(args[0])
        return RemoveStatus.REMOVED

    def beat(
        self, schedules: Sequence[DeclaredSchedule], *, is_only_node: bool = True, is_settled: bool = True
    ) -> list[str]:
        """Send a heartbeat that declares these schedules. Return the names of all schedules that were removed
        so far.
        """

        async def beat() -> None:
            await self._declaring.declare(schedules, 20_000)
            if is_settled:
                await self._declaring.withdraw(schedules, is_only_node=is_only_node)

        asyncio.run(beat())
        return self.removed


@pytest.fixture
def node() -> Node:
    node = Node()
    assert node.beat([TICK, NIGHTLY]) == []
    return node


def test_the_only_node_removes_a_withdrawn_schedule_once(node: Node) -> None:
    assert node.beat([TICK]) == ["nightly"]
    assert node.beat([TICK]) == ["nightly"]
    assert node.beat([]) == ["nightly", "tick"]


def test_with_other_nodes_a_withdrawn_schedule_is_not_removed(node: Node) -> None:
    assert node.beat([TICK], is_only_node=False) == []
    assert node.beat([TICK]) == []


def test_a_withdrawn_schedule_is_removed_only_once_the_reload_succeeded(node: Node) -> None:
    assert node.beat([TICK], is_settled=False) == []
    assert node.beat([TICK, NIGHTLY]) == []
    node.beat([TICK], is_settled=False)
    assert node.beat([TICK]) == ["nightly"]


def test_after_a_lost_reply_the_next_heartbeat_removes_the_schedule(node: Node) -> None:
    node.fail = [ConnectionLost("gone", "network")]
    with pytest.raises(ConnectionLost):
        node.beat([TICK])
    node.status = DeclareStatus.NEW  # the lost call removed the schedule, so this call declares it again briefly
    assert node.beat([TICK]) == ["nightly"]


def test_no_schedule_is_removed_if_redis_refuses_or_a_client_replaced_it(node: Node) -> None:
    node.fail = [Refused("NOPERM", "acl")]
    assert node.beat([TICK]) == []
    node.status = DeclareStatus.CLIENT
    assert node.beat([]) == []
