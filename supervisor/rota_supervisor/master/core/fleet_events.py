"""Which lines of the master's log people look for when they ask what has happened to a fleet, and what each one says in
words. The last ones are kept, for `rota status --json` and the status page.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rota.telemetry import log_events as names
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.notice import FleetEvent, how_it_died, who_died

Fields = Mapping[str, Any]

MOST_CHARACTERS: Final = 300  # of a text, and of a field
MOST_PARTS: Final = 10  # of a field that is a list
_LEFT_OUT: Final = frozenset({"stack"})


def _death(fields: Fields) -> str:
    task = f", in task {fields['task']}" if "task" in fields else ""
    return f"{who_died(fields)}{task}: {how_it_died(fields)}"


def _starts(fields: Fields) -> str:
    return f"pool {fields['pool']}" if "pool" in fields else f"the {fields['child']}"


def _backoff(fields: Fields) -> str:
    return f"starts of {_starts(fields)} are held back after {fields['failures']} failures: {fields['words']}"


def _redis_lost(fields: Fields) -> str:
    return f"Redis {'refuses' if fields['refused'] else 'does not answer'}: {fields['error']}"


def _fatal(fields: Fields) -> str:
    return f"{_starts(fields)} needs a person after {fields['failures']} failed starts: {fields['words']}"


def _reloaded(fields: Fields) -> str:
    return f"reloaded, generation {fields['generation']}: {', '.join(fields['changes']) or 'nothing changed'}"


def _warned(fields: Fields) -> str:
    return f"{fields['path']}: {fields['warning']}" if "path" in fields else str(fields["warning"])


def _task(what: str) -> Callable[[Fields], str]:
    return lambda fields: f"task {fields.get('task', '')} {fields['task_id']} of queue {fields['queue']} {what}"


_WORDS: Final[Mapping[str, Callable[[Fields], str]]] = {
    **dict.fromkeys(names.DEATHS, _death),
    names.WORKER_LOST: "the lease of {owner} was lost: its tasks run elsewhere".format_map,
    names.TASK_RETRIED: _task("was ended by its time limit, and is tried again"),
    names.TASK_DEAD: lambda fields: f"{_task('is dead')(fields)}: {fields['reason']}",
    names.ZYGOTE_FAILED: "{module} cannot be imported: {error}".format_map,
    names.ZYGOTE_WARNING: "{warning}".format_map,
    names.POOL_BACKOFF: _backoff,
    names.POOL_FATAL: _fatal,
    names.POOL_BACK: lambda fields: f"{_starts(fields)} starts again",
    names.CONFIG_RELOADED: _reloaded,
    names.CONFIG_REJECTED: "reload refused: {path}: {error}".format_map,
    names.CONFIG_WARNING: _warned,
    names.CONDITION_FAILED: "queue {queue} is closed: its condition {condition} fails: {error}".format_map,
    names.CONDITION_WORKS: "the condition of queue {queue} works again".format_map,
    names.REDIS_LOST: _redis_lost,
    names.REDIS_BACK: "Redis answers again".format_map,
    names.REDIS_EVICTS_KEYS: "Redis is set to drop keys when its memory is full: {policy}".format_map,
    names.REDIS_KEEPS_KEYS: "Redis is set to keep all keys again".format_map,
    names.FLEET_READY: "the fleet is ready, workers so far: {workers}".format_map,
    names.FLEET_SCALED: "pool {pool}: from {before} to {workers} workers".format_map,
    names.FLEET_QUIET: "quiet: nothing more is claimed here".format_map,
    names.FLEET_RESUMED: "resumed: workers claim again".format_map,
    names.FLEET_REFUSED: "{request} refused: {error}".format_map,
    names.FLEET_DRAINING: "the fleet drains, and has {seconds:g} s for it".format_map,
    names.FLEET_WAITING: "the fleet waits for Redis before it leaves, for {seconds:g} s at most".format_map,
    names.FLEET_CALL_FAILED: "{child} in slot {slot} could not be started: {error}".format_map,
}


def note(state: MasterState, effects: Iterable[do.Effect], now: float) -> None:
    """Keep what these write to the log and people look for. Children that leave as they are told are no news: at a
    reload each one does."""
    known = state.events
    for effect in effects:
        if not isinstance(effect, do.WriteLog) or effect.event not in _WORDS:
            continue
        if effect.event in names.DEATHS and effect.level == "info":
            continue
        known.count += 1
        text = _WORDS[effect.event](effect.fields)[:MOST_CHARACTERS]
        known.last.append(FleetEvent(known.count, now, effect.level, effect.event, text, _bounded(effect.fields)))


def _bounded(fields: Fields) -> dict[str, Any]:
    """These as a page may show them."""
    return {name: _short(value) for name, value in fields.items() if name not in _LEFT_OUT}


def _short(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_short(each) for each in value[:MOST_PARTS]]
    return value if value is None or isinstance(value, int | float) else str(value)[:MOST_CHARACTERS]
