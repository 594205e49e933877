"""The metrics of a fleet with many queues: the records of its workers in real slots, and the exporter's output for
these records.
"""

import os
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from rota.child.slot_memory import SlotMemory
from rota.child.slots import MASTER_SLOT, Phase
from rota.protocol.views import Consumers, QueueState
from rota.telemetry import metrics as m
from rota.telemetry.recorder import Recorder
from rota_supervisor.config.model import QueueConfig
from rota_supervisor.exporter.exposition import ScrapeOptions
from rota_supervisor.exporter.node_status import node_status
from rota_supervisor.exporter.observer import Observer, OwnSlot
from rota_supervisor.exporter.queue_watch import Largest, QueueReading
from rota_supervisor.layout import EXPORTER_SLOT, RANGES, Role
from support.child_settings import exporter_settings

TASKS: Final = 4
WORKERS: Final = 2
KIND: Final = "immediate"
TARGET: Final = 0.99
_LINE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the exporter's output."""

    name: str
    labels: dict[str, str]
    value: float


class ManyQueues:
    """A fleet with `number` queues, each with `TASKS` task names. `WORKERS` workers record the runs of these tasks in
    their slots, in turn.
    """

    def __init__(self, number: int) -> None:
        self.names = tuple(f"q{at:04}" for at in range(number))
        self.settings = exporter_settings(dict.fromkeys(self.names, QueueConfig(lag_target=TARGET)))
        memory = SlotMemory.create(RANGES[Role.WORKER][0] + WORKERS)
        first = RANGES[Role.WORKER][0]
        for slot in (MASTER_SLOT, EXPORTER_SLOT, *range(first, first + WORKERS)):
            memory.slot(slot).assign(1)
            memory.slot(slot).enter(1, os.getpid())
            memory.slot(slot).phase = Phase.IDLE
        self._workers = [Recorder(memory.slot(first + at).metrics) for at in range(WORKERS)]
        own = OwnSlot.of(memory.slot(EXPORTER_SLOT))
        self._observer = Observer(self.settings, memory, os.getpid(), self._reading, own)
        self._observer.note_history()
        self.runs = 0

    def run(self, late: int, *outcomes: str) -> None:
        """Record one run of each task of each queue for each of these outcomes. The first `late` of these runs of a
        task started too late.
        """
        for at, queue in enumerate(self.names):
            for task in range(TASKS):
                worker = self._workers[(at + task) % WORKERS]
                for run, outcome in enumerate(outcomes):
                    worker.histogram(m.TASK_LAG, queue, KIND).observe(9.0 if run < late else 0.01)
                    worker.histogram(m.QUEUE_WAIT, queue, KIND).observe(0.01)
                    worker.counter(m.CLAIMS, queue).add()
                    worker.histogram(m.TASK_RUNTIME, queue, f"t{task}").observe(0.01)
                    worker.counter(m.TASKS_PROCESSED, queue, f"t{task}", outcome).add()
                worker.counter(m.TASK_LAG_OBJECTIVE_MISSES, queue, KIND).add(late)
        self.runs += TASKS * len(outcomes)

    def scrape(self) -> list[Line]:
        body = self._observer.scrape(ScrapeOptions()).body.decode()
        found = (_LINE.fullmatch(line) for line in body.splitlines() if not line.startswith("#"))
        return [Line(each[1], dict(_LABEL.findall(each[2] or "")), float(each[3])) for each in found if each]

    def status(self) -> dict[str, Any]:
        return node_status(self.settings, self._observer.observe())

    def _reading(self) -> QueueReading:
        states = [QueueState(name, 1, 0, 0, 0, 0, 5, 0, 0, paused=False, served=True) for name in self.names]
        return QueueReading(Largest(self.names, 20).choose(states, all_seen=True), 0, 0.0, Consumers(0, ()))


def by_queue(lines: list[Line], name: str, **labels: str) -> Counter[str]:
    """Return the sum of a metric's values for each queue. Only lines with these labels count."""
    found = Counter[str]()
    for line in lines:
        if line.name == name and labels.items() <= line.labels.items():
            found[line.labels["queue"]] += line.value  # type: ignore[assignment]  # a counter of floats
    return found
