"""The blocking reader of task events, and the part that it shares with the asyncio reader, which does no I/O.

A script reads each page of events together with the bounds of the stream, so that they are consistent. If there are no
new events, the reader waits in XREAD on a separate connection. It waits for PARK_SECONDS at a time, so that it notices
a dead connection.
"""

import math
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

from rota.client.command_replies import Denied, unavailable
from rota.client.timed_connections import TimedConnection
from rota.durations import Backoff
from rota.errors import EventsLost, EventsOff, Unavailable
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import BATCH, Store
from rota.protocol.task_states import EventsPage, TaskEvent, is_place, order_of
from rota.protocol.wire import command, pack
from rota.server.endpoint import Endpoint
from rota.server.server_errors import Refused, ServerError, read_reply
from rota.soft_limit import time_limit_deferred

PARK_SECONDS: Final = 1.0
_FIRST_SECONDS: Final = 0.05
_MAX_SECONDS: Final = 2.0
_MILLISECONDS: Final = 1000
START_ID: Final = "0-0"
_OFF: Final = (
    "no task events are written: set `enabled = true` under [events] in rota.toml and reload the fleet. It then "
    "starts to write events no later than its next heartbeat"
)
_TRIMMED: Final = (
    "the last event that was read is no longer stored, and events after it may have been trimmed too: see `max_length` "
    "under [events]"
)
_SERVER_LOST: Final = "the server has lost its latest writes, including events that were already read"


@dataclass(frozen=True, slots=True)
class WantedEvents:
    """The events that a reader returns, and how long it waits for the next one."""

    after: str | None = None  # The id of the last event that was read, or None to start at the end of the stream.
    queue: str = ""  # A queue, or "" for all queues.
    task: str = ""  # The name of a task, or "" for all tasks.
    timeout_seconds: float | None = None  # The longest wait for the next event, or None for no limit.

    def has(self, event: TaskEvent) -> bool:
        """Whether the queue and the task of the event match, so that the reader returns it."""
        return self.queue in ("", event.queue) and self.task in ("", event.task)


