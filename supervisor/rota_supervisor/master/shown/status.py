"""What people are shown of a fleet: one JSON object, for the control socket and for the log."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rota.child.slot_memory import SlotMemory
from rota.child.slot_task import CurrentTask
from rota.child.slots import Phase, boottime_ns
from rota.server.address import redact
from rota_supervisor.config.resolve import pool_sizes
from rota_supervisor.control.port import Answer
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child, State
from rota_supervisor.master.children.observing import NANOSECONDS
from rota_supervisor.master.planning.backoff import Standing
from rota_supervisor.master.planning.scaling import origin_of
from rota_supervisor.master.records import Records, now_seconds
from rota_supervisor.master.redis_watch import RedisWatch
from rota_supervisor.master.reload.listening import Listening

_RUNS_TASKS: Final = frozenset({State.READY, State.DRAINING})
_WORDS: Final = {
    Phase.BOOTING: "starting",
    Phase.IDLE: "running",
    Phase.QUIET: "quiet",
    Phase.DRAINING: "draining",
}


@dataclass(frozen=True, slots=True)
class Status:
    """Looks at a fleet. `node`: its name."""

    node: str
    records: Records
    redis: RedisWatch
    listening: Listening
    started_at: float = field(default_factory=time.monotonic)

    def __call__(self) -> Answer:
        """The fleet as it stands."""
        records = self.records
        rollout = records.reloading.rollout
        return {
            "node": self.node,
            "pid": os.getpid(),
            "namespace": records.config.namespace,
            "state": _WORDS[records.phase],
            "uptime_seconds": round(time.monotonic() - self.started_at, 1),
            "redis": redact(records.config.redis_url),
            "redis_up": self.redis.up is True,
            "listen": self.listening.place,
            "generation": rollout.in_force.number,
            "loading": rollout.latest.number != rollout.in_force.number,
            "last_reload": _dated(records.last_reload),
            "last_death": _dated(records.last_death),
            "held": [held.row(now_seconds()) for held in records.held],
            "pools": pools_of(records),
            "children": children_of(records.fleet, records.memory),
        }


def _dated(event: Mapping[str, Any] | None) -> Answer | None:
    """What happened, with its time by the wall clock."""
    return None if event is None else {**event, "at": round(time.time() - (now_seconds() - event["at"]), 3)}


def pools_of(records: Records) -> list[dict[str, object]]:
    """A row a pool: how many workers it should have, who says so, and what it has."""
    generation, scaling = records.reloading.rollout.in_force, records.reloading.scaling
    sizes = pool_sizes(generation.config)
    standings = {held.pool: held.state for held in records.held if held.role == Role.WORKER}
    workers = records.fleet.of(Role.WORKER)
    ready = Counter(child.pool for child in workers if child.state is State.READY)
    quiet = Counter(child.pool for child in workers if child.state is State.READY and child.is_quiet)
    busy = Counter(child.pool for child in workers if _task_of(child, records.memory) is not None)
    return [
        {
            "pool": pool,
            "state": standings.get(pool, Standing.RUNNING.value),
            "desired": count,
            "origin": origin_of(pool, generation, scaling),
            "configured": sizes[pool],
            "ready": ready[pool],
            "busy": busy[pool],
            "quiet": quiet[pool],
        }
        for pool, count in scaling.counts(sizes).items()
    ]


def children_of(children: Iterable[Child], memory: SlotMemory) -> list[dict[str, object]]:
    """A row a child, by slot."""
    return [_row(child, memory) for child in sorted(children, key=lambda child: child.slot)]


def _row(child: Child, memory: SlotMemory) -> dict[str, object]:
    slot = memory.slot(child.slot)
    task = _task_of(child, memory)
    now_ns = boottime_ns()
    return {
        "slot": child.slot,
        "role": child.role.value,
        "pool": child.pool if child.role is Role.WORKER else "",
        "generation": child.generation,
        "pid": child.pid,
        "state": child.state.value,
        "quiet": child.is_quiet,
        "ready_seconds": round(now_ns / NANOSECONDS - child.ready_at, 1) if child.ready_at is not None else None,
        "beat_age_seconds": round(max(0, now_ns - slot.beat_ns) / NANOSECONDS, 3),
        "task": task.name if task else "",
        "task_id": task.id if task else "",
        "task_seconds": round((now_ns - task.started_ns) / NANOSECONDS, 3) if task else 0.0,
    }


def _task_of(child: Child, memory: SlotMemory) -> CurrentTask | None:
    return memory.slot(child.slot).current_task() if child.state in _RUNS_TASKS else None
