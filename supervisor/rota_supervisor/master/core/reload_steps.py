"""The steps in which a valid configuration comes into force or is refused.

1. If the configuration affects workers, it becomes a candidate generation. Otherwise, it comes into force at once.
2. A candidate is promoted when its code is loaded, or at once if it has no new code.
3. When the candidate's workers have taken over, the reload is accepted. A candidate that fails before that is refused,
   and the old generation stays in force.
"""

from typing import Final

from rota.telemetry import log_events
from rota.telemetry import metrics as m
from rota_supervisor.config.errors import Fault
from rota_supervisor.config.model import Config
from rota_supervisor.config.rules import compared_with_code
from rota_supervisor.exits import ExitCode
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core import generations as changes
from rota_supervisor.master.core.children import LIVE, Child, ChildState, PoolKey
from rota_supervisor.master.core.death import Death
from rota_supervisor.master.core.generations import Rollout
from rota_supervisor.master.core.master_events import ListeningAt
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.start_backoff import StartBackoff
from rota_supervisor.master.core.state import Loading, MasterState, Reload, ReloadOutcome
from rota_supervisor.master.core.targets import Versions
from rota_supervisor.master_snapshot import PoolState

CANDIDATE_TRIES: Final = 2  # The old generation still works, so a quick refusal is better than many tries.
STACK_CHARACTERS: Final = 400
SUPERSEDED: Final = "a later reload replaced this one"


def apply_reload(state: MasterState, reload: Reload, now: float) -> list[do.Effect]:
    """Apply the configuration that was read for a reload. If the configuration changes worker settings, it becomes a
    candidate, which replaces any earlier candidate."""
    loaded = reload.read
    rollout = state.rollout
    superseded = state.loading
    reload.differences = changes.in_lines(changes.differences(rollout.latest.config, rollout.latest.origins, loaded))
    change = changes.change_between(rollout.latest.config, loaded.config, fresh=reload.fresh)
    if "workers" not in change.changed_parts:
        return _apply_at_once(state, reload, change, now)
    proven = rollout.promoted and _has_ready_everywhere(state)
    pools = None if change.code else change.pools
    # If an earlier candidate was promoted but its workers are not all READY, it is dropped, and the previous generation
    # remains the fallback.
    effects = _move_rollout(state, rollout.with_candidate(loaded.config, loaded.origins, proven=proven, pools=pools))
    state.loading = Loading(change.changed_parts, [reload])
    if proven and superseded.is_reload:  # The earlier candidate works and is now the fallback.
        effects += _accepted(state, superseded, now)
        effects += abandoned(state, SUPERSEDED, superseded.displaced_reloads, now)
    elif rollout.is_first and state.rollout.displaced is not None:
        state.loading.displaced = superseded
    else:
        state.loading.displaced = superseded.displaced
        effects += abandoned(state, SUPERSEDED, superseded.reloads, now)
    return [*effects, *promote_when_loaded(state, now)]


def _apply_at_once(state: MasterState, reload: Reload, change: changes.Change, now: float) -> list[do.Effect]:
    """Apply a configuration that changes no worker settings. It comes into force at once, unless a candidate is
    pending."""
    effects = _move_rollout(state, state.rollout.with_config(reload.read.config, reload.read.origins, change.pools))
    if state.rollout.candidate is None:
        return [*effects, *_accepted(state, Loading(change.changed_parts, [reload]), now)]
    # The change belongs to the candidate, so it is dropped if the candidate is refused.
    state.loading.changes = sorted({*state.loading.changes, *change.changed_parts})
    state.loading.reloads.append(reload)
    return effects


