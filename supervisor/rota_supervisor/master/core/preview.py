"""What a reload would do, said before it is done.

A copy of the state goes through what a reload does (`reload_steps`); what the fleet is to be afterwards is compared
with what it is to be now. The reasons are the keys that differ, as far as a setting of the child is made of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rota_supervisor.config.faults import Fault
from rota_supervisor.control.port import Answer
from rota_supervisor.layout import Role
from rota_supervisor.master.core import child_settings, reload_steps, targets
from rota_supervisor.master.core.change import differences, in_lines
from rota_supervisor.master.core.rollout import Generation
from rota_supervisor.master.core.state import Code, Loading, MasterState, Reload
from rota_supervisor.master.core.stop_stages import Stop


def preview_of(state: MasterState, reload: Reload, faults: Sequence[Fault], now: float) -> Answer:
    """The answer to `reload --dry-run`: what differs, what would be done, and the faults for which it would not be."""
    loaded = reload.read
    changes = differences(state.rollout.latest.config, state.rollout.latest.origins, loaded)
    refused, steps = ([str(fault) for fault in faults], []) if faults else _try(state, reload, changes, now)
    if refused and not loaded.origins:  # it could not be read
        changes = []
    return {
        "result": "failure" if refused else "success",
        "faults": refused,
        "warnings": list(loaded.warnings),
        "changes": changes,
        "plan": [*in_lines(changes), *steps],
    }


# What would be done


class _Fleet(NamedTuple):
    """What a fleet is to be by its latest generation."""

    generation: Generation
    targets: Mapping[tuple[Role, str], targets.Target]


def _try(state: MasterState, reload: Reload, changes: list[dict[str, Any]], now: float) -> tuple[list[str], list[str]]:
    """The faults for which the reload would be refused at once, and a line for each thing that would be done."""
    copy = replace(state.detached(), loading=Loading(), last_reload=None)
    if copy.rollout.candidate is not None:  # what is on its way comes first
        copy.wanted.rollout = copy.rollout.promote().commit()
    copy.codes = {number: code if code.is_loaded else Code() for number, code in copy.codes.items()}
    before = _fleet_of(copy)
    reload_steps.take_in(copy, reload, now)
    copy.code_of(copy.rollout.latest.code).is_loaded = True  # which is not tried
    reload_steps.promote_when_loaded(copy, now)
    if copy.last_reload is not None and "faults" in copy.last_reload:
        return copy.last_reload["faults"], []
    after, keys = _fleet_of(copy), [row["key"] for row in changes]
    steps = [*_steps_of_workers(before, after, keys), *_steps_of_others(before, after, keys)]
    return [], steps or ["no process is touched: the master takes notice" if keys else "nothing changes"]


def _fleet_of(state: MasterState) -> _Fleet:
    return _Fleet(state.rollout.latest, targets.desired_of(state.wanted, Stop(), {}).by_name)


def _steps_of_workers(before: _Fleet, after: _Fleet, keys: list[str]) -> Iterator[str]:
    has_new_code = before.generation.code != after.generation.code
    if has_new_code:
        modules = ", ".join(after.generation.config.imports) or "no modules"
        yield f"a fresh process imports {modules}; if that fails, nothing else is done (it is not tried now)"
    for old in (target for target in before.targets.values() if target.role is Role.WORKER):
        new = after.targets.get(old.name)
        if new is None:
            yield f"pool {old.pool}: its {_workers(old.count)} drained, the pool is gone"
            continue
        if old.count != new.count:
            grows = f"{new.count - old.count} started" if new.count > old.count else f"{old.count - new.count} drained"
            yield f"pool {old.pool}: {old.count} -> {_workers(new.count)}, {grows}"
        if old.generation != new.generation and old.count and new.count:
            was, will_be = (fleet.generation.pools[old.pool].settings for fleet in (before, after))
            reasons = ["new code"] if has_new_code else child_settings.keys_of_difference(was, will_be, keys, old.pool)
            yield f"pool {old.pool}: each worker is replaced, one beside the others: {', '.join(reasons)}"
    for name, new in after.targets.items():
        if new.role is Role.WORKER and name not in before.targets:
            yield f"pool {new.pool}: {_workers(new.count)} started, the pool is new"


def _workers(count: int) -> str:
    return f"{count} worker" if count == 1 else f"{count} workers"


def _steps_of_others(before: _Fleet, after: _Fleet, keys: list[str]) -> Iterator[str]:
    was, will_be = before.generation.config, after.generation.config
    old, new = (fleet.targets[Role.POLLER, targets.POLLERS] for fleet in (before, after))
    if old.count != new.count:
        yield f"pollers: {old.count} -> {new.count}"
    if old.generation != new.generation:
        reasons = child_settings.keys_of_difference(
            child_settings.poller_settings(was, 0), child_settings.poller_settings(will_be, 0), keys
        )
        yield f"pollers: each is replaced: {', '.join(reasons)}"
    old, new = (fleet.targets[Role.EXPORTER, targets.EXPORTER] for fleet in (before, after))
    if old.count != new.count:
        yield f"exporter: it {'starts' if new.count else 'leaves'}: http.listen"
    elif new.count and old.generation != new.generation:
        moved = ["http.listen"] if was.http.listen != will_be.http.listen else []
        reasons = child_settings.keys_of_difference(
            child_settings.exporter_settings(was), child_settings.exporter_settings(will_be), keys
        )
        yield f"exporter: it is replaced: {', '.join(dict.fromkeys((*reasons, *moved)))}"
