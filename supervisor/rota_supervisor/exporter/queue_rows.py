"""The queues as `/status.json` shows them, and the tiers in which they are served."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter

from rota.protocol.patterns import is_pattern
from rota.protocol.views import QueueState
from rota.telemetry import metrics as m
from rota.telemetry.label_values import OTHER
from rota.telemetry.queue_labels import QueueLabels
from rota_supervisor.exporter.history import Recent
from rota_supervisor.exporter.largest import size_of
from rota_supervisor.exporter.observer import Observation
from rota_supervisor.exporter.queues import queue_row
from rota_supervisor.exporter.samples import Samples
from rota_supervisor.exporter.settings import ExporterSettings, QueueSettings
from rota_supervisor.notice import Json


def tiers_of(settings: ExporterSettings) -> dict[int, tuple[QueueSettings, ...]]:
    """Return the queues of each tier by its number, the highest first."""
    return {number: tuple(tier) for number, tier in groupby(settings.queues, key=attrgetter("tier"))}


def queue_rows(settings: ExporterSettings, seen: Observation) -> list[Json]:
    """Return a row for each configured queue, and then one for each other queue that is in use, as Redis has them."""
    states = {} if seen.reading is None else {state.queue: state for state in seen.reading.shown.queues}
    configured, tiers = {queue.name: queue for queue in settings.queues}, tiers_of(settings)
    strange = (name for name in states.keys() - configured.keys() if _is_in_use(states[name]))
    others = sorted(strange, key=lambda name: (name == OTHER, name))
    labels, processed = QueueLabels(configured), _processed(seen.samples)
    rows = []
    for name in (*configured, *others):
        label = labels.of(name)
        queue = configured.get(label)
        rows.append(
            {
                **_described(name, label, queue, states.get(name)),
                **_served(name, queue, () if queue is None else tiers[queue.tier], seen.recent),
                "processed": dict(processed[name]),
            }
        )
    return rows


def _is_in_use(state: QueueState) -> bool:
    """Whether somebody serves a queue, or something is in it: a queue that was purged is known to Redis for minutes."""
    return state.served or state.paused or state.dead > 0 or size_of(state) > 0


def _processed(samples: Samples) -> Mapping[str, Counter[str]]:
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (queue, _, outcome), (count,) in samples.series(m.TASKS_PROCESSED):
        found[queue][outcome] += int(count)
    return found


def _described(name: str, label: str, queue: QueueSettings | None, state: QueueState | None) -> Json:
    """`pattern`: what it is counted as, where that is another name: what happened to its tasks stands there."""
    return {
        "name": name,
        "configured": queue is not None,
        "pattern": None if label == name else label,
        "tier": None if queue is None else queue.tier,
        "weight": None if queue is None else queue.weight,
        "lag_objective_seconds": None if queue is None else queue.lag_objective_seconds,
        "state": None if state is None else queue_row(state),
    }


def _served(name: str, queue: QueueSettings | None, tier: tuple[QueueSettings, ...], recent: Recent) -> Json:
    """What this node made of it in the last minutes. With patterns in a tier the shares due to its queues depend on how
    many have something to run."""
    starts = recent.starts(name)
    of_tier = sum(recent.starts(each.name).number for each in tier)
    has_patterns = any(is_pattern(each.name) for each in tier)
    is_own = queue is not None and queue.name == name
    is_counted = is_own or name in recent.totals.queues
    due = None if queue is None or has_patterns else queue.weight / sum(each.weight for each in tier)
    return {
        "share": round(starts.number / of_tier, 4) if is_own and of_tier else None,
        "due_share": None if due is None else round(due, 4),
        "lag": asdict(recent.lag(starts)) if is_counted else None,
        "history": recent.row(name) if is_counted else None,
    }