def _move_rollout(state: MasterState, rollout: Rollout) -> list[do.Effect]:
    """Replace the rollout. The pollers, the exporter, the log and the numbers set by operators are adapted to the
    configuration that is then in force."""
    before = state.config
    wanted = state.wanted
    counts = wanted.counts
    wanted.rollout = rollout
    state.keep_codes(rollout.generations)
    changed = changes.change_between(before, state.config).changed_parts
    pollers = wanted.versions.pollers + ("pollers" in changed)
    exporter = wanted.versions.exporter + ("exporter" in changed or "listen" in changed)
    wanted.versions = Versions(pollers, exporter)
    # Pools that now have a range of workers start from their previous numbers of workers.
    wanted.scaling = wanted.scaling.with_automatic(counts).after(rollout.sizes)
    if _to_be_announced(before) != _to_be_announced(state.config):
        state.leases.hurry()  # The next round of renewals publishes the change.
    log = [do.ConfigureLog(state.config)] if before.log != state.config.log else []
    return [do.ListenAt(state.config.http.listen), *log]


def _to_be_announced(config: Config) -> tuple[object, ...]:
    return config.conditions, config.queues, config.tiers, config.pools


def listening_at(state: MasterState, event: ListeningAt, _now: float) -> list[do.Effect]:
    """Store the address on which the exporter listens. `event.error` is set if the master could not listen on the
    wanted address and keeps the current one."""
    state.listen_address = event.address
    return [do.error(log_events.CONFIG_WARNING, path="http.listen", warning=event.error)] if event.error else []


# Promoting a candidate and making it the current generation


def zygote_ready(state: MasterState, zygote: Child, now: float) -> list[do.Effect]:
    """Handle a zygote that has imported all modules. If the candidate was waiting for this zygote's code, it is
    promoted."""
    state.code_of(zygote.generation).is_loaded = True
    return promote_when_loaded(state, now)


def promote_when_loaded(state: MasterState, now: float) -> list[do.Effect]:
    """Promote a candidate whose code is loaded. If a queue of one of its tasks is not served, refuse it instead."""
    candidate = state.rollout.candidate
    if candidate is None or state.rollout.promoted or not state.code_of(candidate.code).is_loaded:
        return []
    faults, known = compared_with_code(candidate.config, state.code_of(candidate.code).tasks)
    effects: list[do.Effect] = [
        do.warning(log_events.CONFIG_WARNING, path=fault.path, warning=fault.message) for fault in known
    ]
    if faults:
        return [*effects, *_refuse(state, faults, ExitCode.CONFIG, now)]
    return [*effects, *_move_rollout(state, state.rollout.promote())]


def commit_or_refuse(state: MasterState, now: float) -> list[do.Effect]:
    """Make a candidate current if its workers have taken over, or refuse it if they keep failing."""
    effects = [] if state.rollout.candidate is None else _commit_or_refuse(state, now)
    if state.rollout.current is None or state.has_worked:
        return effects
    state.has_worked = True
    # Renew the leases soon, because the renewal also reports that this node works. If the node died before that, other
    # nodes would think that it was still starting.
    state.leases.hurry()
    return [*effects, do.info(log_events.FLEET_READY, workers=len(state.children.of(Role.WORKER, ChildState.READY)))]


def _commit_or_refuse(state: MasterState, now: float) -> list[do.Effect]:
    failed = _failed_pool(state)
    if failed is not None:
        return _refuse(state, [_fault_of_crash_loop(failed, state.backoffs[failed])], ExitCode.GAVE_UP, now)
    if not state.rollout.promoted or not _has_taken_over(state):
        return []
    effects = _move_rollout(state, state.rollout.commit())
    loading = state.loading
    state.loading = Loading()
    effects += abandoned(state, SUPERSEDED, loading.displaced_reloads, now)
    return [*effects, *_accepted(state, loading, now)] if loading.is_reload else effects


def _has_taken_over(state: MasterState) -> bool:
    live = [child for child in state.children.of(Role.WORKER) if child.state in LIVE]
    stale = any(child.generation != state.rollout.latest.of_pool(child.pool) for child in live)
    return not stale and _has_ready_everywhere(state)


