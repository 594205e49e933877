"""The proof: two journals against each other, and the fleet's own books against both. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rota_supervisor.demo.journal import Accepted, Mark, What
from rota_supervisor.demo.numbers import Numbers

_NAMED: Final = 3  # how many tasks a fault names; the journals have them all


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold, and what was seen, for people."""

    name: str
    ok: bool
    seen: str


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that the demo killed while it ran a task."""

    pid: int
    task_id: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the demo has to go by. `accepted` and `marks` are the journals, `numbers` the last `/metrics`."""

    accepted: Sequence[Accepted]
    marks: Sequence[Mark]
    kills: Sequence[Kill]
    numbers: Numbers


@dataclass(slots=True)
class _Story:
    """What one task wrote about itself."""

    starts: list[Mark]
    ends: list[Mark]

    @property
    def times_done(self) -> int:
        return sum(mark.what is What.DONE for mark in self.ends)

    def cut_short(self) -> list[int]:
        """The processes in which an attempt started and did not end, by pid."""
        left = Counter(mark.pid for mark in self.starts)
        left.subtract(mark.pid for mark in self.ends)
        return list(left.elements())


def judge(evidence: Evidence) -> list[Check]:
    """Everything the run must show."""
    stories = _stories(evidence.marks)
    return [
        _all_ran(evidence.accepted, stories),
        _none_ran_twice(evidence, stories),
        _none_early(evidence),
        _none_unknown(evidence.accepted, stories),
        _audit(evidence.numbers),
        _books_agree(evidence, stories),
        _kills_noticed(evidence),
    ]


def _stories(marks: Iterable[Mark]) -> dict[str, _Story]:
    stories: dict[str, _Story] = {}
    for mark in marks:
        story = stories.setdefault(mark.task_id, _Story([], []))
        (story.starts if mark.what is What.START else story.ends).append(mark)
    return stories


def _all_ran(accepted: Sequence[Accepted], stories: dict[str, _Story]) -> Check:
    lost = [task for task in accepted if task.task_id not in stories or not stories[task.task_id].times_done]
    if not accepted:
        return Check("every task ran", ok=False, seen="no task was accepted, so nothing was shown")
    if lost:
        return Check("every task ran", ok=False, seen=f"{len(lost)} of {len(accepted):,} never done: {_names(lost)}")
    return Check("every task ran", ok=True, seen=f"{len(accepted):,} accepted, all done, none lost")


def _none_ran_twice(evidence: Evidence, stories: dict[str, _Story]) -> Check:
    killed = {kill.task_id: kill.pid for kill in evidence.kills}
    repeated = {
        task_id: story
        for task_id, story in stories.items()
        if story.times_done > 1 or any(pid != killed.get(task_id) for pid in story.cut_short())
    }
    again = sum(len(stories[task_id].cut_short()) for task_id in killed if task_id in stories)
    retried = sum(mark.what is What.FAILED for mark in evidence.marks)
    if repeated:
        named = _names([story.starts[0] for story in repeated.values() if story.starts])
        return Check("none ran twice", ok=False, seen=f"{len(repeated)} ran more often than they should: {named}")
    seen = f"{again} ran again, of the killed worker; {retried} failed attempts were tried again"
    return Check("none ran twice", ok=True, seen=seen)


def _none_early(evidence: Evidence) -> Check:
    earliest = {task.task_id: task.not_before for task in evidence.accepted}
    starts = [mark for mark in evidence.marks if mark.what is What.START]
    early = [mark for mark in starts if mark.at < max(mark.due_at, earliest.get(mark.task_id, 0.0))]
    delayed = sum(task.delay_seconds > 0 for task in evidence.accepted)
    if early or evidence.numbers.early:
        seen = f"{len(early)} by the journal, {evidence.numbers.early} by the fleet's count: {_names(early)}"
        return Check("none started early", ok=False, seen=seen)
    return Check("none started early", ok=True, seen=f"{delayed:,} were delayed")


def _none_unknown(accepted: Sequence[Accepted], stories: dict[str, _Story]) -> Check:
    unknown = [stories[task_id].starts[0] for task_id in stories.keys() - {task.task_id for task in accepted}]
    if unknown:
        return Check("none from nowhere", ok=False, seen=f"{len(unknown)} ran that nobody sent: {_names(unknown)}")
    return Check("none from nowhere", ok=True, seen="every run was of an accepted task")


def _audit(numbers: Numbers) -> Check:
    if numbers.missing is None:
        return Check("audit", ok=False, seen="the fleet could not reach Redis for it")
    return Check("audit", ok=numbers.missing == 0, seen=f"{numbers.missing} missing in Redis")


def _books_agree(evidence: Evidence, stories: dict[str, _Story]) -> Check:
    accepted, done = len(evidence.accepted), sum(story.times_done for story in stories.values())
    counted = evidence.numbers
    ok = (counted.enqueued, counted.done) == (accepted, done)
    seen = f"metrics: {counted.enqueued:,} enqueued, {counted.done:,} done; journals: {accepted:,} and {done:,}"
    return Check("metrics agree", ok, seen)


def _kills_noticed(evidence: Evidence) -> Check:
    restarts = evidence.numbers.restarts.get(("worker", "signal"), 0)
    kills, recovered = len(evidence.kills), evidence.numbers.recovered
    seen = f"{kills} worker killed, {restarts} restarted for it, {recovered} task recovered"
    return Check("kill noticed", ok=kills == restarts == recovered, seen=seen)


def _names(tasks: Sequence[Accepted | Mark]) -> str:
    shown = ", ".join(f"{task.task} {task.task_id}" for task in tasks[:_NAMED])
    return f"{shown}, ..." if len(tasks) > _NAMED else shown
