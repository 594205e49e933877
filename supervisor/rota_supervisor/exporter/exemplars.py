"""Exemplars of lag: of which task a bucket counted a start.

They are taken from the tasks that run at a scrape, as their slots show them, so that a start costs its worker nothing.
Each task is taken once: its lag by our clock and Redis's is a little different at each look, and so may be the bucket.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import core as prometheus

from rota.protocol.entry import MICROSECONDS, parse_entry
from rota.protocol.names import is_name
from rota.telemetry.metrics import TASK_LAG
from rota_supervisor.exporter.fleet import Member, MemberTask
from rota_supervisor.exporter.samples import Labels

_MOST_CHARACTERS: Final = 100  # all labels of an exemplar together have 128, names and all


class Exemplars:
    """The last task seen for each bucket of each lag histogram."""

    def __init__(self, label_of: Callable[[str], str]) -> None:
        self._label_of = label_of
        self._taken: set[bytes] = set()  # entries of tasks that still run
        self.by_series: dict[tuple[str, Labels], dict[int, prometheus.Exemplar]] = {}

    def take(self, fleet: Iterable[Member], clock_offset_seconds: float, known: Iterable[Labels]) -> None:
        """Look at what runs. `clock_offset_seconds`: Redis time minus our wall clock. `known`: the label sets of lag
        that are shown."""
        shown, taken = frozenset(known), set()
        for running in (task for member in fleet for task in member.tasks):
            entry = running.task.entry
            if entry in self._taken or self._take(running, clock_offset_seconds, shown):
                taken.add(entry)
        self._taken = taken

    def _take(self, running: MemberTask, clock_offset_seconds: float, shown: frozenset[Labels]) -> bool:
        """Return whether it became an exemplar."""
        at = time.time() - running.age_seconds
        try:
            entry = parse_entry(running.task.entry)
            lag = max(0.0, at + clock_offset_seconds - entry.due_us / MICROSECONDS)
        except (ValueError, LookupError, ArithmeticError):  # a task may write anything there
            return False
        labels = self._label_of(entry.queue), entry.kind.label
        if labels not in shown or not is_name(entry.id) or len(entry.id) > _MOST_CHARACTERS:
            return False
        of_series = self.by_series.setdefault((TASK_LAG.name, labels), {})
        of_series[bisect_left(TASK_LAG.buckets, lag)] = prometheus.Exemplar({"task_id": entry.id}, lag, at)
        return True
