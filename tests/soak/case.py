"""The case that all checks of a soak examine. It consists of the evidence and of values derived from the evidence."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from rota.telemetry import log_events
from soak.causes import Causes
from soak.evidence import Evidence, Logged
from soak.histories import History, histories_of


@dataclass(frozen=True)
class Case:
    """The evidence of a soak, and values derived from it. Each value is computed once, and all checks share it."""

    evidence: Evidence

    @cached_property
    def histories(self) -> dict[str, History]:
        """The history of each task, by its id."""
        return histories_of(self.evidence.sent, self.evidence.ran)

    @cached_property
    def causes(self) -> Causes:
        """The recorded faults as possible causes."""
        return Causes(self.evidence)

    @cached_property
    def settled(self) -> frozenset[tuple[str, int]]:
        """The runs whose outcome was logged by the worker, as pairs of task id and pid. A worker logs an outcome only
        after it has written the outcome into its slot.
        """
        return frozenset(
            (str(line.fields.get("task_id")), int(line.fields.get("pid", 0)))
            for line in self.logged(log_events.TASK_DONE, log_events.TASK_RETRIED, log_events.TASK_DEAD)
        )

    @cached_property
    def deaths(self) -> dict[str, str]:
        """The ids of the tasks that became dead, each with the logged reason."""
        deaths = self.logged(log_events.TASK_DEAD)
        return {
            str(line.fields["task_id"]): str(line.fields.get("reason")) for line in deaths if "task_id" in line.fields
        }

    @cached_property
    def _returns(self) -> dict[str, list[float]]:
        returns: dict[str, list[float]] = {}
        for line in self.logged(log_events.TASK_RECOVERED):
            returns.setdefault(str(line.fields.get("task_id")), []).append(line.boot)
        return returns

    def given_back(self, task_id: str, since: float, until: float) -> float:
        """Return when a master or a poller logged that a task was returned to its lane, for the first time between
        `since` and `until`. Return `until` if neither logged it.
        """
        return min((boot for boot in self._returns.get(task_id, []) if since <= boot <= until), default=until)

    @cached_property
    def last_seen_of(self) -> dict[int, list[float]]:
        """The times at which each process wrote to the journal of the tasks, by pid."""
        seen: dict[int, list[float]] = {}
        for mark in self.evidence.ran:
            seen.setdefault(mark.pid, []).append(mark.boot)
        return seen

    def logged(self, *names: str) -> Iterator[Logged]:
        """Return the log lines of all nodes with these event names."""
        return (line for line in self.evidence.logged if line.event in names)
