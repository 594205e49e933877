"""What becomes of a reload: when a candidate generation is given up, and how everybody is told of the outcome."""

from collections.abc import Container, Iterable, Mapping
from typing import Final

from rota.telemetry import events as names
from rota.telemetry import metrics as m
from rota_supervisor.config.faults import Fault
from rota_supervisor.config.model import Config
from rota_supervisor.config.rules import served_queues
from rota_supervisor.control.port import Answer
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.backoff import StartBackoff
from rota_supervisor.master.core.children import PoolKey
from rota_supervisor.master.core.death import Death
from rota_supervisor.master.core.effects import Effect
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.state import MasterState, Reload
from rota_supervisor.notice import Condition

CANDIDATE_TRIES: Final = 2  # the old generation works: whoever reloads wants to know soon, and can ask again
STACK_CHARACTERS: Final = 400


def failed_pool(new: Container[int], backoffs: Mapping[PoolKey, StartBackoff], *, is_first: bool) -> PoolKey | None:
    """The pool for which a candidate is given up, which brought these new generations.

    The first generation is tried for longer, and goes on when some of its workers work: there is nothing to go back to.
    """
    own = [key for key in backoffs if key.role in (Role.ZYGOTE, Role.WORKER) and key.generation in new]
    if is_first and any(backoffs[key].ever_ready for key in own if key.role is Role.WORKER):
        return None
    has_failed = _first_has_failed if is_first else _candidate_has_failed
    return next((key for key in own if has_failed(key, backoffs[key])), None)


def _first_has_failed(_key: PoolKey, backoff: StartBackoff) -> bool:
    return backoff.gave_up


def _candidate_has_failed(key: PoolKey, backoff: StartBackoff) -> bool:
    # One that began well and then cannot go on would neither take over nor leave: its budget is its deadline.
    never_worked = backoff.failures >= CANDIDATE_TRIES and not backoff.ever_ready
    return never_worked or backoff.condition(key.role) is Condition.FATAL


def fault_of_death(death: Death, importing: str, boot_seconds: float) -> Fault:
    """Why one death before READY is enough to refuse a generation: a zygote's, or that of a worker that hung.

    `importing`: the module that was being imported, "" for none.
    """
    child, stack = death.child, death.stack(STACK_CHARACTERS)
    at = f": {stack}" if stack else ""
    late = f"took longer than limits.boot_seconds, {boot_seconds:g} s{at}"
    if child.role is not Role.ZYGOTE:
        return Fault(_workers_of(child.pool), f"the start of one {late} (see @rota.on_worker_start)")
    path, what = (f"imports: {importing}", "it") if importing else ("imports", "the modules")
    ended = f"ended its process: {death.words}{at}"
    return Fault(path, f"importing {what} {late if child.why is Reason.BOOT else ended}")


def fault_of_crash_loop(key: PoolKey, backoff: StartBackoff) -> Fault:
    """Why a generation is refused whose processes do not come to be ready, or not any more."""
    last = f", at last: {backoff.words}" if backoff.words else ""
    in_a_row = backoff.failures_in_a_row
    if key.role is Role.ZYGOTE:
        died = f"died {in_a_row} times in a row" if backoff.ever_ready else f"died {backoff.failures} times"
        return Fault("imports", f"the process that imports the tasks {died} before being ready{last}: see the log")
    if backoff.ever_ready:
        failed = f"one was ready, and then {in_a_row} in a row failed"
    else:
        failed = f"none was ever ready, {backoff.failures} starts in a row failed"
    return Fault(_workers_of(key.pool), f"{failed}{last}: see the log")


def _workers_of(pool: str) -> str:
    return f"workers of pool {pool!r}"


# What became of it, told to everybody


def accepted(state: MasterState, changes: list[str], reloads: list[Reload], now: float) -> list[Effect]:
    """It is in force."""
    in_force = state.rollout.in_force
    return [
        do.AddToCounter(m.CONFIG_RELOADS, ("success",)),
        do.SetGauge(m.CONFIG_LAST_RELOAD_SUCCESSFUL, (), 1),
        do.SetGaugeToNow(m.CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP),
        *counters_of_queues(in_force.config),
        do.info(names.CONFIG_RELOADED, changes=changes, generation=in_force.number),
        *_answer(state, reloads, {"result": "success", "changes": changes}, now),
    ]


def counters_of_queues(config: Config) -> list[Effect]:
    """Have the counters of the queues there from the start, at 0."""
    return [do.AddToCounter(m.TASKS_RECOVERED, (queue, "child_exit"), 0) for queue in served_queues(config)]


def rejected(state: MasterState, faults: list[Fault], reloads: list[Reload], now: float) -> list[Effect]:
    """It is not used, for these faults."""
    effects: list[Effect] = [
        do.AddToCounter(m.CONFIG_RELOADS, ("failure",)),
        do.SetGauge(m.CONFIG_LAST_RELOAD_SUCCESSFUL, (), 0),
    ]
    for fault in faults:
        elsewhere = {"origin": fault.origin} if fault.origin else {}
        effects.append(do.error(names.CONFIG_REJECTED, path=fault.path, error=fault.message, **elsewhere))
    return [*effects, *_answer(state, reloads, {"result": "failure", "faults": list(map(str, faults))}, now)]


def overtaken(state: MasterState, why: str, reloads: list[Reload], now: float) -> list[Effect]:
    """It is given up before anything was found out of it: no fault of the configuration."""
    return _answer(state, reloads, {"result": "failure", "faults": [why]}, now)


def _answer(state: MasterState, reloads: Iterable[Reload], said: Answer, now: float) -> list[Effect]:
    effects: list[Effect] = []
    for reload in reloads:
        effects.append(do.Respond(reload.ticket, said))
        state.last_reload = {**said, "at": now}
    return effects
