"""Handwritten `/status.json` documents of a healthy fleet, to which tests can make changes."""

from typing import Any

NOW = 1_000_000.0
KILLED = "worker in slot 8 of pool default, in task img.cut: killed by SIGSEGV: native code failed"
Status = dict[str, Any]
POOL: Status = {"name": "default", "desired": 4, "state": "running", "workers": {"running": 4}, "busy": 0}


def task(name: str = "mail.send", queue: str = "mail", **changes: Any) -> dict[str, Any]:
    row = {"place": 0, "task": {"id": "id-1", "name": name, "queue": queue}, "task_age_seconds": 0.5}
    return row | {"limit_seconds": None, "left_seconds": None, "progress": None} | changes


def process(slot: int, role: str = "worker", *tasks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    row = {
        "slot": slot,
        "role": role,
        "pool": "default",
        "pid": 4000 + slot,
        "state": "ready",
        "phase": "idle",
        "beat_age_seconds": 0.1,
    }
    return row | {"concurrency": 1, "tasks": list(tasks)} | changes


def queue(name: str = "mail", objective: float | None = 5.0, **state: Any) -> dict[str, Any]:
    told = {
        "ready": 0, "scheduled": 0, "overdue": 0, "inflight": 0, "dead": 0, "accepted": 9,
        "oldest_ready_age_seconds": 0.0, "oldest_overdue_age_seconds": 0.0, "paused": False, "served": True,
        "closed_age_seconds": 0.0, "closed_by": "", "condition_error": "",
    }  # fmt: skip
    lag = {"window_seconds": 300.0, "starts": 10, "p50_seconds": 0.01, "p99_seconds": 0.2}
    history = {"started": [5, 5], "done": [5, 5], "p50": [0.1, None], "p99": [0.2, None]}
    row = {"name": name, "lag_objective_seconds": objective, "state": told | state, "lag": lag, "history": history}
    return row | {"pattern": None, "processed": {"done": 10}, "attempts": {"done": 10, "failed": 0}} | in_time()


def in_time() -> dict[str, Any]:
    late = {"now": False, "too_many": False, "starts": 0, "worst_seconds": 0.0, "until": None}
    return {"lag_target": 0.99, "worst_lag_seconds": 0.2, "late": late}


def late_by(seconds: float, *, seconds_ago: float = 1.0) -> dict[str, Any]:
    """Return the status fields of a queue whose tasks started with this lag, the last of them `seconds_ago`."""
    is_now = seconds_ago <= 10
    late = {"now": is_now, "too_many": True, "starts": 3, "worst_seconds": seconds, "until": NOW - seconds_ago}
    return {"lag_target": 0.99, "worst_lag_seconds": seconds if is_now else 0.0, "late": late}


def event(name: str, seconds_ago: float, level: str = "warning", **fields: Any) -> dict[str, Any]:
    return {"n": 1, "at": NOW - seconds_ago, "level": level, "event": name, "text": "", "fields": fields}


def death(seconds_ago: float, **fields: Any) -> dict[str, Any]:
    told = {"child": "worker", "slot": 8, "words": "killed by SIGSEGV: native code failed", **fields}
    return event("worker.exited", seconds_ago, **told) | {"text": KILLED}


def healthy() -> Status:
    return {
        "at": NOW,
        "fleet": "shop",
        "node": "a",
        "version": "1.0",
        "started_at": NOW - 3600,
        "history": {"step_seconds": 5.0, "ends_at": NOW, "length": 2},
        "overall": {"started": [5, 5], "done": [5, 5], "p50": [0.1, None], "p99": [0.2, None]},
        "redis_up": True,
        "redis_asked": True,
        "redis_round_trip_seconds": 0.0004,
        "queue_states_age_seconds": 0.1,
        "evicts_keys": False,
        "unplaced_tasks": 0,
        "orphans": 0,
        "forgotten_after_seconds": 3600.0,
        "missing_tasks": 0,
        "ready": {"ok": True, "checks": [{"name": "redis", "ok": True, "seen": "the master reaches Redis"}]},
        "held": [],
        "pools": [],
        "processes": [process(0, "master"), process(2, "poller"), process(8)],
        "queues": [queue()],
        "nodes": [{"node": "a", "state": "running", "seen_seconds_ago": 0.5}],
        "events": [],
        "last_reload": {"result": "success", "changes": [], "at": NOW - 60},
        "quiet_seconds": 0.0,
    }


HELD = {
    "role": "worker", "pool": "default", "state": "fatal", "failures_in_a_row": 9, "next_try_seconds": 3.0,
    "last_error": "hook on_worker_start failed: no key",
}  # fmt: skip


def busy() -> Status:
    """Return the status of a busy fleet: queues in three tiers, one of them late and one paused, and a second node."""
    steps = 60
    history = {
        "started": [40 + at % 7 * 5 for at in range(steps)],
        "done": [38 + at % 7 * 5 for at in range(steps)],
        "p50": [None, *[0.004 + at % 5 / 1000 for at in range(1, steps)]],
        "p99": [None, *[0.03 + at * at / 500 for at in range(1, steps)]],
    }
    names = ["password-reset", "sold-email", "expired-email", "default", "reports"]
    rows = {name: queue(name) | {"history": history, "tier": min(3, 1 + at // 2)} for at, name in enumerate(names)}
    rows["sold-email"]["state"] |= {"ready": 1234, "scheduled": 17, "oldest_ready_age_seconds": 94.0, "inflight": 4}
    rows["expired-email"]["state"] |= {"paused": True, "closed_age_seconds": 7380.0, "ready": 3}
    rows["reports"]["state"] |= {"dead": 12}
    running = [process(slot, "worker", task(queue="sold-email"), phase="busy", pool="default") for slot in range(8, 12)]
    others = [process(0, "master"), process(2, "poller"), process(4, "exporter")]
    running[0]["tasks"][0] |= {"task_age_seconds": 25.0, "limit_seconds": 30.0}
    node = {"state": "running", "version": "1.0", "workers": 4, "desired": 4, "busy": 4, "concurrency": 4}
    node |= {"done_per_second": 9.5, "lag_p99_seconds": 2.5, "last_death": None, "seen_seconds_ago": 0.4}
    return healthy() | {
        "overall": history,
        "history": {"step_seconds": 5.0, "ends_at": NOW, "length": steps},
        "pools": [POOL],
        "processes": others + running,
        "queues": list(rows.values()),
        "nodes": [
            node | {"node": "a", "is_this": True},
            node | {"node": "b", "state": "lost", "seen_seconds_ago": 34.0},
        ],
        "events": [
            event("fleet.ready", 60, "info") | {"text": "ready: 4 workers"},
            death(20) | {"n": 2},
        ],
    }
