"""Reloads and generations as they happen: the rollout in motion, and the answers to those who asked.

1. A reload reads the configuration; when it cannot be used, nothing changes and the faults are told.
2. What workers depend on makes a candidate generation; the rest is in force at once.
3. A candidate whose zygote is ready is promoted; when its workers have taken over, the reload is accepted.
   One that fails before is dropped, and the old one goes on.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rota.telemetry import events, log
from rota_supervisor.config.faults import ConfigError, Fault
from rota_supervisor.config.load import Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolve import log_settings, pool_sizes
from rota_supervisor.config.rules import served_queues
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.layout import Role
from rota_supervisor.master.backoff import Backoff
from rota_supervisor.master.children import LIVE, Child, PoolKey, State
from rota_supervisor.master.fleet import Fleet
from rota_supervisor.master.gauges import Gauges
from rota_supervisor.master.listening import Listening
from rota_supervisor.master.reload import (
    Change,
    change_between,
    faults_of_change,
    oversized_pools,
    unknown_overrides,
    unserved_queues,
)
from rota_supervisor.master.rollout import Generation, Rollout
from rota_supervisor.master.targets import Versions, worker_counts

Answer = dict[str, object]


@dataclass(slots=True)
class _Loading:
    """What is known of a candidate while it loads, and who waits to hear of it."""

    number: int
    changes: list[str]
    tasks: dict[str, str] = field(default_factory=dict)
    askers: list["asyncio.Future[Answer]"] = field(default_factory=list)

    @property
    def asked_for(self) -> bool:
        """Whether it is a reload: the first generation is none, unless something was changed while it loaded."""
        return bool(self.changes or self.askers)


class Reloading:
    """The rollout, the versions of pollers and exporter, and what TTIN and TTOU added.

    `fatal`: why the first generation will never work; there is nothing to go back to then.
    """

    def __init__(self, config: Config, read: Callable[[], Loaded], listening: Listening, gauges: Gauges) -> None:
        self.rollout = Rollout.first(config)
        self.versions = Versions()
        self.adjust: dict[str, int] = {}
        self._read = read
        self._listening = listening
        self._gauges = gauges
        self.fatal: Failure | None = None
        self._loading = _Loading(self.rollout.latest.number, [])
        self._has_worked = False

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.rollout.in_force.config

    # A reload is asked for

    def reload(self, asker: "asyncio.Future[Answer]", fleet: Fleet) -> None:
        """Read the configuration and apply or begin what changed; the asker hears what became of it."""
        try:
            loaded = self._read()
            config = loaded.config
            faults = [*faults_of_change(self.config, config), *oversized_pools(config)]
            if not faults:
                self._listening.prepare(config.http.listen)
        except ConfigError as error:
            faults = list(error.faults)
        except Failure as error:
            faults = [Fault("http.listen", text) for text in error.messages]
        if faults:
            self._reject(faults, [asker])
            return
        for warning in loaded.warnings:
            log.logger().warning(events.CONFIG_WARNING, warning=warning)
        self._take(config, asker, fleet)

    def _take(self, config: Config, asker: "asyncio.Future[Answer]", fleet: Fleet) -> None:
        latest = self.rollout.latest
        change = change_between(latest.config, config)
        if change.workers:
            self._begin_candidate(config, change, asker, fleet)
            return
        before = self.config
        self.rollout = self.rollout.with_config(config)
        self._enforce(before)
        if self.rollout.candidate is None:
            self._accept(change.words, [asker])
        else:  # what the candidate brings is changed, and goes with it when it is refused
            self._loading.changes = sorted({*self._loading.changes, *change.words})
            self._loading.askers.append(asker)

    def _begin_candidate(self, config: Config, change: Change, asker: "asyncio.Future[Answer]", fleet: Fleet) -> None:
        before = self.config
        superseded = self._loading
        proven = self.rollout.promoted and self._has_ready_everywhere(fleet)
        self.rollout = self.rollout.with_candidate(config, proven=proven)
        self._enforce(before)  # a promoted candidate that was not proven is given up for the one before it
        self._loading = _Loading(self.rollout.latest.number, change.words, askers=[asker])
        if proven and superseded.asked_for:  # it is in force, and what is gone back to
            self._accept(superseded.changes, superseded.askers)
        for waiting in superseded.askers:
            _answer(waiting, {"result": "failure", "faults": ["a later reload took its place"]})

    def _enforce(self, before: Config) -> None:
        """Take notice of what the configuration in force changes for pollers, exporter and counts."""
        change = change_between(before, self.config)
        pollers = self.versions.pollers + change.pollers
        exporter = self.versions.exporter + (change.exporter or change.listen)
        self.versions = Versions(pollers, exporter)
        self._listening.use(self.config.http.listen)
        if before.log != self.config.log:
            configure_log(self.config)
        old, new = pool_sizes(before), pool_sizes(self.config)
        self.adjust = {pool: more for pool, more in self.adjust.items() if old.get(pool) == new.get(pool)}

    # A generation makes its way

    def imported(self, zygote: Child, tasks: Mapping[str, str]) -> None:
        """A zygote told of tasks."""
        if zygote.generation == self._loading.number:
            self._loading.tasks.update(tasks)

    def import_failed(self, zygote: Child, module: str, error: str) -> None:
        """A zygote could not import a module. A candidate is refused; else its back-off tries again."""
        if self._is_loading(zygote.generation):
            self._refuse([Fault(f"imports: {module}", error)], ExitCode.CONFIG)

    def import_hung(self, zygote: Child) -> None:
        """A zygote was killed at its boot deadline: another try would hang as long."""
        if self._is_loading(zygote.generation):
            seconds = self.rollout.latest.config.limits.boot_seconds
            fault = Fault("imports", f"importing the modules took longer than limits.boot_seconds, {seconds:g} s")
            self._refuse([fault], ExitCode.GAVE_UP)

    def zygote_ready(self, zygote: Child) -> None:
        """A zygote has imported everything: its generation is promoted when all its tasks' queues are served."""
        if not self._is_loading(zygote.generation):
            return
        config = self.rollout.latest.config
        for name in unknown_overrides(config, self._loading.tasks):
            log.logger().warning(events.CONFIG_WARNING, path=f"tasks.{name}", warning="no imported task has this name")
        unserved = unserved_queues(config, self._loading.tasks)
        if unserved and config.unserved_queues == "error":
            self._refuse(unserved, ExitCode.CONFIG)
            return
        for fault in unserved:
            log.logger().warning(events.CONFIG_WARNING, path=fault.path, warning=fault.message)
        before = self.config
        self.rollout = self.rollout.promote()
        self._enforce(before)

    def settle(self, fleet: Fleet, backoffs: Mapping[PoolKey, Backoff]) -> bool:
        """Commit a candidate that has taken over, or give up one that never works; True when the first is in."""
        if self.rollout.candidate is not None:
            self._settle(self.rollout.candidate, fleet, backoffs)
        first = self.rollout.current is not None and not self._has_worked
        self._has_worked = self._has_worked or first
        return first

    def _settle(self, candidate: Generation, fleet: Fleet, backoffs: Mapping[PoolKey, Backoff]) -> None:
        for key, backoff in backoffs.items():
            if key.generation == candidate.number and key.role in (Role.ZYGOTE, Role.WORKER) and backoff.gave_up:
                self._refuse([self._fault_of_crash_loop(key, backoff)], ExitCode.GAVE_UP)
                return
        if self.rollout.promoted and self._has_taken_over(candidate.number, fleet):
            self.rollout = self.rollout.commit()
            if self._loading.asked_for:
                self._accept(self._loading.changes, self._loading.askers)

    @staticmethod
    def _fault_of_crash_loop(key: PoolKey, backoff: Backoff) -> Fault:
        what = "the process that imports the tasks" if key.role is Role.ZYGOTE else f"the workers of pool {key.pool!r}"
        return Fault("imports", f"{what} died {backoff.failures} times before being ready: see the log above")

    def _is_loading(self, number: int) -> bool:
        candidate = self.rollout.candidate
        return candidate is not None and candidate.number == number and not self.rollout.promoted

    def _has_taken_over(self, number: int, fleet: Fleet) -> bool:
        stale = [child for child in fleet.of(Role.WORKER) if child.state in LIVE and child.generation != number]
        return not stale and self._has_ready_everywhere(fleet)

    def _has_ready_everywhere(self, fleet: Fleet) -> bool:
        """Whether each pool that is to have workers now has one of the latest generation that is READY."""
        number = self.rollout.latest.number
        ready = {child.pool for child in fleet.of(Role.WORKER, State.READY) if child.generation == number}
        wanted = {pool for pool, count in worker_counts(self.rollout, self.adjust).items() if count}
        return wanted <= ready

    # What became of it

    def _refuse(self, faults: list[Fault], code: ExitCode) -> None:
        """Drop the candidate."""
        if self.rollout.current is None:
            self.fatal = Failure(code, *map(str, faults))
            return
        before = self.config
        self.rollout = self.rollout.roll_back()
        self._enforce(before)
        self._reject(faults, self._loading.askers)

    def _accept(self, changes: list[str], askers: list["asyncio.Future[Answer]"]) -> None:
        self._gauges.count_reload(success=True)
        self._gauges.show_recovered_queues(served_queues(self.config))
        log.logger().info(events.CONFIG_RELOADED, changes=changes, generation=self.rollout.in_force.number)
        for asker in askers:
            _answer(asker, {"result": "success", "changes": changes})
        askers.clear()

    def _reject(self, faults: list[Fault], askers: list["asyncio.Future[Answer]"]) -> None:
        self._gauges.count_reload(success=False)
        for fault in faults:
            log.logger().error(events.CONFIG_REJECTED, path=fault.path, error=fault.message, origin=fault.origin)
        for asker in askers:
            _answer(asker, {"result": "failure", "faults": [str(fault) for fault in faults]})
        askers.clear()


def configure_log(config: Config) -> None:
    """Set up the log of the master's process."""
    log.configure(log_settings(config), role=Role.MASTER.value, pid=os.getpid())


def _answer(asker: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not asker.done():
        asker.set_result(answer)