def _has_ready_everywhere(state: MasterState) -> bool:
    """Whether each pool that should have workers now has a READY worker of the latest generation."""
    latest = state.rollout.latest
    workers = state.children.of(Role.WORKER, ChildState.READY)
    ready = {child.pool for child in workers if child.generation == latest.of_pool(child.pool)}
    return {pool for pool, count in state.wanted.counts.items() if count} <= ready


# Refusing a candidate


def import_failed(state: MasterState, generation: int, module: str, why: str, now: float) -> list[do.Effect]:
    """Handle a module that a zygote could not import. A candidate that is waiting for this code is refused. In all
    other cases, the back-off determines when the import is tried again."""
    if not state.rollout.is_loading(generation):
        return []
    return _refuse(state, [Fault(f"imports: {module}", why)], ExitCode.CONFIG, now)


def died_starting(state: MasterState, death: Death, now: float) -> list[do.Effect]:
    """Handle the death of a zygote or worker that was never READY. If another try would not help, the candidate is
    refused.

    Another try would not help if the process hung, or if a module that a zygote imported ended the zygote. The first
    generation has no generation before it to return to. It is therefore refused only if its zygote hung.
    """
    child = death.child
    rollout = state.rollout
    if child.generation not in rollout.new_numbers or child.why not in (None, Reason.BOOT):
        return []
    hung = child.why is Reason.BOOT
    is_zygote = child.role is Role.ZYGOTE
    is_final = (hung or (is_zygote and not death.is_from_outside)) and not rollout.is_first
    if not is_final and not (hung and is_zygote and rollout.is_loading(child.generation)):
        return []
    fault = _fault_of_death(death, state.code_of(child.generation).importing, rollout.latest.config)
    return _refuse(state, [fault], ExitCode.GAVE_UP, now)


def _fault_of_death(death: Death, importing: str, config: Config) -> Fault:
    """Return the fault for a child that died while starting. `importing` is the module that was being imported, or
    ""."""
    child = death.child
    stack = death.stack(STACK_CHARACTERS)
    at = f": {stack}" if stack else ""
    late = f"took longer than limits.boot_seconds, {config.limits.boot_seconds:g} s{at}"
    if child.role is not Role.ZYGOTE:
        return Fault(f"workers of pool {child.pool!r}", f"the start of a worker {late} (see @rota.on_worker_start)")
    path, what = (f"imports: {importing}", "it") if importing else ("imports", "the modules")
    ended = f"ended the process: {death.text}{at}"
    return Fault(path, f"importing {what} {late if child.why is Reason.BOOT else ended}")


def _failed_pool(state: MasterState) -> PoolKey | None:
    """Return a pool whose children fail so often that the candidate must be dropped, or None if there is no such pool.

    The first generation gets more tries, and is kept if any worker has ever been READY, because there is no generation
    to return to.
    """
    new = state.rollout.new_numbers
    roles = (Role.ZYGOTE, Role.WORKER)
    own = {key: each for key, each in state.backoffs.items() if key.role in roles and key.generation in new}
    if not state.rollout.is_first:
        return next((key for key, backoff in own.items() if _candidate_has_failed(key, backoff)), None)
    if any(backoff.ever_ready for key, backoff in own.items() if key.role is Role.WORKER):
        return None
    return next((key for key, backoff in own.items() if backoff.gave_up), None)


def _candidate_has_failed(key: PoolKey, backoff: StartBackoff) -> bool:
    # Workers that fail after a good start would prevent the candidate from ever taking over, so the candidate is also
    # refused if the state of its pool is FATAL.
    never_worked = backoff.failures >= CANDIDATE_TRIES and not backoff.ever_ready
    return never_worked or backoff.condition(key.role) is PoolState.FATAL


