"""The requests that people make while the fleet runs. It makes no difference whether a request arrives as a signal or
through the control socket.

1. A request is checked, and the state is updated. The next tick then starts, stops or signals processes as needed.
2. A request that cannot be fulfilled is refused, and nothing changes.
3. A fleet that is leaving accepts only requests to leave sooner and requests for a report.
4. For a reload, the configuration is read, and the exporter's listen address is bound. If the configuration cannot be
   used, nothing changes, and the faults are reported. Otherwise, the configuration is applied. For a preview, the reply
   only shows what would change.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, assert_never

from rota.telemetry import log_events
from rota_supervisor.config.errors import Fault
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import pool_sizes
from rota_supervisor.config.rules import schedules_without_queue
from rota_supervisor.control.port import ControlReply, RequestKind, RequestRefused, ScaleOrder
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core import process_settings, reload_steps, targets
from rota_supervisor.master.core.children import UNSEEN
from rota_supervisor.master.core.generations import (
    Generation,
    KeyChange,
    differences,
    faults_of_change,
    in_lines,
    oversized_pools,
)
from rota_supervisor.master.core.master_events import AddressPrepared, ConfigurationRead, Requested
from rota_supervisor.master.core.state import Code, Loading, MasterState, Quiet, Reload
from rota_supervisor.master.core.targets import Stop


def requested(state: MasterState, event: Requested, now: float) -> list[do.Effect]:
    """Fulfil a request, or refuse it with a reason that is sent or logged."""
    try:
        return _fulfil(state, event, now)
    except RequestRefused as refused:
        if event.by_signal:
            return [do.warning(log_events.FLEET_REFUSED, request=event.request.name.lower(), error=str(refused))]
        return [do.Respond(event.ticket, refused=str(refused))]


def _fulfil(state: MasterState, event: Requested, now: float) -> list[do.Effect]:
    match event.request:
        case RequestKind.DRAIN | RequestKind.STOP_NOW:
            return _stop(state, event, now)
        case RequestKind.REPORT:
            return [do.WriteReport(), do.Respond(event.ticket, {})]
        case RequestKind.QUIET | RequestKind.RESUME:
            return _set_quiet(state, event, now)
    _refuse_while_leaving(state)
    match event.request:
        case RequestKind.SCALE | RequestKind.MORE | RequestKind.LESS:
            return _scale(state, event)
        case RequestKind.PREVIEW:
            return _start_reload(state, Reload(event.ticket, only_shown=True))
        case RequestKind.RELOAD | RequestKind.RESTART:
            _reset_backoffs(state)
            return _start_reload(state, Reload(event.ticket, fresh=event.request is RequestKind.RESTART))
        case _:
            assert_never(event.request)


def _refuse_while_leaving(state: MasterState) -> None:
    if state.stop.is_requested:
        raise RequestRefused("the fleet is draining and will stop: start the fleet again, then repeat the request")


def _reset_backoffs(state: MasterState) -> None:
    """Reset the back-offs at a reload, because the person who requested the reload wants children to be started at
    once.

    The back-off of a generation whose children have never been READY is kept, because its failures decide whether a
    candidate is refused.
    """
    for key, backoff in state.backoffs.items():
        if backoff.ever_ready or key.role not in (Role.ZYGOTE, Role.WORKER):
            state.backoffs[key] = backoff.reset()


def _scale(state: MasterState, event: Requested) -> list[do.Effect]:
    """Change the number of workers of a pool. A signal names no pool, so it changes the first one."""
    counts = state.wanted.counts
    by_one = 1 if event.request is RequestKind.MORE else -1
    order = event.order or ScaleOrder(next(iter(counts)), by_one, is_relative=True)
    pool, count = targets.ordered(order, counts)
    scaling = state.wanted.scaling
    state.wanted.scaling = (
        scaling.without_count(pool) if count is None else scaling.with_count(pool, count, state.rollout.sizes)
    )
    after = state.wanted.counts[pool]
    origin = targets.origin_of_count(pool, state.rollout.in_force, state.wanted.scaling)
    return [
        do.info(log_events.FLEET_SCALED, pool=pool, before=counts[pool], workers=after, origin=origin),
        do.Respond(event.ticket, {"pool": pool, "from": counts[pool], "to": after, "origin": origin}),
    ]


def _set_quiet(state: MasterState, event: Requested, now: float) -> list[do.Effect]:
    before = state.quiet
    wanted = _quiet_after(state.quiet, event)
    if wanted is not before:
        _refuse_while_leaving(state)
    state.quiet = wanted
    changed = wanted.is_requested is not before.is_requested
    state.quiet_since = now if changed else state.quiet_since
    reply = do.Respond(event.ticket, {"quiet": wanted.is_requested, "changed": changed})
    if not changed:
        return [reply]
    # Workers whose owners are not registered yet receive the quiet state when they are forked.
    workers = tuple(child.ref for child in state.children.of(Role.WORKER) if child.state not in UNSEEN)
    log = do.info(log_events.FLEET_QUIET if wanted.is_requested else log_events.FLEET_RESUMED)
    return [do.SetQuiet(workers, wanted.is_requested), log, reply]


def _quiet_after(before: Quiet, event: Requested) -> Quiet:
    """Return the quiet state after a request. SIGCONT ends the quiet state only if SIGTSTP began it, because the
    kernel, shells and debuggers also send SIGCONT to a suspended master to continue it."""
    if event.by_signal and before is Quiet.BY_PERSON:
        return before
    if event.request is RequestKind.RESUME:
        return Quiet.OFF
    return Quiet.BY_SIGNAL if event.by_signal else Quiet.BY_PERSON


def _stop(state: MasterState, event: Requested, now: float) -> list[do.Effect]:
    """Make the fleet drain and leave, or leave at once."""
    at_once = event.request is RequestKind.STOP_NOW
    before = state.stop
    drain_seconds = state.config.limits.drain_seconds
    state.stop = before.after_request(now, drain_seconds, at_once=at_once)
    reply = do.Respond(event.ticket, {"at_once": state.stop.stage is targets.Stage.AT_ONCE})
    if state.stop is before:
        return [reply]
    state.leases.hurry()  # The next renewal shows whether Redis replies.
    draining = do.info(log_events.FLEET_DRAINING, at_once=at_once, seconds=0 if at_once else drain_seconds)
    return [*reload_steps.reply_to_pending_reloads(state, now), draining, reply]


# A reload


def _start_reload(state: MasterState, reload: Reload) -> list[do.Effect]:
    """Begin a reload, or a preview of one."""
    state.reloads_requested += not reload.only_shown
    state.reloads[reload.ticket] = reload
    return [do.ReadConfiguration(reload.ticket)]


def configuration_read(state: MasterState, event: ConfigurationRead, now: float) -> list[do.Effect]:
    """Check a configuration that was read for a reload. If it has no faults, check next whether its listen address is
    free."""
    reload = state.reloads[event.ticket]
    config = event.loaded.config
    reload.loaded = event.loaded
    if not reload.only_shown:
        state.content = event.loaded.content
    faults = event.faults or (
        *faults_of_change(state.config, config),
        *oversized_pools(config),
        *_unserved_schedules(state, reload, config),
        *state.wanted.scaling.faults(pool_sizes(config)),
    )
    if faults:
        return address_prepared(state, AddressPrepared(event.ticket, faults), now)
    return [do.PrepareAddress(event.ticket, config.http.listen, only_try=reload.only_shown)]


def _unserved_schedules(state: MasterState, reload: Reload, config: Config) -> list[Fault]:
    """Return a fault for each schedule whose queue is in no tier, if the reload keeps the current code.

    With new code, the check has to wait until the candidate's tasks are known.
    """
    latest = state.rollout.latest
    code = state.code_of(latest.code)
    stays = code.is_loaded and not reload.fresh and config.imports == latest.config.imports
    return schedules_without_queue(config, code.tasks) if stays else []


def address_prepared(state: MasterState, event: AddressPrepared, now: float) -> list[do.Effect]:
    """Finish the checks of a reload. Then reply with the preview, refuse the reload, or apply the configuration."""
    reload = state.reloads.pop(event.ticket)
    if reload.only_shown:
        return [do.Respond(reload.ticket, preview_of(state, reload, event.faults, now))]
    if event.faults:
        return reload_steps.rejected(state, list(event.faults), [reload], now)
    if state.stop.is_requested:
        return [do.DropPreparedAddress(), *reload_steps.abandoned(state, "the fleet is draining", [reload], now)]
    warned = [do.warning(log_events.CONFIG_WARNING, warning=text) for text in reload.read.warnings]
    return [*warned, *reload_steps.apply_reload(state, reload, now)]


# The preview of a reload applies the reload to a copy of the state (`reload_steps`). Then it compares the desired fleet
# of the copy with the present one.


def preview_of(state: MasterState, reload: Reload, faults: Sequence[Fault], now: float) -> ControlReply:
    """Return the reply to `reload --dry-run`: what would change, the steps, and the faults that would prevent the
    reload."""
    loaded = reload.read
    changes = differences(state.rollout.latest.config, state.rollout.latest.origins, loaded)
    refused, steps = ([str(fault) for fault in faults], []) if faults else _try(state, reload, changes, now)
    if refused and not loaded.origins:  # The file could not be read.
        changes = []
    return {
        "result": "failure" if refused else "success",
        "faults": refused,
        "warnings": list(loaded.warnings),
        "changes": changes,
        "plan": [*in_lines(changes), *steps],
    }


# The steps of a reload


class _Fleet(NamedTuple):
    """The latest generation, and the desired state of each pool in it. A preview compares the fleet before the reload
    with the fleet after it."""

    generation: Generation
    targets: Mapping[tuple[Role, str], targets.Target]


def _try(state: MasterState, reload: Reload, changes: list[KeyChange], now: float) -> tuple[list[str], list[str]]:
    """Try a reload on a copy of the state. Return the faults for which the reload would be refused at once, and a line
    for each step that the reload would take."""
    copy = replace(state.detached(), loading=Loading(), last_reload=None)
    if copy.rollout.candidate is not None:  # Assume that a pending candidate is accepted.
        copy.wanted.rollout = copy.rollout.promote().commit()
    copy.codes = {number: code if code.is_loaded else Code() for number, code in copy.codes.items()}
    before = _fleet_of(copy)
    reload_steps.apply_reload(copy, reload, now)
    # A preview imports no code, and assumes that the import succeeds.
    copy.code_of(copy.rollout.latest.code).is_loaded = True
    reload_steps.promote_when_loaded(copy, now)
    if copy.last_reload is not None and "faults" in copy.last_reload:
        return copy.last_reload["faults"], []
    after = _fleet_of(copy)
    keys = [row["key"] for row in changes]
    steps = [*_steps_of_workers(before, after, keys), *_steps_of_others(before, after, keys)]
    return [], steps or [
        "no process is replaced, because only the master uses the changed settings" if keys else "nothing changes"
    ]


def _fleet_of(state: MasterState) -> _Fleet:
    return _Fleet(state.rollout.latest, targets.desired_of(state.wanted, Stop(), {}).by_name)


def _steps_of_workers(before: _Fleet, after: _Fleet, keys: list[str]) -> Iterator[str]:
    has_new_code = before.generation.code != after.generation.code
    if has_new_code:
        modules = ", ".join(after.generation.config.imports) or "no modules"
        yield f"a new process imports {modules}; if that fails, the reload is refused (a preview imports nothing)"
    for old in (target for target in before.targets.values() if target.role is Role.WORKER):
        new = after.targets.get(old.name)
        if new is None:
            yield f"pool {old.pool}: its {_workers(old.count)} will be drained, because the pool is removed"
            continue
        if old.count != new.count:
            grows = f"{new.count - old.count} started" if new.count > old.count else f"{old.count - new.count} drained"
            yield f"pool {old.pool}: {old.count} -> {_workers(new.count)}, {grows}"
        if old.generation != new.generation and old.count and new.count:
            was, will_be = (fleet.generation.pools[old.pool].settings for fleet in (before, after))
            reasons = (
                ["new code"] if has_new_code else process_settings.keys_of_difference(was, will_be, keys, old.pool)
            )
            yield f"pool {old.pool}: each worker is replaced, one at a time: {', '.join(reasons)}"
    for name, new in after.targets.items():
        if new.role is Role.WORKER and name not in before.targets:
            yield f"pool {new.pool}: {_workers(new.count)} will be started, because the pool is new"


def _workers(count: int) -> str:
    return f"{count} worker" if count == 1 else f"{count} workers"


def _steps_of_others(before: _Fleet, after: _Fleet, keys: list[str]) -> Iterator[str]:
    was = before.generation.config
    will_be = after.generation.config
    old, new = (fleet.targets[Role.POLLER, targets.POLLERS] for fleet in (before, after))
    if old.count != new.count:
        yield f"pollers: {old.count} -> {new.count}"
    if old.generation != new.generation:
        reasons = process_settings.keys_of_difference(
            process_settings.poller_settings(was, 0), process_settings.poller_settings(will_be, 0), keys
        )
        yield f"pollers: each poller is replaced: {', '.join(reasons)}"
    old, new = (fleet.targets[Role.EXPORTER, targets.EXPORTER] for fleet in (before, after))
    if old.count != new.count:
        yield f"exporter: it is {'started' if new.count else 'stopped'}: http.listen"
    elif new.count and old.generation != new.generation:
        moved = ["http.listen"] if was.http.listen != will_be.http.listen else []
        reasons = process_settings.keys_of_difference(
            process_settings.exporter_settings(was), process_settings.exporter_settings(will_be), keys
        )
        yield f"exporter: it is replaced: {', '.join(dict.fromkeys((*reasons, *moved)))}"
