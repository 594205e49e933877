"""The processes of this node as `/status.json` shows them, and the tasks that they run."""

from collections.abc import Mapping
from functools import cached_property
from operator import add
from typing import Final

from rota.child.slots import Phase
from rota.protocol.entry import MICROSECONDS
from rota.protocol.progress import progress_row
from rota.telemetry import metrics as m
from rota.telemetry.queue_labels import QueueLabels
from rota_supervisor.exporter.fleet import Member, MemberTask
from rota_supervisor.exporter.history import quantile
from rota_supervisor.exporter.observer import Observation
from rota_supervisor.exporter.samples import Numbers
from rota_supervisor.exporter.settings import ExporterSettings
from rota_supervisor.notice import ChildOrigin, Json

_MOST_DIGITS: Final = 16  # of a time in an entry; a task may write anything there
_LEAST_RUNS: Final = 10  # so that it is known what is usual
_NO_TASK: Final[Json] = dict.fromkeys(
    ("task", "task_age_seconds", "limit_seconds", "left_seconds", "lag_seconds", "usual_seconds", "progress")
)


def process_rows(settings: ExporterSettings, seen: Observation) -> list[Json]:
    """Return a row for each process that lives, by slot."""
    told = {each.slot: each for each in seen.notice.children}
    tasks = TaskRows(settings, seen)
    return [_process(member, told.get(member.slot), tasks) for member in seen.fleet]


def _process(member: Member, told: ChildOrigin | None, rows: "TaskRows") -> Json:
    tasks = [rows.row(running) for running in member.tasks]
    return {
        "slot": member.slot,
        "role": str(member.role),
        "pool": None if told is None else told.pool,
        "generation": None if told is None else told.generation,
        "pid": member.pid,
        "phase": member.phase.name.lower(),
        "quiet": member.phase is Phase.QUIET,
        "concurrency": member.places,
        "beat_age_seconds": member.beat_age_seconds,
        **(tasks[0] if tasks else _NO_TASK),
        "tasks": [{"place": running.task.place, **row} for running, row in zip(member.tasks, tasks, strict=True)],
    }


class TaskRows:
    """Says of a task that runs how late it began, and for how long it may run and usually does."""

    def __init__(self, settings: ExporterSettings, seen: Observation) -> None:
        self._labels = QueueLabels([queue.name for queue in settings.queues])
        self._seen = seen

    def row(self, running: MemberTask) -> Json:
        task, age, left = running.task, running.age_seconds, running.left_seconds
        return {
            "task": {"id": task.id, "name": task.name, "queue": task.queue},
            "task_age_seconds": age,
            "limit_seconds": round(age + left, 3) if task.deadline_ns else None,
            "left_seconds": round(left, 3) if task.deadline_ns else None,
            "lag_seconds": self._lag(running),
            "usual_seconds": self._usual(task.queue, task.name),
            "progress": progress_row(running.progress),
        }

    def _lag(self, running: MemberTask) -> float | None:
        """By Redis's clock; None while nobody knows that."""
        reading, due = self._seen.reading, running.task.due
        if reading is None or not due.isdecimal() or len(due) > _MOST_DIGITS:
            return None
        started_at = self._seen.at + reading.clock_offset_seconds - running.age_seconds
        return round(max(0.0, started_at - int(due) / MICROSECONDS), 3)

    def _usual(self, queue: str, name: str) -> float | None:
        """Return how long nearly all runs of such a task took; after too few of them, of all tasks of its queue."""
        label = self._labels.of(queue)
        of_task = _longest(self._seen.samples.get(m.TASK_RUNTIME, label, name))
        return _longest(self._runs_of_queues.get(label)) if of_task is None else of_task

    @cached_property
    def _runs_of_queues(self) -> Mapping[str, Numbers]:
        runs: dict[str, Numbers] = {}
        for (queue, _), numbers in self._seen.samples.series(m.TASK_RUNTIME):
            runs[queue] = tuple(map(add, runs[queue], numbers)) if queue in runs else numbers
        return runs


def _longest(numbers: Numbers | None) -> float | None:
    return quantile(m.TASK_RUNTIME, numbers, 0.99) if numbers and sum(numbers[:-1]) >= _LEAST_RUNS else None
