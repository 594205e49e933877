"""The master's loop, woken by what happens, and once a tick; and its inbox, the one way in to the core.

A step takes in what zygotes said, who died and what slots show, in the order in which it came about; then it ticks.
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

from rota.child.child_life import boottime_seconds
from rota.child.slot_memory import SlotMemory
from rota.child.slots import MASTER_SLOT
from rota_supervisor.config.loader import Loaded
from rota_supervisor.control.port import Answer, ControlPort, RequestKind, RequestRefused, ScaleOrder
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.layout import TICK_SECONDS
from rota_supervisor.master.core.children import UNSEEN, Child, ChildState
from rota_supervisor.master.core.effects import Effect, Leave, Respond
from rota_supervisor.master.core.master_events import Event, LeasesRenewed, Look, Looked, Requested, Ticked, ZygoteGone
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.take import take
from rota_supervisor.master.core.tick import wake_at
from rota_supervisor.master.effects.master_output import current_status

_AFTER_SECONDS: Final = 0.001  # the grain of epoll; and whatever is due is so only after its time

Recording = Callable[[Event, float, list[Effect]], None]


class Inbox:
    """Takes events one after another. One that comes of an effect waits until all before it are carried out.

    `handlers`: who carries out which effect. `wake`: set when something has happened that a tick has not seen.
    `record` is called with each event, its time and its effects. `has_left`, `failure`: the master is to end.
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
        """Take it in, and carry out what follows. A renewal wakes nobody whose next tick is soon enough."""
        self._take(event)
        if not isinstance(event, LeasesRenewed) or wake_at(self.state) < boottime_seconds() + TICK_SECONDS:
            self.wake.set()

    def tick(self, redis_silent_since: float) -> None:
        """Everything that has happened is taken in."""
        self.wake.clear()
        self._take(Ticked(redis_silent_since))

    def _take(self, event: Event) -> None:
        self._waiting.append(event)
        if self._is_taking:
            return
        self._is_taking = True
        try:
            while self._waiting:
                event, now = self._waiting.popleft(), boottime_seconds()
                effects = take(self.state, event, now)
                if self._record is not None:
                    self._record(event, now, effects)
                self._carry_out(effects)
        finally:
            self._is_taking = False

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.handlers[type(effect)](effect)

    def _leave(self, effect: Leave) -> None:
        self.has_left = True
        if effect.code is not ExitCode.CLEAN:
            self.failure = Failure(effect.code, *effect.messages)


class MasterLoop:
    """Steps until the fleet has left.

    `hear` returns what zygotes and their intermediates have said so far. `reap` takes in everything that has happened
    to children; the function that it is given takes in what zygotes said before that, and looks at the slot of one
    child. `silent_since` returns since when Redis owes an answer, `inf` when it owes none.
    """

    def __init__(
        self,
        inbox: Inbox,
        memory: SlotMemory,
        hear: Callable[[], Iterable[Event]],
        reap: Callable[[float, Callable[[Child | None], None]], None],
        silent_since: Callable[[], float],
    ) -> None:
        self._inbox = inbox
        self._state = inbox.state
        self._own = memory.slot(MASTER_SLOT)
        self._hear = hear
        self._reap = reap
        self._silent_since = silent_since
        self._reader = SlotReader(memory)

    async def run(self) -> None:
        """Step until everything has left. Raises Failure when the first generation never works."""
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
        """Take in what has happened, tick, and show that the master lives."""
        self._listen(None)
        self._reap(boottime_seconds(), self._listen)
        looks = self._reader.look(self._state.children)
        self._listen(None)  # what a zygote imported was sent before it showed itself ready
        if looks:
            self._inbox.happened(Looked(looks))
        self._inbox.tick(self._silent_since())
        self._own.phase = self._state.phase
        self._own.beat()

    def _listen(self, child: Child | None) -> None:
        """Take in what zygotes and their intermediates have said so far, and what the slot of one child shows."""
        for event in self._hear():
            if isinstance(event, ZygoteGone):
                self._look_at(self._state.children.get(event.slot, event.nonce))
            self._inbox.happened(event)
        self._look_at(child)

    def _look_at(self, child: Child | None) -> None:
        looks = self._reader.look(() if child is None else (child,))
        if looks:
            self._inbox.happened(Looked(looks))

    def seconds_to_wait(self) -> float:
        """Until the next step, if nothing happens before."""
        return min(TICK_SECONDS, max(0.0, wake_at(self._state) - boottime_seconds()) + _AFTER_SECONDS)


