"""Task events as a thread follows them, through a lost connection, a restart or a failover of the server."""

import os
import time
from collections.abc import Iterator
from typing import Any, Self

from rota.client.blocking.timed_connection import TimedConnection
from rota.client.event_pages import PARK_SECONDS, EventsReading, WantedEvents, events_backoff, no_events
from rota.client.failures import Denied, unavailable
from rota.errors import EventsOff, Unavailable
from rota.protocol.command import Command
from rota.protocol.store import Store
from rota.protocol.task_events import EventsPage, TaskEvent
from rota.server.endpoint import Endpoint
from rota.server.server_errors import Refused, ServerError, read_reply
from rota.soft_limit import time_limit_deferred


class TaskEvents(Iterator[TaskEvent]):
    """Task events in their order, for one thread. Ends when none has come for the time it was to wait.

    Goes on through a lost connection, a restart, a failover. `next` raises EventsLost when events may have been missed;
    the one after that goes on with what is kept. It raises Unavailable when the server could not be asked until the
    time was over, or does not let this user ask. A forked child goes on by a connection of its own.
    """

    def __init__(self, endpoint: Endpoint, seconds: float, store: Store, wanted: WantedEvents) -> None:
        """Stands at its place at once. Raises ValueError for one that is none, EventsOff when nothing is there and
        nothing will be, or Unavailable."""
        self._reading = EventsReading(store, wanted)
        self._seconds = seconds
        self._endpoint = endpoint
        self._connection: TimedConnection | None = None
        self._pid = os.getpid()
        self._backoff = events_backoff()
        until = time.monotonic() + seconds
        try:
            self._ask(self._reading.trial, until)
            self._reading.begin(self._page(self._reading.first_page(), until))
        except EventsOff:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. May be repeated."""
        with time_limit_deferred:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @property
    def place(self) -> str:
        """Where to go on: what `after` another reader takes to give what this one has not given yet."""
        return self._reading.place

    def __next__(self) -> TaskEvent:
        deadline = self._reading.deadline()
        while not self._reading.ready:
            self._fill(deadline)
        return self._reading.give()

    def _fill(self, deadline: float) -> None:
        """Read what is there; or wait until something is, until the deadline, and for PARK_SECONDS at most."""
        try:
            page = self._page(self._reading.next_page(), time.monotonic() + self._seconds)
            self._backoff.reset()
            self._reading.take(page)
            if self._reading.waits:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise StopIteration
                self._ask(self._reading.park(left), time.monotonic() + self._seconds + PARK_SECONDS)
        except Denied:
            raise
        except Unavailable:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            time.sleep(min(left, self._backoff.next_seconds()))

    # Talking to the server

    def _page(self, call: Command[EventsPage], until: float) -> EventsPage:
        try:
            return read_reply(call, self._ask(call.by_text(), until))
        except Refused as error:
            self.close()
            raise unavailable(str(error), error) from error

    def _ask(self, data: bytes, until: float) -> Any:
        try:
            with time_limit_deferred:
                if self._pid != os.getpid():  # the connection is the parent's, which goes on using it
                    self.close()
                    self._pid = os.getpid()
                if self._connection is None:
                    self._connection = TimedConnection(self._endpoint, self._seconds + PARK_SECONDS, until)
                self._connection.allow(until)
                return self._connection.ask(data)
        except ServerError as error:
            self.close()
            raise no_events(error) from error
        except BaseException:  # interrupted: what comes next on this connection would be taken for another answer
            self.close()
            raise
