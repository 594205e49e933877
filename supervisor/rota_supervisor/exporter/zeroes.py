"""The series that exist at 0 from the start, so that the first event already counts in a `rate()`."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final

from rota.telemetry import metrics as m
from rota.telemetry.metrics import CounterDefinition, Definition, HistogramDefinition, Writer
from rota_supervisor.exporter.samples import Labels

# The values of labels that are fixed sets; `reason` means something else in each metric.
_FIXED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    m.TASKS_RECOVERED.name: {"reason": m.RECOVERY_REASONS},
    m.PROCESS_RESTARTS.name: {"role": m.CHILD_ROLES, "reason": m.RESTART_REASONS},
    m.CONFIG_RELOADS.name: {"result": m.RELOAD_RESULTS},
}


def zeroes(queues: Iterable[str]) -> Iterator[tuple[Definition, Labels]]:
    """Every recorded counter and histogram whose label values are known beforehand: each queue, each kind."""
    known = {"queue": tuple(queues), "kind": m.KINDS}
    for definition in m.ALL:
        values = known | _FIXED.get(definition.name, {})
        if _is_recorded(definition) and values.keys() >= set(definition.labels):
            yield from ((definition, labels) for labels in product(*(values[label] for label in definition.labels)))


def _is_recorded(definition: Definition) -> bool:
    counts = isinstance(definition, CounterDefinition | HistogramDefinition)
    return counts and definition.writers != (Writer.EXPORTER,)
