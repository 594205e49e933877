"""The quiet window. Every accepted task must end, and a fleet without tasks must do nothing.

1. Wait until lanes, in-flight lists and the delayed set are empty, and both nodes have all their children. 2. Read the
holdings of the processes twice, a few seconds apart. They must not have grown.
3. Run the audit and record its result.
4. Stop both nodes, which must exit with 0 and leave nothing behind.
"""

import json
import signal
import time
from collections.abc import Callable
from typing import Any, Final

import redis

from rota.protocol.keys import Keys
from soak.evidence import QUIET_FILE, Quiet, now, write_whole
from soak.idle import ROLES, FleetHoldings, holdings_of
from soak.load import ORDER, TIERS
from soak.node import NAMESPACE
from soak.testbed import Testbed
from support.fleet_process import rota

END_SECONDS: Final = 90.0  # long enough for the last retries and the longest delays, once all nodes are complete
IDLE_SECONDS: Final = 4.0
_LEAVE_SECONDS: Final = 20.0
_GONE_SECONDS: Final = 3.0
_TICK_SECONDS: Final = 0.1
# A process may have grown by this much since the start of the soak, because a worker opens an event loop and a journal
# when it first needs them.
_MORE_DESCRIPTORS: Final = 6
_MORE_MEMORY_MB: Final = 12.0
_KEYS: Final = Keys(NAMESPACE)


def be_quiet(testbed: Testbed, at_start: FleetHoldings, keep_nodes: Callable[[], None]) -> FleetHoldings:
    """Run the quiet window, but do not stop the nodes. `at_start` has the holdings of the processes before the first
    task. Return their current holdings.
    """
    with redis.Redis.from_url(testbed.data_url, decode_responses=True, socket_timeout=10) as client:
        _wait_until_ended(testbed, client, keep_nodes)
        time.sleep(1.0)
        first = holdings_of(testbed.nodes.values())
        time.sleep(IDLE_SECONDS)
        last = holdings_of(testbed.nodes.values())
        if not any(node.is_changed for node in testbed.nodes.values()):
            testbed.oddities.extend(_grown_since_start(at_start, last))
        testbed.oddities.extend(f"nobody's child: {orphan}" for orphan in last.orphans)
        write_whole(testbed.folder / QUIET_FILE, _found(testbed, client, first, last))
    return last


def _wait_until_ended(testbed: Testbed, client: "redis.Redis", keep_nodes: Callable[[], None]) -> None:
    deadline = time.monotonic() + END_SECONDS
    waits = _waiting(client)
    while any(waits.values()) or not all(node.is_whole() for node in testbed.nodes.values()):
        if time.monotonic() > deadline:
            whole = {name: node.is_whole() for name, node in testbed.nodes.items()}
            testbed.oddities.append(f"not at rest after {END_SECONDS:g} s: {waits}, whole: {whole}")
            return
        keep_nodes()
        time.sleep(_TICK_SECONDS)
        waits = _waiting(client)


def _waiting(client: "redis.Redis") -> dict[str, int]:
    queues = (*sum(TIERS, ()), ORDER)
    lanes = [lane for queue in queues for lane in (_KEYS.ready_lane(queue), _KEYS.delayed_lane(queue))]
    return {
        "in_lanes": sum(_number(client.llen(lane)) for lane in lanes),
        "in_flight": sum(_number(client.llen(key)) for key in client.scan_iter(_glob(_KEYS.inflight("*")), count=1000)),
        "delayed": _number(client.zcard(_KEYS.delayed)),
        "groups": _number(client.zcard(_KEYS.groups)) + _number(client.hlen(_KEYS.members)),
    }


def _glob(key: str) -> str:
    return key.replace("{", "\\{").replace("}", "\\}")


def _number(reply: object) -> int:
    assert isinstance(reply, int)
    return reply


def _grown_since_start(start: FleetHoldings, last: FleetHoldings) -> list[str]:
    found = []
    for role in ROLES:
        then = start.most(role)
        today = last.most(role)
        if today.descriptors > then.descriptors + _MORE_DESCRIPTORS:
            found.append(f"{role}: {then.descriptors} descriptors at the start, {today.descriptors} at the end")
        if today.memory_mb > then.memory_mb + _MORE_MEMORY_MB:
            found.append(f"{role}: {then.memory_mb:.1f} MB at the start, {today.memory_mb:.1f} MB at the end")
    return found


def _found(testbed: Testbed, client: "redis.Redis", first: FleetHoldings, last: FleetHoldings) -> Quiet:
    grown = last.grown_since(first)
    audit = _audit(testbed)
    nodes = testbed.nodes.values()
    dead = client.zrange(_KEYS.dead, 0, -1)
    assert isinstance(dead, list)
    return Quiet(
        now()[1],
        **{name: audit[name] for name in ("accepted", "done", "cancelled", "expired", "missing")},
        dead=len(dead),
        **_waiting(client),
        workers_wanted=sum(node.configured for node in nodes),
        workers_ready=sum(child["state"] == "ready" for node in nodes for child in node.living("worker")),
        zombies=last.zombies,
        orphans=len(last.orphans),
        descriptors_grown=grown.descriptors,
        memory_grown_mb=grown.memory_mb,
        dead_ids=tuple(map(str, dead)),
    )


def _audit(testbed: Testbed) -> dict[str, Any]:
    node = next(iter(testbed.nodes.values()))
    reply = rota(node.folder, "audit", "--json")
    audit: dict[str, Any] = json.loads(reply.stdout)
    return audit


def leave(testbed: Testbed) -> None:
    """Stop all nodes, and add anything unusual about their exits to the oddities."""
    for node in testbed.nodes.values():
        node.is_leaving = True
        node.signal(signal.SIGTERM)
    deadline = time.monotonic() + _LEAVE_SECONDS
    while any(node.ended_with() is None for node in testbed.nodes.values()) and time.monotonic() < deadline:
        time.sleep(_TICK_SECONDS)
    for name, node in testbed.nodes.items():
        if node.ended_with() != 0:
            testbed.oddities.append(f"node {name}: exit code {node.ended_with()} after TERM with nothing to do")
        left = node.left_after(_GONE_SECONDS)
        testbed.oddities.extend(f"node {name} left behind: {process}" for process in left)
