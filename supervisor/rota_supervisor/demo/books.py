"""What the fleet says of itself in `/status.json`, as far as the demo goes by it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LagNumbers:
    """Quantiles of the lag of the last minutes in seconds; None when nothing started."""

    p50: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    """One queue. What only Redis knows is None while Redis is away."""

    ready: int | None
    scheduled: int | None
    inflight: int | None
    accepted: int
    done: int
    lag: LagNumbers = LagNumbers()


@dataclass(frozen=True, slots=True)
class FleetBooks:
    """One answer. `restarts` by role and reason, those that happened; `missing` by the audit; `early`: how many tasks
    the workers counted that started before they were due."""

    queues: Mapping[str, QueueNumbers]
    running: int
    desired: int
    restarts: Mapping[tuple[str, str], int]
    recovered: int
    early: int
    missing: int | None

    @property
    def enqueued(self) -> int:
        """Tasks that Redis has taken."""
        return sum(queue.accepted for queue in self.queues.values())

    @property
    def done(self) -> int:
        """Attempts that ended well, by the workers' counters."""
        return sum(queue.done for queue in self.queues.values())

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or runs anywhere."""
        return all(queue.ready == queue.scheduled == queue.inflight == 0 for queue in self.queues.values())


def read_books(status: Mapping[str, Any], queues: Iterable[str]) -> FleetBooks:
    """Read what `/status.json` answered. Raises KeyError when it is not of these queues' fleet."""
    rows = {row["name"]: row for row in status["queues"]}
    return FleetBooks(
        queues={queue: _queue(rows[queue]) for queue in queues},
        running=sum(pool["workers"].get("running", 0) for pool in status["pools"]),
        desired=sum(pool["desired"] for pool in status["pools"]),
        restarts={(row["role"], row["reason"]): row["count"] for row in status["restarts"]},
        recovered=status["recovered"],
        early=status["early_starts"],
        missing=status["missing_tasks"],
    )


def _queue(row: Mapping[str, Any]) -> QueueNumbers:
    state, lag = row["state"] or {}, row["lag"] or {}
    return QueueNumbers(
        ready=state.get("ready"),
        scheduled=state.get("scheduled"),
        inflight=state.get("inflight"),
        accepted=state.get("accepted", 0),
        done=row["processed"].get("done", 0),
        lag=LagNumbers(lag.get("p50_seconds"), lag.get("p99_seconds")),
    )
