"""The proof: two journals against each other, and the fleet's own books against both. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rota_supervisor.demo.books import FleetBooks
from rota_supervisor.demo.journal import Accepted, Mark, What

_NAMED: Final = 3  # how many tasks a fault names; the journals have them all


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold, and what was seen, for people."""

    name: str
    ok: bool
    seen: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the demo has to go by. `accepted` and `marks` are the journals, `kills` the starts that ended by the demo's
    SIGKILL, `books` the fleet's last answer."""

    accepted: Sequence[Accepted]
    marks: Sequence[Mark]
    kills: Sequence[Mark]
    books: FleetBooks


@dataclass(slots=True)
class _Story:
    """What one task wrote about itself."""

    starts: list[Mark] = field(default_factory=list)
    ends: list[Mark] = field(default_factory=list)

    @property
    def times_done(self) -> int:
        return sum(mark.what is What.DONE for mark in self.ends)

    def cut_short(self) -> list[int]:
        """The processes in which an attempt started and did not end, by pid."""
        left = Counter(mark.pid for mark in self.starts)
        left.subtract(mark.pid for mark in self.ends)
        return list(left.elements())


Stories = Mapping[str, _Story]
Finding = tuple[bool, str]


def check_run(evidence: Evidence) -> list[Check]:
    """Check everything that the run must show."""
    stories: dict[str, _Story] = {}
    for mark in evidence.marks:
        story = stories.setdefault(mark.task_id, _Story())
        (story.starts if mark.what is What.START else story.ends).append(mark)
    return [Check(name, *look(evidence, stories)) for name, look in _CHECKS.items()]


def _all_ran(evidence: Evidence, stories: Stories) -> Finding:
    accepted = evidence.accepted
    lost = [task for task in accepted if task.task_id not in stories or not stories[task.task_id].times_done]
    if not accepted:
        return False, "no task was accepted, so nothing was shown"
    if lost:
        return False, f"{len(lost)} of {len(accepted):,} never done: {_names(lost)}"
    return True, f"{len(accepted):,} accepted, all done, none lost"


def _none_ran_twice(evidence: Evidence, stories: Stories) -> Finding:
    killed = {kill.task_id: kill.pid for kill in evidence.kills}
    repeated = [
        story
        for task_id, story in stories.items()
        if story.times_done > 1 or any(pid != killed.get(task_id) for pid in story.cut_short())
    ]
    again = sum(len(stories[task_id].cut_short()) for task_id in killed if task_id in stories)
    retried = sum(mark.what is What.FAILED for mark in evidence.marks)
    if repeated:
        named = _names([story.starts[0] for story in repeated if story.starts])
        return False, f"{len(repeated)} ran more often than they should: {named}"
    return True, f"{again} ran again, of the killed worker; {retried} failed attempts were tried again"


def _none_early(evidence: Evidence, _stories: Stories) -> Finding:
    earliest = {task.task_id: task.not_before for task in evidence.accepted}
    starts = [mark for mark in evidence.marks if mark.what is What.START]
    early = [mark for mark in starts if mark.at < max(mark.due_at, earliest.get(mark.task_id, 0.0))]
    if early or evidence.books.early:
        return False, f"{len(early)} by the journal, {evidence.books.early} by the fleet's count: {_names(early)}"
    return True, f"{sum(task.delay_seconds > 0 for task in evidence.accepted):,} were delayed"


def _none_unknown(evidence: Evidence, stories: Stories) -> Finding:
    unknown = [stories[each].starts[0] for each in stories.keys() - {task.task_id for task in evidence.accepted}]
    if unknown:
        return False, f"{len(unknown)} ran that nobody sent: {_names(unknown)}"
    return True, "every run was of an accepted task"


def _audit(evidence: Evidence, _stories: Stories) -> Finding:
    missing = evidence.books.missing
    return missing == 0, "the fleet could not reach Redis for it" if missing is None else f"{missing} missing in Redis"


def _counts_agree(evidence: Evidence, stories: Stories) -> Finding:
    accepted, done = len(evidence.accepted), sum(story.times_done for story in stories.values())
    counted = evidence.books
    seen = f"the fleet: {counted.enqueued:,} enqueued, {counted.done:,} done; journals: {accepted:,} and {done:,}"
    return (counted.enqueued, counted.done) == (accepted, done), seen


def _kills_noticed(evidence: Evidence, _stories: Stories) -> Finding:
    restarts = evidence.books.restarts.get(("worker", "signal"), 0)
    kills, recovered = len(evidence.kills), evidence.books.recovered
    seen = f"{kills} worker killed, {restarts} restarted for it, {recovered} task recovered"
    return kills == restarts == recovered, seen


def _names(tasks: Sequence[Accepted | Mark]) -> str:
    shown = ", ".join(f"{task.task} {task.task_id}" for task in tasks[:_NAMED])
    return f"{shown}, ..." if len(tasks) > _NAMED else shown


_CHECKS: Final[Mapping[str, Callable[[Evidence, Stories], Finding]]] = {
    "every task ran": _all_ran,
    "none ran twice": _none_ran_twice,
    "none started early": _none_early,
    "none from nowhere": _none_unknown,
    "audit": _audit,
    "the counts agree": _counts_agree,
    "kill noticed": _kills_noticed,
}
