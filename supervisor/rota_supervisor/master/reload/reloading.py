"""Reloads and generations as they happen: the rollout in motion.

1. A reload reads the configuration; when it cannot be used, nothing changes and the faults are told.
2. What workers depend on makes a candidate generation; the rest is in force at once.
3. A candidate is promoted when its code is loaded, at once when it brings none of its own; when its workers have taken
   over, the reload is accepted. One that fails before is dropped, and the old one goes on.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from rota.telemetry import events, log
from rota_supervisor.config.faults import ConfigError, Fault
from rota_supervisor.config.load import Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolve import log_settings, pool_sizes
from rota_supervisor.control.port import Answer
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import LIVE, Child, PoolKey, Reason, State
from rota_supervisor.master.children.fleet import Fleet
from rota_supervisor.master.deaths.account import Death
from rota_supervisor.master.planning.backoff import Backoff
from rota_supervisor.master.planning.scaling import Scaling
from rota_supervisor.master.planning.targets import Versions, worker_counts
from rota_supervisor.master.reload.change import (
    Change,
    change_between,
    faults_of_change,
    oversized_pools,
    unknown_overrides,
    unserved_queues,
)
from rota_supervisor.master.reload.listening import Listening
from rota_supervisor.master.reload.loading import Codes, Loading, failed_pool
from rota_supervisor.master.reload.previewing import preview_of
from rota_supervisor.master.reload.rollout import Generation, Rollout
from rota_supervisor.master.reload.verdicts import Verdicts, fault_of_crash_loop, fault_of_death
from rota_supervisor.master.shown.gauges import Gauges


class Reloading:
    """The rollout, the versions of pollers and exporter, and the numbers that operators gave to pools.

    `fatal`: why the first generation will never work; there is nothing to go back to then. `asked`: how many reloads
    were asked for. `content`: what stood in the configuration's file when it was last read.
    """

    def __init__(self, first: Loaded, read: Callable[[], Loaded], listening: Listening, gauges: Gauges) -> None:
        self.rollout = Rollout.first(first.config, first.origins)
        self.versions = Versions()
        self.scaling = Scaling()
        self.asked = 0
        self.content = first.content
        self._read = read
        self._listening = listening
        self._verdicts = Verdicts(gauges)
        self.fatal: Failure | None = None
        self._loading = Loading([])
        self._codes = Codes(self.rollout.generations)
        self._has_worked = False

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.rollout.in_force.config

    # A reload is asked for

    def reload(self, asker: "asyncio.Future[Answer]", fleet: Fleet, *, fresh: bool = False) -> None:
        """Read the configuration and apply or begin what changed; the asker hears what became of it.

        `fresh`: load the code again and replace all workers, whatever changed.
        """
        self.asked += 1
        loaded, faults = self._look(self._listening.prepare)
        self.content = loaded.content
        if faults:
            self._verdicts.rejected(faults, [asker])
            return
        for warning in loaded.warnings:
            log.logger().warning(events.CONFIG_WARNING, warning=warning)
        change = change_between(self.rollout.latest.config, loaded.config)
        self._take(loaded, replace(change, code=change.code or fresh), asker, fleet)

    def preview(self) -> Answer:
        """What a reload would do now, in words and as data; nothing is touched, and no code is imported."""
        loaded, faults = self._look(self._listening.probe)
        faults = faults or self._faults_of_queues(loaded.config)
        return preview_of(self.rollout.latest, loaded, faults, self.scaling)

    def _faults_of_queues(self, config: Config) -> list[Fault]:
        """For which a candidate would be refused as soon as its code is loaded, if that is the code there is."""
        latest = self.rollout.latest
        change, code = change_between(latest.config, config), self._codes.of(latest.code)
        is_known = change.has_stale and not change.code and code.is_loaded
        return unserved_queues(config, code.tasks) if is_known and config.unserved_queues == "error" else []

    def _look(self, listen: Callable[[str], None]) -> tuple[Loaded, list[Fault]]:
        """Read the configuration; `listen` tries its listening place. What is loaded is of use without faults only."""
        try:
            loaded = self._read()
        except ConfigError as error:
            return Loaded(error.usable, {}, (), error.content), list(error.faults)
        config = loaded.config
        faults = [*faults_of_change(self.config, config), *oversized_pools(config)]
        faults += self.scaling.faults(pool_sizes(config))
        try:
            if not faults:
                listen(config.http.listen)
        except Failure as error:
            faults = [Fault("http.listen", text.removeprefix("http.listen = ")) for text in error.messages]
        return loaded, faults

    def _take(self, loaded: Loaded, change: Change, asker: "asyncio.Future[Answer]", fleet: Fleet) -> None:
        if change.workers:
            self._begin_candidate(loaded, change, asker, fleet)
            return
        before = self.config
        self.rollout = self.rollout.with_config(loaded.config, loaded.origins, change.pools)
        self._enforce(before)
        if self.rollout.candidate is None:
            self._verdicts.accepted(self.rollout.in_force, change.words, [asker])
        else:  # what the candidate brings is changed, and goes with it when it is refused
            self._loading.changes = sorted({*self._loading.changes, *change.words})
            self._loading.askers.append(asker)

    def _begin_candidate(self, loaded: Loaded, change: Change, asker: "asyncio.Future[Answer]", fleet: Fleet) -> None:
        before = self.config
        superseded = self._loading
        proven = self.rollout.promoted and self._has_ready_everywhere(fleet)
        pools = None if change.code else change.pools
        self.rollout = self.rollout.with_candidate(loaded.config, loaded.origins, proven=proven, pools=pools)
        self._enforce(before)  # a promoted candidate that was not proven is given up for the one before it
        self._loading = Loading(change.words, askers=[asker])
        if proven and superseded.asked_for:  # it is in force, and what is gone back to
            self._verdicts.accepted(self.rollout.in_force, superseded.changes, superseded.askers)
        self._verdicts.overtaken("a later reload took its place", superseded.askers)
        self._promote_when_loaded()

    def _enforce(self, before: Config) -> None:
        """Take notice of a change of the rollout: of code, and of the configuration in force."""
        self._codes.keep(self.rollout.generations)
        change = change_between(before, self.config)
        pollers = self.versions.pollers + change.pollers
        exporter = self.versions.exporter + (change.exporter or change.listen)
        self.versions = Versions(pollers, exporter)
        self._listening.use(self.config.http.listen)
        if before.log != self.config.log:
            _change_log(self.config)
        self.scaling = self.scaling.after(self._sizes())

    def scale(self, pool: str, count: int) -> None:
        """An operator gives a pool of the configuration in force a number."""
        self.scaling = self.scaling.said(pool, count, self._sizes())

    def _sizes(self) -> list[dict[str, int]]:
        """Of all that may come into force, what is gone back to first."""
        generations = (self.rollout.displaced, *self.rollout.generations)
        return [pool_sizes(generation.config) for generation in generations if generation is not None]

    # A generation makes its way

    def importing(self, zygote: Child, module: str) -> None:
        """A zygote is about to import a module."""
        self._codes.of(zygote.generation).importing = module

    def imported(self, zygote: Child, tasks: Mapping[str, str]) -> None:
        """A zygote told of tasks."""
        self._codes.of(zygote.generation).tasks.update(tasks)

    def import_failed(self, zygote: Child, module: str, error: str) -> None:
        """A zygote could not import a module. A candidate is refused; else its back-off tries again."""
        if self._is_loading(zygote.generation):
            self._refuse([Fault(f"imports: {module}", error)], ExitCode.CONFIG)

    def zygote_ready(self, zygote: Child) -> None:
        """A zygote has imported everything."""
        self._codes.of(zygote.generation).is_loaded = True
        self._promote_when_loaded()

    def _promote_when_loaded(self) -> None:
        """Promote a candidate whose code is loaded, when the queues of all its tasks are served."""
        candidate = self.rollout.candidate
        if candidate is None or self.rollout.promoted or not self._codes.of(candidate.code).is_loaded:
            return
        config, tasks = candidate.config, self._codes.of(candidate.code).tasks
        for name in unknown_overrides(config, tasks):
            log.logger().warning(events.CONFIG_WARNING, path=f"tasks.{name}", warning="no imported task has this name")
        unserved = unserved_queues(config, tasks)
        if unserved and config.unserved_queues == "error":
            self._refuse(unserved, ExitCode.CONFIG)
            return
        for fault in unserved:
            log.logger().warning(events.CONFIG_WARNING, path=fault.path, warning=fault.message)
        before = self.config
        self.rollout = self.rollout.promote()
        self._enforce(before)

    def died_starting(self, death: Death) -> None:
        """A zygote or a worker died before it was READY: a candidate is refused when another try would not help.

        A process that hung would hang as long again, and code that ended its process would end the next. The first
        generation has nothing to go back to: there only a zygote that hung is reason enough.
        """
        child = death.child
        if child.generation not in self.rollout.new_numbers or child.why not in (None, Reason.BOOT):
            return
        hung, is_zygote = child.why is Reason.BOOT, child.role is Role.ZYGOTE
        is_final = (hung or (is_zygote and not death.is_from_outside)) and not self._is_first
        if is_final or (hung and is_zygote and self._is_loading(child.generation)):
            boot_seconds = self.rollout.latest.config.limits.boot_seconds
            fault = fault_of_death(death, self._codes.of(child.generation).importing, boot_seconds)
            self._refuse([fault], ExitCode.GAVE_UP)

    def settle(self, fleet: Fleet, backoffs: Mapping[PoolKey, Backoff]) -> bool:
        """Commit a candidate that has taken over, or give up one that never works; True when the first is in."""
        if self.rollout.candidate is not None:
            self._settle(self.rollout.candidate, fleet, backoffs)
        first = self.rollout.current is not None and not self._has_worked
        self._has_worked = self._has_worked or first
        return first

    def _settle(self, candidate: Generation, fleet: Fleet, backoffs: Mapping[PoolKey, Backoff]) -> None:
        failed = failed_pool(self.rollout.new_numbers, backoffs, is_first=self._is_first)
        if failed is not None:
            self._refuse([fault_of_crash_loop(failed, backoffs[failed])], ExitCode.GAVE_UP)
            return
        if self.rollout.promoted and self._has_taken_over(candidate, fleet):
            self.rollout = self.rollout.commit()
            self._enforce(self.config)
            if self._loading.asked_for:
                self._verdicts.accepted(self.rollout.in_force, self._loading.changes, self._loading.askers)

    @property
    def _is_first(self) -> bool:
        return self.rollout.current is None and self.rollout.displaced is None

    def _is_loading(self, code: int) -> bool:
        candidate = self.rollout.candidate
        return candidate is not None and candidate.code == code and not self.rollout.promoted

    def _has_taken_over(self, candidate: Generation, fleet: Fleet) -> bool:
        live = [child for child in fleet.of(Role.WORKER) if child.state in LIVE]
        stale = any(child.generation != candidate.of_pool(child.pool) for child in live)
        return not stale and self._has_ready_everywhere(fleet)

    def _has_ready_everywhere(self, fleet: Fleet) -> bool:
        """Whether each pool that is to have workers now has one of the latest generation that is READY."""
        latest = self.rollout.latest
        workers = fleet.of(Role.WORKER, State.READY)
        ready = {child.pool for child in workers if child.generation == latest.of_pool(child.pool)}
        wanted = {pool for pool, count in worker_counts(self.rollout, self.scaling).items() if count}
        return wanted <= ready

    def stopped(self) -> None:
        """The fleet leaves: whoever waits for a reload is told."""
        self._verdicts.overtaken("the fleet is draining", self._loading.askers)

    def _refuse(self, faults: list[Fault], code: ExitCode) -> None:
        """Drop the candidate."""
        if self._is_first:
            self.fatal = Failure(code, *map(str, faults))
            return
        before, refused = self.config, self._loading
        self.rollout = self.rollout.roll_back()
        self._enforce(before)
        self._listening.forget()
        self._loading = Loading([])
        self._verdicts.rejected(faults, refused.askers)
        self._promote_when_loaded()  # the first one is on its way again


def configure_log(config: Config) -> None:
    """Set up the log of the master's process."""
    log.configure(log_settings(config), role=Role.MASTER.value, pid=os.getpid())


def _change_log(config: Config) -> None:
    """The same, while the fleet runs: where the library of a format cannot be loaded now, lines stay as they are."""
    try:
        configure_log(config)
    except (OSError, ImportError) as error:
        log.logger().error(events.CONFIG_WARNING, path="log.format", warning=f"it stays as it was: {error}")
