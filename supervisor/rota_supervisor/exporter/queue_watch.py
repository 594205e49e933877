"""Reads the queues from Redis, and chooses which queues of patterns are shown by name: the largest ones.

Redis is read at most once a second, and a reader waits for at most half a second. If a reply takes longer, the last
reply is shown in the meantime, for at most half a minute. After that, no gauges of queues are exported until Redis
replies. The age of the data is itself exported as a gauge.

Any number of queues can match a pattern, so the queues are read in chunks. A reading takes at most a quarter of a
second. If this is too short for all queues, the next reading continues where the last one stopped, and queues that were
not read keep their last values. Queues that are not shown by name are added up as `_other`, but only for values that
can go up and down. Values that only grow, such as the number of accepted tasks, are counted for each pattern as a
whole, because the count of a single queue starts again at 0 if Redis has forgotten the queue in between.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from rota.durations import in_seconds
from rota.protocol import store, views
from rota.protocol.entry import MICROSECONDS
from rota.protocol.groups import Groups
from rota.protocol.keys import is_pattern
from rota.protocol.scans import complete_overview
from rota.protocol.schedule_store import SchedulePage, ScheduleStore
from rota.protocol.scripts import RunCall, follow
from rota.protocol.views import QueueState
from rota.telemetry.metrics import OTHER, QueueLabels
from rota_supervisor.exporter.exporter_settings import ExporterSettings
from rota_supervisor.exporter.redis_thread import CachedResult, RedisThread

MOST_UNMATCHED: Final = 500  # at most this many queues are shown that are in no tier
_STAYS_UP_TO: Final = 2
_ADDED: Final = ("ready", "scheduled", "overdue", "inflight", "dead", "accepted")


def size_of(state: QueueState) -> int:
    """Return how many tasks of a queue are running or have yet to run."""
    return state.ready + state.scheduled + state.inflight


def as_one(states: Sequence[QueueState]) -> QueueState:
    """Return the state of several queues as if they were one queue. Numbers are summed, and the longest ages are used.
    The merged queue is paused or closed if any of the queues is. If one of the queues has ready tasks and is not
    served, the merged queue is not served either.
    """
    return QueueState(
        queue=OTHER,
        **{name: sum(getattr(each, name) for each in states) for name in _ADDED},
        oldest_ready_age_us=max((each.oldest_ready_age_us for each in states), default=0),
        oldest_overdue_age_us=max((each.oldest_overdue_age_us for each in states), default=0),
        paused=any(each.paused for each in states),
        served=all(each.served or not each.ready for each in states),
        closed_age_us=max((each.closed_age_us for each in states), default=0),
        closed_by=next((each.closed_by for each in states if each.closed_by), ""),
        condition_error=next((each.condition_error for each in states if each.condition_error), ""),
    )


class ShownQueues(NamedTuple):
    """The queues to show: the queues that tiers name, the queues that are in no tier, the largest queues of patterns,
    and all other queues of patterns merged into one."""

    queues: tuple[QueueState, ...]
    accepted: dict[str, int]  # the number of accepted tasks, by queue or pattern
    pattern_of: dict[str, str]  # the pattern of each of the largest queues; the pattern of `_other` is `_other`
    oldest_ready_us: dict[str, int]  # by pattern: the age of the oldest ready task in queues that are not paused


class Largest:
    """The selection of the queues to show, based on the names and patterns of the tiers.

    Among the queues that only match a pattern, the `top` largest are chosen. A queue stays chosen while it is among the
    `2 * top` largest, because otherwise each reading could start new series if queues have similar sizes.
    """

    def __init__(self, served: Sequence[str], top: int) -> None:
        self.served = tuple(served)
        self._labels = QueueLabels(served)
        self._top = top
        self._chosen: frozenset[str] = frozenset()
        self._accepted = dict.fromkeys(filter(is_pattern, served), 0)

    def choose(self, states: Sequence[QueueState], *, all_seen: bool) -> ShownQueues:
        """Choose the queues to show. `all_seen`: whether `states` contains every queue that exists.

        `states` also has a row for each pattern, with the number of tasks that were accepted in queues that Redis has
        forgotten.
        """
        rows = [each for each in states if not is_pattern(each.queue)]
        of_patterns = [each for each in rows if self._labels.of(each.queue) != each.queue]
        own = sorted((each for each in rows if self._labels.of(each.queue) == each.queue), key=self._sort_key)
        del own[len(self.served) + MOST_UNMATCHED :]
        if all_seen:
            self._add_up_accepted(states)
        chosen = self._largest_and_rest(of_patterns)
        return ShownQueues(
            (*own, *chosen),
            {each.queue: each.accepted for each in own} | self._accepted,
            {each.queue: self._labels.of(each.queue) for each in chosen},
            self._oldest_ready(of_patterns),
        )

    def _sort_key(self, state: QueueState) -> tuple[bool, bool]:
        """Return the sort key of a queue. Queues that tiers name come before all others. Within these two groups,
        queues that have tasks but are not served come first.
        """
        return state.queue not in self.served, state.served or not size_of(state)

    def _oldest_ready(self, of_patterns: Iterable[QueueState]) -> dict[str, int]:
        oldest = dict.fromkeys(self._accepted, 0)
        for state in of_patterns:
            if not state.paused:
                label = self._labels.of(state.queue)
                oldest[label] = max(oldest[label], state.oldest_ready_age_us)
        return oldest

    def _add_up_accepted(self, states: Sequence[QueueState]) -> None:
        found = dict.fromkeys(self._accepted, 0)
        for state in states:
            label = self._labels.of(state.queue)
            if label in found:
                found[label] += state.accepted
        # If Redis forgets a queue between two chunks, its tasks can be missing from every row. So the larger of the old
        # and the new number is kept.
        self._accepted = {label: max(number, self._accepted[label]) for label, number in found.items()}

    def _largest_and_rest(self, states: list[QueueState]) -> tuple[QueueState, ...]:
        if not self._accepted:
            return ()
        ranked = sorted(states, key=lambda each: (-size_of(each), each.queue))
        near = sorted(ranked[: _STAYS_UP_TO * self._top], key=lambda each: each.queue not in self._chosen)
        self._chosen = frozenset(each.queue for each in near[: self._top])
        rest = [each for each in ranked if each.queue not in self._chosen]
        return (*near[: self._top], as_one(rest))


SCHEDULES_SHOWN: Final = 100
GROUPS_SHOWN: Final = 20
NO_SCHEDULES: Final = SchedulePage(0, 0, ())
NO_GROUPS: Final = Groups(0, (), {})
SCAN_SECONDS: Final = 0.25
_OF_A_ROW: Final = tuple(each.name for each in fields(views.QueueState) if each.name != "queue")


@dataclass(frozen=True, slots=True)
class QueueReading:
    """The data that one reading of the queues from Redis returned."""

    shown: ShownQueues
    missing_tasks: int  # the number of tasks that the audit cannot account for
    clock_offset_seconds: float  # Redis time minus the local wall clock
    consumers: views.Consumers
    schedules: SchedulePage = NO_SCHEDULES  # the next schedules
    groups: Groups = NO_GROUPS  # the groups that have been open for the longest time
    read_at: float = 0.0  # when the reading was begun (monotonic)
    round_trip_seconds: float = 0.0  # how long one call to Redis took


def queue_row(state: views.QueueState) -> dict[str, Any]:
    """Return the row of a queue in `/status.json`, with durations in seconds."""
    return in_seconds({name: getattr(state, name) for name in _OF_A_ROW})


class QueueScan:
    """A scan of all queues, spread over several readings. Each reading takes at most `seconds`."""

    def __init__(self, scripts: store.Store, named: tuple[str, ...], seconds: float = SCAN_SECONDS) -> None:
        self._scripts = scripts
        self._named = named
        self._seconds = seconds
        self._cursor = "0"
        self._seen: dict[str, views.QueueState] = {}  # the queues read since the current scan began
        self._seen_before: dict[str, views.QueueState] = {}

    def read_first(self, run: RunCall) -> views.Overview:
        """Read the named queues, and one chunk of the other queues."""
        return run(self._scripts.overview(self._named, self._cursor))

    def read_more(self, run: RunCall, first: views.Overview) -> views.Overview:
        """Read more chunks, and return the state of all queues. Queues that were not read this time have their last
        known values. `more` in the result is true until the scan is complete.
        """
        deadline = time.monotonic() + self._seconds
        scanned = follow(run, complete_overview(self._scripts, first, lambda: time.monotonic() > deadline))
        self._cursor = scanned.cursor
        self._seen |= {row.queue: row for row in scanned.queues}
        if scanned.more:
            is_complete = bool(self._seen_before)
            rows = self._seen_before | self._seen
        else:
            is_complete = True
            rows = self._seen
            self._seen_before = self._seen
            self._seen = {}
        return replace(scanned, queues=tuple(rows.values()), cursor="0" if is_complete else scanned.cursor)


class QueueWatch:
    """The reader of the queues. `read` returns the latest reading, and requests a new one if necessary."""

    def __init__(self, settings: ExporterSettings, redis: RedisThread) -> None:
        self._scripts = store.Store(settings.server.namespace)
        self._schedules = ScheduleStore(settings.server.namespace)
        self._largest = Largest([queue.name for queue in settings.queues], settings.top_queues)
        self._scan = QueueScan(self._scripts, self._largest.served)
        result = CachedResult(redis, self._read_from)
        self.read = result.read
        self.keep_fresh = result.keep_fresh

    def _read_from(self, run: RunCall) -> QueueReading:
        before = time.time()
        read_at = time.monotonic()
        first = self._scan.read_first(run)
        offset = first.now_us / MICROSECONDS - (before + time.time()) / 2
        sent_at = time.monotonic()
        consumers = run(self._scripts.consumers())
        took = time.monotonic() - sent_at
        missing = run(self._scripts.audit()).missing
        planned = run(self._schedules.page(0, SCHEDULES_SHOWN))
        groups = run(self._scripts.groups(count=GROUPS_SHOWN))
        seen = self._scan.read_more(run, first)
        shown = self._largest.choose(seen.queues, all_seen=not seen.more)
        return QueueReading(shown, missing, offset, consumers, planned, groups, read_at, took)
