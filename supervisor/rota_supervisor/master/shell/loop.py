"""The master's loop, which wakes up when an event arrives, and at least once a second. All events pass through the
inbox to the core. Each step of the loop handles messages of zygotes, deaths and changes of slots in the order in which
they occurred, and then sends the core a tick.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from itertools import count
from typing import Any, Final

import msgspec

from rota.child.child_process import boottime_seconds
from rota.child.slot_memory import SlotMemory
from rota.child.slots import MASTER_SLOT
from rota_supervisor.config.loader import Loaded
from rota_supervisor.control.port import ControlPort, ControlReply, RequestKind, RequestRefused, ScaleOrder
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.layout import TICK_SECONDS
from rota_supervisor.master.core.children import UNSEEN, Child, ChildState
from rota_supervisor.master.core.effects import Effect, Leave, Respond
from rota_supervisor.master.core.master_events import (
    Event,
    LeasesRenewed,
    Requested,
    SlotReading,
    SlotsRead,
    Ticked,
    ZygoteGone,
)
from rota_supervisor.master.core.scaling_report import report_of_scaling
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.take import take
from rota_supervisor.master.core.tick import wake_at
from rota_supervisor.master.effects.master_output import current_status

_AFTER_SECONDS: Final = 0.001  # the resolution of epoll is 1 ms, and the loop must not wake before a deadline

Recording = Callable[[Event, float, list[Effect]], None]


class Inbox:
    """The queue of events, which are handled one after another.

    If performing an effect causes an event, that event waits until all earlier effects are performed.

    `handlers`: the function that performs each kind of effect. `wake`: an asyncio event that is set if an event for the
    core has occurred since the last tick. `record` is called with each event, its time and its effects. `has_left`
    becomes true when the core decides that the master must end. If the reason is an error, `failure` contains it.
    """

    def __init__(self, state: MasterState, record: Recording | None = None) -> None:
        self.state = state
        self.handlers: dict[type, Callable[[Any], None]] = {Leave: self._leave}
        self.wake = asyncio.Event()
        self._record = record
        self.has_left = False
        self.failure: Failure | None = None
        self._waiting: deque[Event] = deque()
        self._is_taking = False

    def happened(self, event: Event) -> None:
        """Handle an event, perform its effects, and wake the loop. The event LeasesRenewed usually requires no step of
        the loop. It wakes the loop only if the core has planned something within the next TICK_SECONDS, for which the
        loop might otherwise wake up too late."""
        self._take(event)
        if not isinstance(event, LeasesRenewed) or wake_at(self.state) < boottime_seconds() + TICK_SECONDS:
            self.wake.set()

    def tick(self, redis_silent_since: float) -> None:
        """Send a tick to the core, after all pending events have been handled."""
        self.wake.clear()
        self._take(Ticked(redis_silent_since))

    def _take(self, event: Event) -> None:
        self._waiting.append(event)
        if self._is_taking:
            return
        self._is_taking = True
        try:
            while self._waiting:
                event = self._waiting.popleft()
                now = boottime_seconds()
                effects = take(self.state, event, now)
                if self._record is not None:
                    self._record(event, now, effects)
                self._perform(effects)
        finally:
            self._is_taking = False

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.handlers[type(effect)](effect)

    def _leave(self, effect: Leave) -> None:
        self.has_left = True
        if effect.code is not ExitCode.CLEAN:
            self.failure = Failure(effect.code, *effect.messages)


class MasterLoop:
    """The loop of the master, which runs until all its children have exited.

    `receive` returns the events that have arrived from zygotes. `reap` handles all deaths and stops of children. For
    each death, it calls the function that it receives as an argument, with the dead child. This function handles the
    messages of zygotes that have arrived, and then reads the slot of the child. `silent_since` returns the time at
    which the first command since the last reply of Redis was sent, or `inf` if every command has a reply.
    """

    def __init__(
        self,
        inbox: Inbox,
        memory: SlotMemory,
        receive: Callable[[], Iterable[Event]],
        reap: Callable[[float, Callable[[Child | None], None]], None],
        silent_since: Callable[[], float],
    ) -> None:
        self._inbox = inbox
        self._state = inbox.state
        self._own = memory.slot(MASTER_SLOT)
        self._receive = receive
        self._reap = reap
        self._silent_since = silent_since
        self._reader = SlotReader(memory)

    async def run(self) -> None:
        """Run steps until all children have exited. Raises Failure if the first generation cannot work."""
        inbox = self._inbox
        while True:
            self.step()
            if inbox.failure is not None:
                raise inbox.failure
            if inbox.has_left:
                return
            try:
                async with asyncio.timeout(self.seconds_to_wait()):
                    await inbox.wake.wait()
            except TimeoutError:
                continue

    def step(self) -> None:
        """Handle all pending events, send a tick to the core, and write the heartbeat of the master."""
        self._handle_messages(None)
        self._reap(boottime_seconds(), self._handle_messages)
        readings = self._reader.read(self._state.children)
        self._handle_messages(None)  # A zygote sends the names of its tasks before its slot shows that it is ready.
        if readings:
            self._inbox.happened(SlotsRead(readings))
        self._inbox.tick(self._silent_since())
        self._own.phase = self._state.phase
        self._own.heartbeat()

    def _handle_messages(self, child: Child | None) -> None:
        """Handle the messages that have arrived from zygotes. Then read the slot of `child`, unless it is None."""
        for event in self._receive():
            if isinstance(event, ZygoteGone):
                self._read(self._state.children.get(event.slot, event.nonce))
            self._inbox.happened(event)
        self._read(child)

    def _read(self, child: Child | None) -> None:
        readings = self._reader.read(() if child is None else (child,))
        if readings:
            self._inbox.happened(SlotsRead(readings))

    def seconds_to_wait(self) -> float:
        """Return how many seconds to wait for an event before the next step."""
        return min(TICK_SECONDS, max(0.0, wake_at(self._state) - boottime_seconds()) + _AFTER_SECONDS)


class SlotReader:
    """A reader of the slots of children. For each slot, it remembers the last reading, and in which state the master
    had the child at that time."""

    def __init__(self, memory: SlotMemory) -> None:
        self._memory = memory
        self._seen: dict[int, tuple[ChildState, SlotReading]] = {}

    def read(self, children: Iterable[Child]) -> tuple[SlotReading, ...]:
        """Read the slots of these children. Return only the readings that differ from the previous reading of the same
        slot, and the readings of children whose state has changed since then."""
        return tuple(reading for child in children if (reading := self._read(child)) is not None)

    def _read(self, child: Child) -> SlotReading | None:
        number = child.slot
        state = child.state
        slot = self._memory.slot(number)
        if state in UNSEEN or slot.nonce != child.nonce or not slot.is_intact:
            return None
        reading = SlotReading(
            number,
            child.nonce,
            slot.phase,
            slot.running_times(),
            slot.heartbeat_ns,
            slot.recycle_reason,
            slot.shortest_soft_ns,
            slot.shortest_soft_met_ns,
            slot.has_worked,
            slot.has_outcomes,
            slot.stepping,
        )
        # After the state of a child has changed, an unchanged reading is also returned, because it can have other
        # consequences in the new state.
        if self._seen.get(number) == (state, reading):
            return None
        self._seen[number] = state, reading
        return reading


# Requests by signal or through the control socket. Each request gets a ticket and becomes an event.


class MasterPort(ControlPort):
    """The requests that can be made of the master through the control socket or by signals."""

    def __init__(self, inbox: Inbox, memory: SlotMemory) -> None:
        self._inbox = inbox
        self._memory = memory
        self._tickets = count(1)
        self._waiting: dict[int, asyncio.Future[ControlReply]] = {}

    def signalled(self, request: RequestKind) -> None:
        """Make a request because of a signal or a changed file. Nothing waits for the reply."""
        self._inbox.happened(Requested(request, next(self._tickets), by_signal=True))

    def status(self) -> ControlReply:
        """Return the current status of the fleet."""
        return current_status(self._inbox.state, self._memory)

    def address(self) -> ControlReply:
        """Return the server, the namespace and the configuration file, for a client with access to the control socket.

        The server's URL contains its password.
        """
        config = self._inbox.state.config
        file = self._inbox.state.surroundings.file
        server = {"redis_url": config.redis_url, "redis_credentials": config.redis_credentials}
        return {**server, "namespace": config.namespace, "file": file}

    def scaling(self) -> ControlReply:
        """Return the measurements that determine the number of workers, for each pool whose number of workers is a
        range."""
        return report_of_scaling(self._inbox.state)

    def request(self, kind: RequestKind, order: ScaleOrder | None = None) -> Awaitable[ControlReply]:
        """Make a request of the core. The result is ready when the core returns the effect `Respond`. Raises
        RequestRefused."""
        ticket = next(self._tickets)
        reply = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self._inbox.happened(Requested(kind, ticket, order=order))
        if reply.done():
            reply.result()
        return reply

    def respond(self, effect: Respond) -> None:
        """Pass a reply to the request that waits for it."""
        reply = self._waiting.pop(effect.ticket, None)
        if reply is not None and not reply.done():  # The client may have disconnected meanwhile.
            if effect.reply is None:
                reply.set_exception(RequestRefused(effect.refused))
            else:
                reply.set_result(effect.reply)


# `rota run --record FILE` writes the events and effects of a master to a file of JSON lines, so that they can be
# replayed. The first line is the state at the start. Each further line is an event with its time and its effects.


@contextlib.contextmanager
def recording_to(path: str, state: MasterState, first: Loaded) -> Iterator[Recording | None]:
    """Record the master's events and effects to a file while the block runs. If `path` is "", record nothing."""
    if not path:
        yield None
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)  # The file holds passwords.
    with os.fdopen(descriptor, "w", buffering=1, encoding="utf-8") as file:  # Line buffering writes each line at once.

        def write(**values: Any) -> None:
            file.write(json.dumps(as_json(values)) + "\n")

        write(surroundings=state.surroundings, loaded=first, at=state.started_at)
        yield lambda event, now, effects: write(event=event, at=now, effects=effects)


def as_json(value: Any) -> Any:
    """Convert a value to JSON types. A value of any other type becomes an object with the name of its class and its
    fields."""
    match value:
        case Enum() | datetime():
            return _tagged(value, value.name if isinstance(value, Enum) else value.isoformat())
        case bytes():
            return {"bytes": value.decode("latin-1")}
        case Mapping():
            return {"items": [[as_json(key), as_json(each)] for key, each in value.items()]}
        case list():
            return [as_json(each) for each in value]
        case tuple() | frozenset():
            parts = list(value)
        case msgspec.Struct():
            parts = [getattr(value, name) for name in value.__struct_fields__]
        case _ if dataclasses.is_dataclass(value):
            parts = [getattr(value, each.name) for each in dataclasses.fields(value)]
        case _:
            return value
    return _tagged(value, [as_json(each) for each in parts])


def _tagged(value: Any, parts: Any) -> dict[str, Any]:
    kind = type(value)
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "parts": parts}
