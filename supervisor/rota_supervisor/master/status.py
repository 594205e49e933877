"""What the control socket shows: the fleet as one JSON object."""

from collections.abc import Iterable, Mapping

from rota.child.slot_memory import SlotMemory
from rota.child.slots import CurrentTask, boottime_ns
from rota_supervisor.layout import Role
from rota_supervisor.master.children import Child, State

_RUNS_TASKS = frozenset({State.READY, State.DRAINING})


def pools_of(counts: Mapping[str, int], children: Iterable[Child], memory: SlotMemory) -> list[dict[str, object]]:
    """A row a pool: how many workers it should have and has."""
    workers = [child for child in children if child.role is Role.WORKER]
    busy = [child.pool for child in workers if _task_of(child, memory) is not None]
    return [
        {
            "pool": pool,
            "desired": count,
            "ready": sum(child.pool == pool and child.state is State.READY for child in workers),
            "busy": busy.count(pool),
        }
        for pool, count in counts.items()
    ]


def children_of(children: Iterable[Child], memory: SlotMemory) -> list[dict[str, object]]:
    """A row a child, by slot."""
    return [_row(child, memory) for child in sorted(children, key=lambda child: child.slot)]


def _row(child: Child, memory: SlotMemory) -> dict[str, object]:
    slot = memory.slot(child.slot)
    task = _task_of(child, memory)
    age_ns = boottime_ns() - slot.beat_ns
    return {
        "slot": child.slot,
        "role": child.role.value,
        "pool": child.pool if child.role is Role.WORKER else "",
        "generation": child.generation,
        "pid": child.pid,
        "state": child.state.value,
        "beat_age_seconds": round(max(0, age_ns) / 1e9, 3),
        "task": task.name if task else "",
        "task_id": task.id if task else "",
        "task_seconds": round((boottime_ns() - task.started_ns) / 1e9, 3) if task else 0.0,
    }


def _task_of(child: Child, memory: SlotMemory) -> CurrentTask | None:
    return memory.slot(child.slot).current_task() if child.state in _RUNS_TASKS else None
