"""Which tasks and schedules this node declares: those of the code in force, and schedules of its configuration.

A reload is one transaction in this too: a candidate's schedules are declared when it is promoted, and those of the
generation before it again when it is refused.
"""

from collections.abc import Mapping

from rota.protocol.schedule_store import Declared
from rota.schedules.schedule import encode_schedule
from rota_supervisor.config.schedules import schedules_in_force
from rota_supervisor.master.core.rollout import Generation
from rota_supervisor.master.core.state import Declarations, MasterState


def take_in(state: MasterState, now: float) -> bool:
    """Note what the generation in force declares; returns whether that is something else than before."""
    generation, before = state.rollout.in_force, state.declarations
    if before.generation is generation or not state.code_of(generation.code).is_loaded:
        return False
    texts = _texts(state, generation)
    since = {name: before.since[name] if before.texts.get(name) == text else now for name, text in texts.items()}
    tasks = tuple(sorted(state.code_of(generation.code).tasks))
    state.declarations = Declarations(generation, texts, since, tasks)
    return texts != before.texts or tasks != (before.tasks or ())


def _texts(state: MasterState, generation: Generation) -> Mapping[str, bytes]:
    code = state.code_of(generation.code)
    of_file = schedules_in_force(generation.config, code.tasks)
    of_code = {name: text.encode() for name, text in code.schedules.items()}
    return {**of_code, **{schedule.name: encode_schedule(schedule) for schedule in of_file}}


def declared(state: MasterState, now: float) -> tuple[Declared, ...]:
    """What is declared with each heartbeat."""
    known = state.declarations
    return tuple(Declared(name, text, now - known.since[name]) for name, text in known.texts.items())