def _fault_of_crash_loop(key: PoolKey, backoff: StartBackoff) -> Fault:
    """Return the fault to report if the children of a pool have never become READY, or no longer become READY."""
    last = f", most recently: {backoff.last_end}" if backoff.last_end else ""
    in_a_row = backoff.failures_in_a_row
    if key.role is Role.ZYGOTE:
        died = f"died {in_a_row} times in a row" if backoff.ever_ready else f"died {backoff.failures} times"
        return Fault("imports", f"the process that imports the tasks {died} before being ready{last}: see the log")
    if backoff.ever_ready:
        failed = f"a worker was ready, but the next {in_a_row} starts in a row failed"
    else:
        failed = f"no worker was ever ready, and {backoff.failures} starts in a row failed"
    return Fault(f"workers of pool {key.pool!r}", f"{failed}{last}: see the log")


def _refuse(state: MasterState, faults: list[Fault], code: ExitCode, now: float) -> list[do.Effect]:
    """Drop the candidate. If there is no generation to return to, end the master with the exit code `code`."""
    if state.rollout.is_first:
        state.has_ended = True
        return [do.Leave(code, tuple(map(str, faults)))]
    effects = [*_move_rollout(state, state.rollout.roll_back()), do.DropPreparedAddress()]
    refused = state.loading
    state.loading = state.loading.displaced or Loading()
    effects += rejected(state, faults, refused.reloads, now)
    # A first generation that was replaced before it worked is the candidate again.
    return [*effects, *promote_when_loaded(state, now)]


# Reporting the outcome of a reload


def _accepted(state: MasterState, loading: Loading, now: float) -> list[do.Effect]:
    """Report that a reload is in force, and reply to all requests for it."""
    in_force = state.rollout.in_force
    outcome = ReloadOutcome(result="success", changes=loading.changes)
    _remember(state, loading.reloads, outcome, now)
    return [
        do.AddToCounter(m.CONFIG_RELOADS, ("success",)),
        do.SetGauge(m.CONFIG_LAST_RELOAD_SUCCESSFUL, (), 1),
        do.SetGaugeToNow(m.CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP),
        do.info(log_events.CONFIG_RELOADED, changes=loading.changes, generation=in_force.number),
        *(do.Respond(each.ticket, {**outcome, "differences": each.differences}) for each in loading.reloads),
    ]


def rejected(state: MasterState, faults: list[Fault], reloads: list[Reload], now: float) -> list[do.Effect]:
    """Report that a reload was refused because of these faults, and reply to the requests for it."""
    effects: list[do.Effect] = [
        do.AddToCounter(m.CONFIG_RELOADS, ("failure",)),
        do.SetGauge(m.CONFIG_LAST_RELOAD_SUCCESSFUL, (), 0),
    ]
    for fault in faults:
        elsewhere = {"origin": fault.origin} if fault.origin else {}
        effects.append(do.error(log_events.CONFIG_REJECTED, path=fault.path, error=fault.message, **elsewhere))
    return [*effects, *_reply(state, reloads, {"result": "failure", "faults": list(map(str, faults))}, now)]


def abandoned(state: MasterState, why: str, reloads: list[Reload], now: float) -> list[do.Effect]:
    """Reply to reloads that were abandoned for the reason `why`. They do not count as failures, because their
    configurations have no faults."""
    return _reply(state, reloads, {"result": "failure", "faults": [why]}, now)


def reply_to_pending_reloads(state: MasterState, now: float) -> list[do.Effect]:
    """Reply to all pending reloads. They are abandoned, because the fleet is leaving."""
    loading = state.loading
    state.loading = Loading(state.loading.changes)
    return abandoned(state, "the fleet is draining", [*loading.displaced_reloads, *loading.reloads], now)


def _reply(state: MasterState, reloads: list[Reload], outcome: ReloadOutcome, now: float) -> list[do.Effect]:
    _remember(state, reloads, outcome, now)
    return [do.Respond(reload.ticket, dict(outcome)) for reload in reloads]


def _remember(state: MasterState, reloads: list[Reload], outcome: ReloadOutcome, now: float) -> None:
    if reloads:
        state.last_reload = {**outcome, "at": now}
