"""What Redis says of the queues, asked at most once a second and waited for at most half a second. While an answer
takes longer, the last one is shown, for half a minute at most.

With patterns there may be any number of queues: they are looked at portion by portion, for half of that time. Where
that is not enough the next look goes on there, and of the others it is shown how they were.

While Redis does not answer there are no queue gauges. How old those are that there are is a gauge too.
"""

import time
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from rota.durations import in_seconds
from rota.protocol import store, views
from rota.protocol.command import RunCommand, follow
from rota.protocol.entry import MICROSECONDS
from rota.protocol.groups import Groups
from rota.protocol.queue_walk import look_further
from rota.protocol.schedules import Page, ScheduleStore
from rota_supervisor.exporter.asking import FreshAnswer, RedisThread
from rota_supervisor.exporter.largest import Largest, ShownQueues
from rota_supervisor.exporter.settings import ExporterSettings

SCHEDULES_SHOWN: Final = 100
GROUPS_SHOWN: Final = 20
NO_SCHEDULES: Final = Page(0, 0, ())
NO_GROUPS: Final = Groups(0, (), {})
LOOK_SECONDS: Final = 0.25
_OF_A_ROW: Final = tuple(each.name for each in fields(views.QueueState) if each.name != "queue")


@dataclass(frozen=True, slots=True)
class QueueReading:
    """`shown`: the queues. `missing_tasks` by the audit; `clock_offset_seconds`: Redis time minus our wall clock;
    `schedules`: the next ones. `groups`: those that are open the longest. `read_at`: when it was asked (monotonic), and
    `round_trip_seconds`: how long one command of it took."""

    shown: ShownQueues
    missing_tasks: int
    clock_offset_seconds: float
    consumers: views.Consumers
    schedules: Page = NO_SCHEDULES
    groups: Groups = NO_GROUPS
    read_at: float = 0.0
    round_trip_seconds: float = 0.0


def queue_row(state: views.QueueState) -> dict[str, Any]:
    """Return a queue as `/status.json` shows it: durations are in seconds."""
    return in_seconds({name: getattr(state, name) for name in _OF_A_ROW})


class QueueLook:
    """Looks at all queues there are, for so many seconds at once."""

    def __init__(self, scripts: store.Store, named: tuple[str, ...], seconds: float = LOOK_SECONDS) -> None:
        self._scripts = scripts
        self._named = named
        self._seconds = seconds
        self._cursor = "0"
        self._seen: dict[str, views.QueueState] = {}  # since it began at the first of them
        self._seen_before: dict[str, views.QueueState] = {}

    def begin(self, run: RunCommand) -> views.Overview:
        """Look at those that are named, and at a portion."""
        return run(self._scripts.overview(self._named, self._cursor))

    def go_on(self, run: RunCommand, begun: views.Overview) -> views.Overview:
        """Look at others; `more`: there are some that were never looked at."""
        deadline = time.monotonic() + self._seconds
        looked = follow(run, look_further(self._scripts, begun, lambda: time.monotonic() > deadline))
        self._cursor = looked.cursor
        self._seen |= {row.queue: row for row in looked.queues}
        if looked.more:
            is_whole, rows = bool(self._seen_before), self._seen_before | self._seen
        else:
            is_whole, rows = True, self._seen
            self._seen_before, self._seen = self._seen, {}
        return replace(looked, queues=tuple(rows.values()), cursor="0" if is_whole else looked.cursor)


class QueueWatch:
    """Asks when somebody wants to know."""

    def __init__(self, settings: ExporterSettings, redis: RedisThread) -> None:
        self._scripts = store.Store(settings.server.namespace)
        self._schedules = ScheduleStore(settings.server.namespace)
        self._largest = Largest([queue.name for queue in settings.queues], settings.top_queues)
        self._look = QueueLook(self._scripts, self._largest.served)
        answer = FreshAnswer(redis, self._read_from)
        self.read, self.keep_fresh = answer.read, answer.keep_fresh

    def _read_from(self, run: RunCommand) -> QueueReading:
        before, read_at = time.time(), time.monotonic()
        begun = self._look.begin(run)
        offset = begun.now_us / MICROSECONDS - (before + time.time()) / 2
        asked_at = time.monotonic()
        consumers = run(self._scripts.consumers())
        took = time.monotonic() - asked_at
        missing = run(self._scripts.audit()).missing
        planned = run(self._schedules.page(0, SCHEDULES_SHOWN))
        groups = run(self._scripts.groups(count=GROUPS_SHOWN))
        seen = self._look.go_on(run, begun)
        shown = self._largest.choose(seen.queues, all_seen=not seen.more)
        return QueueReading(shown, missing, offset, consumers, planned, groups, read_at, took)
