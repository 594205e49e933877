"""The end of a child: why, what it means for its pool, and that its owner is retired."""

from typing import Final

from rota.telemetry import events, log
from rota_supervisor.layout import Role
from rota_supervisor.master.children import Child, Reason, State
from rota_supervisor.master.hands import Hands
from rota_supervisor.master.owners import Owners
from rota_supervisor.master.reap import Death, Ending, judge
from rota_supervisor.master.records import Records, now_seconds
from rota_supervisor.master.targets import Stage

_EVENTS: Final = {
    Role.WORKER: events.WORKER_EXITED,
    Role.ZYGOTE: events.ZYGOTE_EXITED,
    Role.POLLER: events.POLLER_EXITED,
    Role.EXPORTER: events.EXPORTER_EXITED,
}
_EXPECTED: Final = frozenset({Reason.SURPLUS, Reason.RELOAD, Reason.STOP, Reason.DRAINED})
_UNEXPLAINED: Final = frozenset({Reason.CRASH, Reason.SIGNAL})


class Deaths:
    """Takes in deaths, of processes that lived and of those that never came to be."""

    def __init__(self, records: Records, hands: Hands, owners: Owners) -> None:
        self._records = records
        self._hands = hands
        self._owners = owners

    def died(self, child: Child, ending: Ending) -> None:
        """A child's process was reaped."""
        death = judge(child, ending)
        child.move(State.EXITED)
        _say(death)
        self._feed_backoff(child, death.reason, from_outside=death.is_from_outside)
        if self._records.stop.stage is Stage.RUNNING and child.why is not Reason.SURPLUS:
            self._records.gauges.count_restart(child.role, death.reason)
        if child.role is Role.ZYGOTE and child.why is Reason.BOOT:
            self._records.reloading.import_hung(child)
        self._hands.let_go(child)
        self._give_back(death)

    def never_born(self, child: Child, error: str, *, from_outside: bool = False) -> None:
        """A child was asked for, and there is no process. `from_outside`: for no fault of its own."""
        log.logger().error(events.FLEET_CALL_FAILED, child=child.role.value, slot=child.slot, error=error)
        child.move(State.EXITED)
        self._feed_backoff(child, Reason.BOOT, from_outside=from_outside)
        self._give_back(Death(child, Reason.LOST, Ending(0)))

    def _give_back(self, death: Death) -> None:
        child = death.child
        if child.owner:
            self._records.background.start(self._owners.retire(death, self._records.config_of(child.generation)))
        else:
            self._owners.free(child)
        self._records.wake.set()

    def _feed_backoff(self, child: Child, reason: Reason, *, from_outside: bool) -> None:
        if reason in _EXPECTED or child.why in _EXPECTED:
            return
        backoff = self._records.backoff_of(child.key)
        now, limits = now_seconds(), self._records.config.restarts
        if child.ready_at is None:
            after = backoff.after_outside_kill if from_outside else backoff.after_failed_start
        elif reason in _UNEXPLAINED and self._was_idle(child) and now - child.ready_at < limits.healthy_seconds:
            after = backoff.after_early_death
        else:
            return
        self._records.backoffs[child.key] = after(child.asked_at, now, limits)

    def _was_idle(self, child: Child) -> bool:
        return self._records.memory.slot(child.slot).current_task() is None


def _say(death: Death) -> None:
    child = death.child
    say = log.logger().info if death.reason in _EXPECTED else log.logger().warning
    say(
        _EVENTS[child.role],
        slot=child.slot,
        child_pid=child.pid,
        generation=child.generation,
        reason=death.reason.value,
        words=death.words,
    )
