"""The journals of the producers and the tasks, combined into one history per task. A history has the request and the
runs of the task.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from soak.evidence import CallEvent, Ran, RunEvent, Sent

_CANCELS = frozenset(
    {CallEvent.CANCEL, CallEvent.CANCELLED, CallEvent.CANCELLING, CallEvent.NOT_CANCELLED, CallEvent.CANCEL_UNKNOWN}
)


@dataclass(slots=True)
class Run:
    """One start of a task, with its end if an end was recorded."""

    start: Ran
    end: Ran | None = None

    @property
    def began(self) -> float:
        """The time of the start (CLOCK_BOOTTIME in seconds)."""
        return self.start.boot

    @property
    def finished(self) -> float | None:
        """The time at which the function returned or raised an exception, or None if neither was recorded."""
        return self.end.boot if self.end is not None and self.end.what is not RunEvent.DIES else None

    def did(self, what: RunEvent) -> bool:
        """Whether the run's last record is of this kind."""
        return self.end is not None and self.end.what is what


@dataclass(slots=True)
class History:
    """The history of a task. `request` is None if no producer recorded a request for the task."""

    id: str
    request: Sent | None = None
    replies: list[Sent] = field(default_factory=list)
    cancels: list[Sent] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def reply(self, what: CallEvent) -> Sent | None:
        """Return the first reply of this kind to the request, or None if there is none."""
        return next((each for each in self.replies if each.what is what), None)

    def cancel(self, what: CallEvent) -> Sent | None:
        """Return the first record of this kind about a cancellation, or None if there is none."""
        return next((each for each in self.cancels if each.what is what), None)

    @property
    def accepted(self) -> Sent | None:
        """The reply with which the server accepted the task. Each id is sent by only one call, so a `DUPLICATE` reply
        also shows that the task of that call was accepted.
        """
        return self.reply(CallEvent.ACCEPTED) or self.reply(CallEvent.DUPLICATE)

    @property
    def may_exist(self) -> bool:
        """Whether the server accepted the task, or may have accepted it because the reply is missing or unclear."""
        words = {each.what for each in self.replies}
        return self.request is not None and (
            not words or bool(words & {CallEvent.ACCEPTED, CallEvent.DUPLICATE, CallEvent.UNKNOWN})
        )

    @property
    def ends(self) -> list[Run]:
        """The runs whose function returned."""
        return [run for run in self.runs if run.did(RunEvent.END)]

    def count(self, what: RunEvent) -> int:
        """Return the number of runs that ended with a record of this kind."""
        return sum(run.did(what) for run in self.runs)

    @property
    def unfinished(self) -> int:
        """The number of runs in which the function neither returned nor raised an exception."""
        return sum(run.finished is None for run in self.runs)


def histories_of(sent: Iterable[Sent], ran: Iterable[Ran]) -> dict[str, History]:
    """Return the history of each task by its id, in the order of their first records."""
    found: dict[str, History] = {}
    for each in sent:
        history = found.setdefault(each.id, History(each.id))
        if each.what is CallEvent.INTENDED:
            history.request = history.request or each
        else:
            (history.cancels if each.what in _CANCELS else history.replies).append(each)
    for mark in ran:
        _add(found.setdefault(mark.id, History(mark.id)), mark)
    return found


def _add(history: History, mark: Ran) -> None:
    if mark.what is RunEvent.START:
        history.runs.append(Run(mark))
        return
    for run in reversed(history.runs):
        if run.start.pid == mark.pid and run.start.owner == mark.owner and run.end is None:
            run.end = mark
            return
    history.runs.append(Run(mark, mark))  # an end without a recorded start counts as a separate run
