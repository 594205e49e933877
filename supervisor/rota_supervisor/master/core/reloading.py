"""Reloads and generations as they happen.

1. A reload reads the configuration and binds the place where its exporter is to listen; when it cannot be used,
   nothing changes and the faults are told.
2. What workers depend on makes a candidate generation; the rest is in force at once.
3. A candidate is promoted when its code is loaded, at once when it brings none of its own; when its workers have taken
   over, the reload is accepted. One that fails before is dropped, and the old one goes on.
"""

from dataclasses import replace

from rota.telemetry import events as names
from rota_supervisor.config.faults import Fault
from rota_supervisor.config.load import Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolve import pool_sizes
from rota_supervisor.exits import ExitCode
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.change import (
    Change,
    change_between,
    faults_of_change,
    oversized_pools,
    unknown_overrides,
    unserved_queues,
)
from rota_supervisor.master.core.children import LIVE, Child, ChildState
from rota_supervisor.master.core.death import Death
from rota_supervisor.master.core.effects import Effect
from rota_supervisor.master.core.events import ConfigurationRead, PlacePrepared, PlaceTaken
from rota_supervisor.master.core.previewing import preview_of
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.rollout import Generation
from rota_supervisor.master.core.state import Loading, MasterState, Reload
from rota_supervisor.master.core.targets import Versions
from rota_supervisor.master.core.verdicts import (
    accepted,
    failed_pool,
    fault_of_crash_loop,
    fault_of_death,
    overtaken,
    rejected,
)

# A reload is asked for


def begin(state: MasterState, reload: Reload) -> list[Effect]:
    """Somebody asks for a reload, or for what it would do."""
    state.reloads_asked += not reload.only_shown
    state.reloads[reload.ticket] = reload
    return [do.ReadConfiguration(reload.ticket)]


def configuration_read(state: MasterState, event: ConfigurationRead, now: float) -> list[Effect]:
    """The configuration was read: whether it can be used at all, and next to another master's or program's place."""
    reload, config = state.reloads[event.ticket], event.loaded.config
    reload.loaded = event.loaded
    if not reload.only_shown:
        state.content = event.loaded.content
    faults = list(event.faults) or [
        *faults_of_change(state.config, config),
        *oversized_pools(config),
        *state.wanted.scaling.faults(pool_sizes(config)),
    ]
    if faults:
        return place_prepared(state, PlacePrepared(event.ticket, tuple(faults)), now)
    return [do.PreparePlace(event.ticket, config.http.listen, only_try=reload.only_shown)]


def place_prepared(state: MasterState, event: PlacePrepared, now: float) -> list[Effect]:
    """All is known that can be before the change is made."""
    reload, faults = state.reloads.pop(event.ticket), list(event.faults)
    assert reload.loaded is not None, "it was read before"
    if reload.only_shown:
        faults = faults or _faults_of_queues(state, reload.loaded.config)
        return [
            do.Respond(reload.ticket, preview_of(state.rollout.latest, reload.loaded, faults, state.wanted.scaling))
        ]
    if faults:
        return rejected(state, faults, [reload], now)
    if state.stop.is_asked:
        return [do.DropPreparedPlace(), *overtaken(state, "the fleet is draining", [reload], now)]
    change = change_between(state.rollout.latest.config, reload.loaded.config)
    change = replace(change, code=change.code or reload.fresh)
    warned: list[Effect] = [do.warning(names.CONFIG_WARNING, warning=text) for text in reload.loaded.warnings]
    take_in = _begin_candidate if change.workers else _apply
    return [*warned, *take_in(state, reload, reload.loaded, change, now)]


def _faults_of_queues(state: MasterState, config: Config) -> list[Fault]:
    """For which a candidate would be refused as soon as its code is loaded, if that is the code there is."""
    latest = state.rollout.latest
    change, code = change_between(latest.config, config), state.code_of(latest.code)
    is_known = change.has_stale and not change.code and code.is_loaded
    return unserved_queues(config, code.tasks) if is_known and config.unserved_queues == "error" else []


