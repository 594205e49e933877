"""A reload as it is asked for: the configuration is read, and the place bound where its exporter is to listen.

When it cannot be used nothing changes, and the faults are told. Else it is taken in (`reloading`), or whoever asked
is only shown what that would do (`previewing`).
"""

from rota.telemetry import events as names
from rota_supervisor.config.resolve import pool_sizes
from rota_supervisor.master.core import change, reloading
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.effects import Effect
from rota_supervisor.master.core.events import ConfigurationRead, PlacePrepared
from rota_supervisor.master.core.previewing import preview_of
from rota_supervisor.master.core.state import MasterState, Reload


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
    faults = event.faults or (
        *change.faults_of_change(state.config, config),
        *change.oversized_pools(config),
        *state.wanted.scaling.faults(pool_sizes(config)),
    )
    if faults:
        return place_prepared(state, PlacePrepared(event.ticket, faults), now)
    return [do.PreparePlace(event.ticket, config.http.listen, only_try=reload.only_shown)]


def place_prepared(state: MasterState, event: PlacePrepared, now: float) -> list[Effect]:
    """All is known that can be before the change is made."""
    reload = state.reloads.pop(event.ticket)
    if reload.only_shown:
        return [do.Respond(reload.ticket, preview_of(state, reload, event.faults, now))]
    if event.faults:
        return reloading.rejected(state, list(event.faults), [reload], now)
    if state.stop.is_asked:
        return [do.DropPreparedPlace(), *reloading.given_up(state, "the fleet is draining", [reload], now)]
    warned = [do.warning(names.CONFIG_WARNING, warning=text) for text in reload.read.warnings]
    return [*warned, *reloading.take_in(state, reload, now)]
