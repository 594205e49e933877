"""What Redis says of the queues, asked at most once a second and waited for at most half a second.

With patterns there may be any number of queues: they are looked at portion by portion, for half of that time. Where
that is not enough the next look goes on there, and of the others it is shown how they were.

A thread of its own asks, so that nothing (a stalled server, a resolver without network) holds up a scrape
for longer. When no answer comes in time there are no queue gauges: absent, never stale.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol, TypeVar

from rota.child.settings import ServerSettings
from rota.durations import in_seconds
from rota.protocol import store, views
from rota.protocol.command import Command, RunCommand, follow
from rota.protocol.entry import MICROSECONDS
from rota.protocol.groups import Groups
from rota.protocol.queue_walk import look_further
from rota.protocol.schedules import Page, ScheduleStore
from rota.server import address, connection
from rota.server.server_errors import ServerError
from rota_supervisor.exporter.largest import Largest, ShownQueues
from rota_supervisor.exporter.settings import ExporterSettings

T = TypeVar("T")

FRESH_SECONDS: Final = 1.0
LIMIT_SECONDS: Final = 0.5
SCHEDULES_SHOWN: Final = 100
GROUPS_SHOWN: Final = 20
NO_SCHEDULES: Final = Page(0, 0, ())
NO_GROUPS: Final = Groups(0, (), {})
LOOK_SECONDS: Final = 0.25


class Runs(Protocol):
    """A connection, as far as it is needed here."""

    def run(self, call: Command[T]) -> T:
        """Run a script. Raises ServerError."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class QueueReading:
    """`shown`: the queues. `missing_tasks` by the audit; `clock_offset_seconds`: Redis time minus our wall clock;
    `schedules`: the next ones. `groups`: those that are open the longest."""

    shown: ShownQueues
    missing_tasks: int
    clock_offset_seconds: float
    consumers: views.Consumers
    schedules: Page = NO_SCHEDULES
    groups: Groups = NO_GROUPS


def queue_row(state: views.QueueState) -> dict[str, Any]:
    """Return a queue as `/status.json` shows it: durations are in seconds."""
    row = in_seconds(asdict(state))
    del row["queue"]
    return row


def connector(server: ServerSettings) -> Callable[[], connection.Connection]:
    """Return what connects to that server, or raises ServerError. Raises ValueError for an unusable URL."""
    redis = address.parse_address(server.redis_url)
    options = connection.ConnectionOptions("rota-exporter", connect_seconds=LIMIT_SECONDS, read_seconds=LIMIT_SECONDS)
    return lambda: connection.connect(redis, options)


def reader(settings: ExporterSettings) -> Callable[[], QueueReading | None]:
    """Return a function that reads the queues; without `ask_redis` it always returns None."""
    if not settings.ask_redis:
        return lambda: None
    largest = Largest([queue.name for queue in settings.queues], settings.top_queues)
    return QueueWatch(settings.server.namespace, largest, connector(settings.server)).read


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
    """Asks when somebody wants to know. `connect` makes a connection or raises ServerError."""

    def __init__(self, namespace: str, largest: Largest, connect: Callable[[], Runs]) -> None:
        self._scripts = store.Store(namespace)
        self._schedules = ScheduleStore(namespace)
        self._largest = largest
        self._look = QueueLook(self._scripts, largest.served)
        self._connect = connect
        self._connection: Runs | None = None
        self._changed = threading.Condition()
        self._wanted = False
        self._reading: QueueReading | None = None
        self._asked_at = -math.inf  # monotonic
        threading.Thread(target=self._serve, name="queues", daemon=True).start()

    def read(self) -> QueueReading | None:
        """Return what Redis said within the last second; None when it did not answer."""
        with self._changed:
            if not self._is_fresh():
                self._wanted = True
                self._changed.notify_all()
            if not self._changed.wait_for(self._is_fresh, LIMIT_SECONDS):
                return None
            return self._reading

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._asked_at < FRESH_SECONDS

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted)
                self._wanted = False
            asked_at = time.monotonic()
            reading = self._ask()
            with self._changed:
                self._reading, self._asked_at = reading, asked_at
                self._changed.notify_all()

    def _ask(self) -> QueueReading | None:
        try:
            if self._connection is None:
                self._connection = self._connect()
            return self._read_from(self._connection)
        except (ServerError, ValueError, IndexError, TypeError):
            # The master logs an outage; here it shows as absent gauges, as does a reply of another shape
            # (the last three), which must not end this thread. The next ask connects anew.
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            return None

    def _read_from(self, on: Runs) -> QueueReading:
        before = time.time()
        begun = self._look.begin(on.run)
        offset = begun.now_us / MICROSECONDS - (before + time.time()) / 2
        consumers = on.run(self._scripts.consumers())
        missing = on.run(self._scripts.audit()).missing
        planned = on.run(self._schedules.page(0, SCHEDULES_SHOWN))
        groups = on.run(self._scripts.groups(count=GROUPS_SHOWN))
        seen = self._look.go_on(on.run, begun)
        shown = self._largest.choose(seen.queues, all_seen=not seen.more)
        return QueueReading(shown, missing, offset, consumers, planned, groups)