def _apply(state: MasterState, reload: Reload, loaded: Loaded, change: Change, now: float) -> list[Effect]:
    """Nothing that workers depend on has changed: it is in force at once."""
    before = state.config
    state.wanted.rollout = state.rollout.with_config(loaded.config, loaded.origins, change.pools)
    effects = _enforce(state, before)
    if state.rollout.candidate is None:
        return [*effects, *accepted(state, change.words, [reload], now)]
    # What the candidate brings is changed, and goes with it when it is refused.
    state.loading.changes = sorted({*state.loading.changes, *change.words})
    state.loading.reloads.append(reload)
    return effects


def _begin_candidate(state: MasterState, reload: Reload, loaded: Loaded, change: Change, now: float) -> list[Effect]:
    before, superseded = state.config, state.loading
    proven = state.rollout.promoted and _has_ready_everywhere(state)
    pools = None if change.code else change.pools
    state.wanted.rollout = state.rollout.with_candidate(loaded.config, loaded.origins, proven=proven, pools=pools)
    effects = _enforce(state, before)  # a promoted candidate that was not proven is given up for the one before it
    state.loading = Loading(change.words, [reload])
    if proven and superseded.is_asked_for:  # it is in force, and what is gone back to
        effects += accepted(state, superseded.changes, superseded.reloads, now)
    else:
        effects += overtaken(state, "a later reload took its place", superseded.reloads, now)
    return [*effects, *_promote_when_loaded(state, now)]


def _enforce(state: MasterState, before: Config) -> list[Effect]:
    """Take notice of a change of the rollout: of code, and of the configuration in force."""
    wanted, config = state.wanted, state.config
    state.keep_codes(state.rollout.generations)
    change = change_between(before, config)
    pollers = wanted.versions.pollers + change.pollers
    exporter = wanted.versions.exporter + (change.exporter or change.listen)
    wanted.versions = Versions(pollers, exporter)
    wanted.scaling = wanted.scaling.after(sizes(state))
    log = [do.ConfigureLog(config)] if before.log != config.log else []
    return [do.ListenAt(config.http.listen), *log]


def sizes(state: MasterState) -> list[dict[str, int]]:
    """Workers by pool of all generations that may come into force, the one that is gone back to first."""
    generations = (state.rollout.displaced, *state.rollout.generations)
    return [pool_sizes(generation.config) for generation in generations if generation is not None]


def place_taken(state: MasterState, event: PlaceTaken, _now: float) -> list[Effect]:
    """The master listens for the exporter. Going back to a place that is taken meanwhile, it stays where it was."""
    state.place = event.place
    return [do.error(names.CONFIG_WARNING, path="http.listen", warning=event.error)] if event.error else []


# A generation makes its way


def import_failed(state: MasterState, generation: int, module: str, why: str, now: float) -> list[Effect]:
    """A zygote could not import a module. A candidate is refused; else its back-off tries again."""
    if not _is_loading(state, generation):
        return []
    return _refuse(state, [Fault(f"imports: {module}", why)], ExitCode.CONFIG, now)


def zygote_ready(state: MasterState, zygote: Child, now: float) -> list[Effect]:
    """A zygote has imported everything."""
    state.code_of(zygote.generation).is_loaded = True
    return _promote_when_loaded(state, now)


def _promote_when_loaded(state: MasterState, now: float) -> list[Effect]:
    """Promote a candidate whose code is loaded, when the queues of all its tasks are served."""
    candidate = state.rollout.candidate
    if candidate is None or state.rollout.promoted or not state.code_of(candidate.code).is_loaded:
        return []
    config, tasks = candidate.config, state.code_of(candidate.code).tasks
    effects: list[Effect] = [
        do.warning(names.CONFIG_WARNING, path=f"tasks.{name}", warning="no imported task has this name")
        for name in unknown_overrides(config, tasks)
    ]
    unserved = unserved_queues(config, tasks)
    if unserved and config.unserved_queues == "error":
        return [*effects, *_refuse(state, unserved, ExitCode.CONFIG, now)]
    effects += [do.warning(names.CONFIG_WARNING, path=fault.path, warning=fault.message) for fault in unserved]
    before = state.config
    state.wanted.rollout = state.rollout.promote()
    return [*effects, *_enforce(state, before)]