class EventsReading:
    """The position of a reader in the stream, and its decisions about the pages that it reads. This class does no
    I/O."""

    def __init__(self, store: Store, wanted: WantedEvents) -> None:
        """Check the wanted events. Raises ValueError if `after` is not the id of an event."""
        if wanted.after is not None and not (isinstance(wanted.after, str) and is_place(wanted.after)):
            raise ValueError(f'after must be the id of an event, or "0" for all stored events, got {wanted.after!r}')
        self._store = store
        self._wanted = wanted
        self._returned_to = self._read_to = START_ID
        self._is_at_end = False
        self._backoff = Backoff(_FIRST_SECONDS, _MAX_SECONDS)
        self.ready: deque[TaskEvent] = deque()
        # A command that returns at once and shows whether the server permits XREAD.
        self.trial = self._read("COUNT", 1, position="$")

    @property
    def position(self) -> str:
        """The position after the last event that was returned."""
        return self._returned_to if self.ready else self._read_to

    @property
    def waits(self) -> bool:
        """Whether the reader has returned all events so far, and must wait for the next one."""
        return not self.ready and self._is_at_end

    def first_page(self) -> ScriptCall[EventsPage]:
        """Return the command whose reply determines the position to read from."""
        return self._store.events(self._wanted.after or "$", BATCH)

    def start_at(self, page: EventsPage) -> None:
        """Set the position to read from, given the first page. Raises EventsOff if there are no events and no fleet
        writes any."""
        if not page.wanted and not page.end:
            raise EventsOff(_OFF)
        self._returned_to = self._read_to = self._wanted.after or page.latest or START_ID

    def next_page(self) -> ScriptCall[EventsPage]:
        """Return the command that reads the next page."""
        return self._store.events(self._read_to, BATCH)

    def take(self, page: EventsPage) -> None:
        """Add the events of a page to `ready`. Raises EventsLost if events before the page are missing."""
        self._backoff.reset()
        lost = self._lost(page)
        if lost:
            self._read_to = self._returned_to = page.latest if lost is _SERVER_LOST else START_ID
            raise EventsLost(lost)
        self.ready.extend(filter(self._wanted.has, page.events))
        self._read_to = page.end or self._read_to
        self._is_at_end = page.end in ("", page.latest)

    def take_event(self) -> TaskEvent:
        """Return the next event that is ready."""
        event = self.ready.popleft()
        self._returned_to = event.id
        return event

    def park(self, deadline: float) -> bytes | None:
        """Return the command that waits for the next event, for at most PARK_SECONDS and not beyond the deadline.

        Returns None if the deadline has passed.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        milliseconds = max(1, math.ceil(min(left, PARK_SECONDS) * _MILLISECONDS))
        return self._read("BLOCK", milliseconds, "COUNT", 1, position=self._read_to)

    def pause_seconds(self, error: Unavailable, deadline: float) -> float:
        """Return how long to wait before the next attempt.

        Raises the error if the deadline has passed, or if the server does not permit this user to read.
        """
        left = deadline - time.monotonic()
        if left <= 0 or isinstance(error, Denied):
            raise error
        return min(left, self._backoff.next_seconds())

    def deadline(self) -> float:
        """Return when the wait for the next event ends (monotonic seconds)."""
        waits = self._wanted.timeout_seconds
        return math.inf if waits is None else time.monotonic() + waits

    def _lost(self, page: EventsPage) -> str:
        """Return the reason why events may be missing between the reader's position and the page, or "" if none is
        missing."""
        if not page.oldest or order_of(self._read_to) == order_of(START_ID):
            return ""
        if order_of(page.latest) < order_of(self._read_to):
            return _SERVER_LOST
        return _TRIMMED if order_of(page.oldest) > order_of(self._read_to) else ""

    def _read(self, *how: str | int, position: str) -> bytes:
        return command((pack(("XREAD", *how, "STREAMS", self._store.keys.events, position)),))


def no_events(error: Exception) -> Unavailable:
    """Return the Unavailable that a reader raises if it cannot reach the server."""
    return unavailable(f"task events cannot be read: {error}", error)


class TaskEvents(Iterator[TaskEvent]):
    """An iterator over task events, in their order, for one thread. It ends if no event comes within its `timeout`.

    It continues after a lost connection, a restart or a failover. In a forked child, it continues with a new
    connection.

    Raises:
        EventsLost: If events may have been missed. The next call continues with the events that are kept.
        Unavailable: If the server could not be reached before the timeout, or does not permit this user to read.
    """

    def __init__(self, endpoint: Endpoint, seconds: float, store: Store, wanted: WantedEvents) -> None:
        """Connect, and determine the position to read from.

        Raises:
            ValueError: If `after` is not the id of an event.
            EventsOff: If there are no events and no fleet writes any.
            Unavailable: If the server cannot be reached or refuses the call.
        """
        self._reading = EventsReading(store, wanted)
        self._seconds = seconds
        self._endpoint = endpoint
        self._connection: TimedConnection | None = None
        self._pid = os.getpid()
        until = time.monotonic() + seconds
        try:
            self._execute(self._reading.trial, until)
            self._reading.start_at(self._page(self._reading.first_page(), until))
        except EventsOff:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. This may be called more than once."""
        with time_limit_deferred:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @property
    def position(self) -> str:
        """The position after the last event that was returned. Pass it as `after` to continue there with another
        reader."""
        return self._reading.position

    def __next__(self) -> TaskEvent:
        deadline = self._reading.deadline()
        while not self._reading.ready:
            self._fill(deadline)
        return self._reading.take_event()

    def _fill(self, deadline: float) -> None:
        """Read stored events. If there are none, wait for one, for at most PARK_SECONDS and not beyond the deadline."""
        try:
            page = self._page(self._reading.next_page(), time.monotonic() + self._seconds)
            self._reading.take(page)
            if self._reading.waits:
                parking = self._reading.park(deadline)
                if parking is None:
                    raise StopIteration
                self._execute(parking, time.monotonic() + self._seconds + PARK_SECONDS)
        except Unavailable as error:
            time.sleep(self._reading.pause_seconds(error, deadline))

    # Communication with the server

    def _page(self, call: ScriptCall[EventsPage], until: float) -> EventsPage:
        try:
            return read_reply(call, self._execute(call.by_text(), until))
        except Refused as error:
            self.close()
            raise unavailable(str(error), error) from error

    def _execute(self, data: bytes, until: float) -> Any:
        try:
            with time_limit_deferred:
                if self._pid != os.getpid():  # After a fork, the connection belongs to the parent, which still uses it.
                    self.close()
                    self._pid = os.getpid()
                if self._connection is None:
                    self._connection = TimedConnection(self._endpoint, self._seconds + PARK_SECONDS, until)
                self._connection.allow(until)
                return self._connection.execute(data)
        except ServerError as error:
            self.close()
            raise no_events(error) from error
        # An interruption leaves a reply unread, which would be taken for the reply to the next command.
        except BaseException:
            self.close()
            raise
