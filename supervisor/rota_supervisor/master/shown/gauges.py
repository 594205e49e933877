"""The master's own numbers, in slot 0: what it does with its children, its configuration and Redis."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping

from rota.protocol.replies import Retired
from rota.telemetry import metrics as m
from rota.telemetry.recorder import Recorder
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child, Reason, State

_STATE_LABELS = {
    State.REGISTERING: "booting",
    State.ASKED: "booting",
    State.BOOTING: "booting",
    State.READY: "running",
    State.DRAINING: "draining",
    State.KILLED: "draining",
}
_RESTARTS = {
    Reason.DRAINED: Reason.RELOAD,
    Reason.SURPLUS: Reason.RELOAD,
    Reason.STOP: Reason.RELOAD,
    Reason.LOST: Reason.CRASH,
}


def _label(child: Child) -> str:
    is_quiet = child.is_quiet and child.state is State.READY
    return "quiet" if is_quiet else _STATE_LABELS[child.state]


class Gauges:
    """Writes the definitions marked MASTER."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pools: set[str] = set()
        recorder.gauge(m.CONFIG_LAST_RELOAD_SUCCESSFUL).set(1)
        recorder.gauge(m.CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP).set(time.time())
        for result in m.RELOAD_RESULTS:
            recorder.counter(m.CONFIG_RELOADS, result)
        for role in (Role.WORKER, Role.POLLER, Role.EXPORTER, Role.ZYGOTE):
            for reason in m.RESTART_REASONS:
                recorder.counter(m.PROCESS_RESTARTS, role.value, reason)
        recorder.counter(m.LEASES_LOST)
        recorder.gauge(m.REDIS_UP).set(0)

    def show_workers(
        self, counts: Mapping[str, int], waiting: Mapping[tuple[str, str], int], children: Iterable[Child]
    ) -> None:
        """Workers by pool and state; `counts` are those desired, `waiting` those that are not started yet."""
        states = Counter(
            (child.pool, _label(child))
            for child in children
            if child.role is Role.WORKER and child.state is not State.EXITED
        )
        states.update(waiting)
        for pool in self._pools - counts.keys():
            self._recorder.gauge(m.WORKERS_DESIRED, pool).set(math.nan)
        self._pools |= counts.keys()
        for pool, count in counts.items():
            self._recorder.gauge(m.WORKERS_DESIRED, pool).set(count)
        for pool in self._pools:
            for state in m.WORKER_STATES:
                shown = states[pool, state] if pool in counts or states[pool, state] else math.nan
                self._recorder.gauge(m.WORKERS, pool, state).set(shown)

    def count_restart(self, role: Role, reason: Reason) -> None:
        """A child died that is to be replaced."""
        self._recorder.counter(m.PROCESS_RESTARTS, role.value, _RESTARTS.get(reason, reason).value).add()

    def count_retired(self, retired: Retired, task_name: str) -> None:
        """Entries that a dead worker held are back in their lanes; the task that ran is dead, if this was its last."""
        for entry in retired.requeued:
            self._recorder.counter(m.TASKS_RECOVERED, entry.queue, "child_exit").add()
        for entry in retired.dead:
            self._recorder.counter(m.TASKS_DEAD, entry.queue, task_name, "crashed").add()
            self._recorder.counter(m.TASKS_PROCESSED, entry.queue, task_name, "dead").add()

    def show_recovered_queues(self, queues: Iterable[str]) -> None:
        """Have the counters of these queues there from the start, at 0."""
        for queue in queues:
            self._recorder.counter(m.TASKS_RECOVERED, queue, "child_exit")

    def count_reload(self, *, success: bool) -> None:
        """A reload was accepted or rejected."""
        self._recorder.counter(m.CONFIG_RELOADS, "success" if success else "failure").add()
        self._recorder.gauge(m.CONFIG_LAST_RELOAD_SUCCESSFUL).set(int(success))
        if success:
            self._recorder.gauge(m.CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP).set(time.time())

    def show_redis(self, *, up: bool) -> None:
        """Whether Redis answers."""
        self._recorder.gauge(m.REDIS_UP).set(int(up))

    def show_eviction(self, *, on: bool) -> None:
        """Whether Redis is set to drop keys."""
        self._recorder.gauge(m.REDIS_EVICTS_KEYS).set(int(on))

    def count_redis_error(self, reason: str) -> None:
        """A call to Redis failed."""
        self._recorder.counter(m.REDIS_ERRORS, reason).add()

    def count_lost_lease(self) -> None:
        """A living worker's lease was lost."""
        self._recorder.counter(m.LEASES_LOST).add()