def died_starting(state: MasterState, death: Death, now: float) -> list[Effect]:
    """A zygote or a worker died before it was READY: a candidate is refused when another try would not help.

    A process that hung would hang as long again, and code that ended its process would end the next. The first
    generation has nothing to go back to: there only a zygote that hung is reason enough.
    """
    child = death.child
    if child.generation not in state.rollout.new_numbers or child.why not in (None, Reason.BOOT):
        return []
    hung, is_zygote = child.why is Reason.BOOT, child.role is Role.ZYGOTE
    is_final = (hung or (is_zygote and not death.is_from_outside)) and not _is_first(state)
    if not is_final and not (hung and is_zygote and _is_loading(state, child.generation)):
        return []
    boot_seconds = state.rollout.latest.config.limits.boot_seconds
    fault = fault_of_death(death, state.code_of(child.generation).importing, boot_seconds)
    return _refuse(state, [fault], ExitCode.GAVE_UP, now)


def settle(state: MasterState, now: float) -> list[Effect]:
    """Commit a candidate that has taken over, or give up one that never works."""
    candidate = state.rollout.candidate
    effects = [] if candidate is None else _settle(state, candidate, now)
    if state.rollout.current is None or state.has_worked:
        return effects
    state.has_worked = True
    return [*effects, do.info(names.FLEET_READY, workers=len(state.children.of(Role.WORKER, ChildState.READY)))]


def _settle(state: MasterState, candidate: Generation, now: float) -> list[Effect]:
    failed = failed_pool(state.rollout.new_numbers, state.backoffs, is_first=_is_first(state))
    if failed is not None:
        return _refuse(state, [fault_of_crash_loop(failed, state.backoffs[failed])], ExitCode.GAVE_UP, now)
    if not state.rollout.promoted or not _has_taken_over(state, candidate):
        return []
    state.wanted.rollout = state.rollout.commit()
    effects = _enforce(state, state.config)
    loading, state.loading = state.loading, Loading()
    return [*effects, *accepted(state, loading.changes, loading.reloads, now)] if loading.is_asked_for else effects


def _is_first(state: MasterState) -> bool:
    return state.rollout.current is None and state.rollout.displaced is None


def _is_loading(state: MasterState, code: int) -> bool:
    candidate = state.rollout.candidate
    return candidate is not None and candidate.code == code and not state.rollout.promoted


def _has_taken_over(state: MasterState, candidate: Generation) -> bool:
    live = [child for child in state.children.of(Role.WORKER) if child.state in LIVE]
    stale = any(child.generation != candidate.of_pool(child.pool) for child in live)
    return not stale and _has_ready_everywhere(state)


def _has_ready_everywhere(state: MasterState) -> bool:
    """Whether each pool that is to have workers now has one of the latest generation that is READY."""
    latest = state.rollout.latest
    workers = state.children.of(Role.WORKER, ChildState.READY)
    ready = {child.pool for child in workers if child.generation == latest.of_pool(child.pool)}
    return {pool for pool, count in state.wanted.counts.items() if count} <= ready


def _refuse(state: MasterState, faults: list[Fault], code: ExitCode, now: float) -> list[Effect]:
    """Drop the candidate."""
    if _is_first(state):
        state.has_ended = True
        return [do.Leave(code, tuple(map(str, faults)))]
    before, refused = state.config, state.loading
    state.wanted.rollout = state.rollout.roll_back()
    effects = [*_enforce(state, before), do.DropPreparedPlace()]
    state.loading = Loading()
    effects += rejected(state, faults, refused.reloads, now)
    return [*effects, *_promote_when_loaded(state, now)]  # the first one may be on its way again


def stopped(state: MasterState, now: float) -> list[Effect]:
    """The fleet leaves: whoever waits for a reload is told."""
    loading, state.loading = state.loading, Loading(state.loading.changes)
    return overtaken(state, "the fleet is draining", loading.reloads, now)
