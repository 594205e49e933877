"""A namespace with every kind of data that an export can contain, and functions that read its keys, so that two
namespaces can be compared.
"""

import json
from pathlib import Path
from typing import Any, Final

from rota.client.blocking.client import Client
from rota.protocol.groups import Into
from rota.protocol.keys import REBUILT, family_of
from rota.protocol.new_tasks import NewMember, NewTask, follow_text
from rota.protocol.outcome import DeadOutcome, Done, Outcome, Release, RetryOutcome
from rota.protocol.turns import RateRequest
from rota.tasks.periodic import Every
from support.grouping import Grouping
from support.protocol import Fleet, body_of, one_tier

DEAD: Final = DeadOutcome(b'{"reason":"raised","error":"ValueError"}')
RETRY: Final = RetryOutcome(60_000_000, b'{"reason":"raised"}')
_NOT_BYTES: Final = b'\xff not "UTF-8\n\x00'


def content_of(client: Any, namespace: str) -> dict[str, Any]:
    """Return a digest of the value of each exported key, by key name."""
    prefix = f"{{{namespace}}}:"
    found: dict[str, Any] = {}
    for raw in client.scan_iter(match=f"{prefix}*", count=1000):
        name = raw.decode(errors="surrogateescape").removeprefix(prefix)
        if family_of(name) not in REBUILT and name not in ("meta", "clock"):
            found[name] = client.execute_command("DEBUG", "DIGEST-VALUE", raw)[0]
    found["meta"] = client.hmget(f"{prefix}meta", "ended", "ended_keep")
    return found


def expiries_of(client: Any, namespace: str) -> dict[bytes, int]:
    """Return the expiry time of each key that expires, in milliseconds of Unix time."""
    prefix = f"{{{namespace}}}:".encode()
    found = {raw.removeprefix(prefix): client.pexpiretime(raw) for raw in client.scan_iter(match=prefix + b"*")}
    return {name: at_ms for name, at_ms in found.items() if at_ms > 0}


def counts_of(client: Any, namespace: str) -> dict[bytes, bytes]:
    """Return the nonzero counters of delayed and dead tasks."""
    counts = client.hgetall(f"{{{namespace}}}:counts")
    return {field: count for field, count in counts.items() if count != b"0" and not field.startswith(b"running:")}


def queues_with_entries(client: Any, namespace: str) -> set[bytes]:
    """Return the queues in the set `ready`. Claims check these queues first."""
    return set(client.smembers(f"{{{namespace}}}:ready"))


def fill(fleet: Fleet, client: Client) -> Grouping:
    """Write data to every key that an export contains. Return the driver of the groups, whose owner still holds a
    task.
    """
    groups = Grouping(fleet)
    _end_tasks(fleet)
    fleet.redis.hset(fleet.keys.meta, "ended_keep", 10_000)
    _wait(fleet)
    _push_bare_items(fleet)
    _follow(groups)
    fleet.run(fleet.store.pause("closed"))
    client.schedules.put("tick", "work", Every(30, queue="q"))
    client.schedules.put("nightly", "report", Every(86_400, queue="q"))
    client.schedules.pause("nightly")
    client.schedules.run_now("tick")
    fleet.redis.zadd(fleet.keys.schedules_declared, {"nightly": fleet.now_us()})
    fleet.redis.hset(fleet.keys.rates, "q", str(fleet.now_us() + 90_000_000))
    _hold(fleet, groups.owner)
    return groups


def _end_tasks(fleet: Fleet) -> None:
    """Run tasks that end with a result, end without one, become dead, or are retried."""
    fleet.redis.hset(
        fleet.keys.meta, "ended_keep", 5
    )  # a limit so low that the list of ended tasks loses entries, which marks it as incomplete
    ids = ("with-result", "ended", "buried", "failed", "given-back")
    fleet.push(*ids)
    owner = fleet.register()
    claims = fleet.turn(owner, one_tier("q"), limit=len(ids)).claims
    ends: tuple[Outcome, ...] = (Done(b'{"n":7}', 3_600_000), Done(), DEAD, RETRY, Release())
    fleet.turn(owner, one_tier("q"), *zip(claims, ends, strict=True), limit=0)
    fleet.exit(owner)


def _wait(fleet: Fleet) -> None:
    """Enqueue waiting tasks: in order, at the front, delayed, with unique keys, and under ids of cancelled tasks."""
    fleet.push("w1", "w2", "w3")
    fleet.push("first", due="^")
    fleet.push("later", due="+3600000000")
    fleet.push("later-first", due="+3600000000^")
    fleet.push("closed-1", queue="closed")
    body = json.dumps(["umlaut", "q", "work", ["Zürich \U0001f600"]], ensure_ascii=False).encode()
    fleet.enqueue(NewTask("umlaut", "q", body), NewTask("bytes", "q", _NOT_BYTES))
    fleet.enqueue(NewTask("keeps", "q", body_of("keeps"), unique_key="forever"))
    fleet.enqueue(NewTask("holds", "q", body_of("holds"), unique_key="an-hour", hold_ms=3_600_000))
    fleet.push("again", "cancelled")
    fleet.run(fleet.store.cancel("again"))
    fleet.push("again")
    fleet.run(fleet.store.cancel("cancelled"))
    owner = fleet.register()
    entry = fleet.turn(owner, one_tier("q")).claims[0].entry.text
    for _ in range(2):  # the rate permits the first start; the second one has to wait
        fleet.run(fleet.store.throttle(owner, RateRequest(entry, "slow", 3_600_000_000, 1)))


def _push_bare_items(fleet: Fleet) -> None:
    """Push items without the client, as other programs do. Some are not valid, and some are for unknown queues."""
    prefix = fleet.keys.tasks.removesuffix("tasks")
    for queue in ("q", "unknown"):
        fleet.redis.rpush(f"{prefix}queue:{queue}", '["bare","q","work",[]]', '["work",[]]', '["work",[]]')
        fleet.redis.rpush(f"{prefix}queue:{queue}", _NOT_BYTES, "")
    fleet.redis.zadd(fleet.keys.delayed, {'["bare","q","work",[1]]': 4_000_000_000.25})


def _follow(groups: Grouping) -> None:
    """Create tasks that follow others: a chain, a group with a dead member, an open group, and a group with a chain."""
    groups.chain("link-1", "link-2", "link-3")
    groups.open("g", "m1", "m2", then="end", on_dead="rescue")
    groups.add([NewMember(groups.task("m3"))], Into("open", groups.opening("end-2"), cursor=0))
    chain = NewMember(groups.task("m4"), follow_text([groups.task("m5", "+60000000")]))
    groups.add([chain], Into("chained", groups.opening("end-3"), closes=True))


def _hold(fleet: Fleet, owner: str) -> None:
    """Let this owner claim a task from the queue `running`, and leave the task in flight."""
    fleet.push("runs", queue="running")
    fleet.turn(owner, one_tier("running"))


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the records of an export file, one from each line."""
    return [json.loads(line) for line in path.read_text().splitlines()]
