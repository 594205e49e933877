"""The end of a child: why, what it means for its pool, and that its owner is retired."""

from typing import Final

from rota.child.slots import boottime_ns
from rota.telemetry import events, log
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child, Reason, State
from rota_supervisor.master.children.hands import Hands
from rota_supervisor.master.children.told import NO_TIERS
from rota_supervisor.master.deaths.account import Death, Scene, fields_of, judge
from rota_supervisor.master.deaths.reap import EXPECTED, Ending
from rota_supervisor.master.owners.owners import Owners
from rota_supervisor.master.planning.backoff import End
from rota_supervisor.master.planning.targets import Stage
from rota_supervisor.master.records import Records, now_seconds

_EVENTS: Final = {
    Role.WORKER: events.WORKER_EXITED,
    Role.ZYGOTE: events.ZYGOTE_EXITED,
    Role.POLLER: events.POLLER_EXITED,
    Role.EXPORTER: events.EXPORTER_EXITED,
}
_UNEXPLAINED: Final = frozenset({Reason.CRASH, Reason.SIGNAL})


class Deaths:
    """Takes in deaths, of processes that lived and of those that never came to be."""

    def __init__(self, records: Records, hands: Hands, owners: Owners) -> None:
        self._records = records
        self._hands = hands
        self._owners = owners

    def died(self, child: Child, ending: Ending) -> None:
        """A child's process was reaped."""
        death = judge(child, ending, self._scene(child))
        child.move(State.EXITED)
        self._say(death)
        self._feed_backoff(child, death.reason, death.words, from_outside=death.is_from_outside)
        if self._records.stop.stage is Stage.RUNNING and child.why is not Reason.SURPLUS:
            self._records.gauges.count_restart(child.role, death.reason)
        if child.ready_at is None:
            self._records.reloading.died_starting(death)
        self._hands.let_go(child)
        self._hands.stacks.close(child)
        self._give_back(death)

    def _scene(self, child: Child) -> Scene:
        stage = self._records.stop.stage
        return Scene(
            self._records.config_of(child.generation).limits,
            boottime_ns(),
            self._records.memory.slot(child.slot).current_task(),
            self._hands.stacks.text(child),
            leaving=stage is not Stage.RUNNING,
            at_once=stage is Stage.AT_ONCE,
        )

    def _say(self, death: Death) -> None:
        """One event a death. One that nobody wanted is kept, for people who ask for the status."""
        said = fields_of(death)
        if death.reason in EXPECTED and not death.is_late:
            log.logger().info(_event_of(death), **said)
        else:
            log.logger().warning(_event_of(death), **said)
            self._records.last_death = {**said, "at": now_seconds()}

    def never_born(self, child: Child, error: str, *, from_outside: bool = False) -> None:
        """A child was asked for, and there is no process. `from_outside`: for no fault of its own."""
        say = log.logger().info if child.why in EXPECTED else log.logger().error
        say(events.FLEET_CALL_FAILED, child=child.role.value, slot=child.slot, error=error)
        child.move(State.EXITED)
        self._feed_backoff(child, Reason.BOOT, error, from_outside=from_outside)
        death = Death(child, Reason.LOST, Ending(0), self._scene(child))
        self._hands.stacks.close(child)
        self._give_back(death)

    def _give_back(self, death: Death) -> None:
        child = death.child
        if child.owner:
            told = self._records.told_to(child)
            limits = self._records.config_of(child.generation).restarts
            tiers = NO_TIERS if told is None else told.tiers
            self._records.background.start(self._owners.retire(death, limits, tiers))
        else:
            self._owners.free(child)
        self._records.wake.set()

    def _feed_backoff(self, child: Child, reason: Reason, words: str, *, from_outside: bool) -> None:
        if reason in EXPECTED or child.why in EXPECTED:
            return
        slot = self._records.memory.slot(child.slot)
        end = End(
            child.asked_at,
            now_seconds(),
            child.ready_at,
            explained=reason not in _UNEXPLAINED,
            from_outside=from_outside,
            in_task=slot.current_task() is not None,
            has_worked=child.ready_at is not None and slot.tasks_ended > 0,
            words=words,
        )
        after = self._records.backoff_of(child.key).after_end(end, self._records.config.restarts)
        self._records.backoffs[child.key] = after


def _event_of(death: Death) -> str:
    """Of a worker the name says whether its master ended it."""
    child = death.child
    if child.role is not Role.WORKER or child.why is not death.reason or death.ending.signal_name != "SIGKILL":
        return _EVENTS[child.role]
    return events.WORKER_HUNG if death.reason is Reason.HUNG else events.WORKER_KILLED