class SlotReader:
    """Looks at slots, and remembers by slot what they showed, and in which state the child was then."""

    def __init__(self, memory: SlotMemory) -> None:
        self._memory = memory
        self._seen: dict[int, tuple[ChildState, Look]] = {}

    def look(self, children: Iterable[Child]) -> tuple[Look, ...]:
        """Of these children those that show something new."""
        return tuple(look for child in children if (look := self._look_at(child)) is not None)

    def _look_at(self, child: Child) -> Look | None:
        number, state = child.slot, child.state
        slot = self._memory.slot(number)
        if state in UNSEEN or slot.nonce != child.nonce or not slot.is_intact:
            return None
        look = Look(
            number,
            child.nonce,
            slot.phase,
            slot.running_times(),
            slot.beat_ns,
            slot.recycle_reason,
            slot.shortest_soft_ns,
            slot.shortest_soft_met_ns,
            slot.has_worked,
            slot.has_outcomes,
            slot.stepping,
        )
        # A child in another state is to be judged by the same look anew.
        if self._seen.get(number) == (state, look):
            return None
        self._seen[number] = state, look
        return look


# What people ask, by signal or by the control socket: each request gets a ticket and becomes an event


class MasterPort(ControlPort):
    """The master as the control socket sees it."""

    def __init__(self, inbox: Inbox, memory: SlotMemory) -> None:
        self._inbox = inbox
        self._memory = memory
        self._tickets = count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}

    def signalled(self, request: RequestKind) -> None:
        """Do what a signal or a changed file asks for. Nobody waits for an answer."""
        self._inbox.happened(Requested(request, next(self._tickets), by_signal=True))

    def status(self) -> Answer:
        """Return the fleet as it stands."""
        return current_status(self._inbox.state, self._memory)

    def address(self) -> Answer:
        """Return the server with its password, for those who may read the socket, the namespace and the file."""
        config, file = self._inbox.state.config, self._inbox.state.surroundings.file
        server = {"redis_url": config.redis_url, "redis_credentials": config.redis_credentials}
        return {**server, "namespace": config.namespace, "file": file}

    def ask(self, kind: RequestKind, order: ScaleOrder | None = None) -> Awaitable[Answer]:
        """Ask for something; the answer comes with the effect `Respond`. Raises RequestRefused."""
        ticket = next(self._tickets)
        answer = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self._inbox.happened(Requested(kind, ticket, order=order))
        if answer.done():
            answer.result()
        return answer

    def respond(self, effect: Respond) -> None:
        """Give the answer to whoever waits for it."""
        answer = self._waiting.pop(effect.ticket, None)
        if answer is not None and not answer.done():  # who asked may have left
            if effect.answer is None:
                answer.set_exception(RequestRefused(effect.refused))
            else:
                answer.set_result(effect.answer)


# `rota run --record FILE`: what happened to a master and what it did about it, to be replayed: a line of JSON with the
# state at the start, then one for each event, with the time and the effects


@contextlib.contextmanager
def recording_to(path: str, state: MasterState, first: Loaded) -> Iterator[Recording | None]:
    """Record to a file for the length of the block; "" for no record."""
    if not path:
        yield None
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)  # it holds passwords
    with os.fdopen(descriptor, "w", buffering=1, encoding="utf-8") as file:  # each line is written at once

        def write(**values: Any) -> None:
            file.write(json.dumps(as_json(values)) + "\n")

        write(surroundings=state.surroundings, loaded=first, at=state.started_at)
        yield lambda event, now, effects: write(event=event, at=now, effects=effects)


def as_json(value: Any) -> Any:
    """Return a value as JSON has it; whatever JSON does not know as an object with the class and its parts."""
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
