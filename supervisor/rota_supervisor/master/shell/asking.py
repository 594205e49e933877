"""What people ask of the fleet, by signal or by the control socket: each request gets a ticket and becomes an event."""

import asyncio
from collections.abc import Awaitable
from itertools import count

from rota.child.slot_memory import SlotMemory
from rota_supervisor.control.port import Answer, RequestRefused, ScaleOrder
from rota_supervisor.master.core.effects import Respond
from rota_supervisor.master.core.events import Requested, RequestKind
from rota_supervisor.master.core.status import status
from rota_supervisor.master.effects.slots import glance_at
from rota_supervisor.master.shell.inbox import Inbox


class Asking:
    """The master as the control socket sees it, a `ControlPort`."""

    def __init__(self, inbox: Inbox, memory: SlotMemory) -> None:
        self._inbox = inbox
        self._memory = memory
        self._tickets = count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        inbox.handlers[Respond] = self._respond

    def signalled(self, request: RequestKind) -> None:
        """Do what a signal or a changed file asks for. Nobody waits for an answer."""
        self._inbox.happened(Requested(request, next(self._tickets), by_signal=True))

    def status(self) -> Answer:
        """The fleet as it stands."""
        return status(self._inbox.state, glance_at(self._inbox.state, self._memory))

    def reload(self) -> Awaitable[Answer]:
        """Read the configuration again and apply what changed."""
        return self._ask(RequestKind.RELOAD)

    def restart(self) -> Awaitable[Answer]:
        """Reload, and replace every worker by one with freshly imported code."""
        return self._ask(RequestKind.RESTART)

    def preview(self) -> Answer:
        """What a reload would do."""
        return self._ask(RequestKind.PREVIEW).result()

    def scale(self, order: ScaleOrder) -> Answer:
        """Give a pool another number of workers."""
        return self._ask(RequestKind.SCALE, order).result()

    def quiet(self) -> Answer:
        """Claim nothing more; what runs goes on, and workers stay."""
        return self._ask(RequestKind.QUIET).result()

    def resume(self) -> Answer:
        """Claim again."""
        return self._ask(RequestKind.RESUME).result()

    def stop(self, *, now: bool) -> Answer:
        """Drain and leave, or leave at once."""
        return self._ask(RequestKind.STOP_NOW if now else RequestKind.DRAIN).result()

    def _ask(self, request: RequestKind, order: ScaleOrder | None = None) -> "asyncio.Future[Answer]":
        """Only a reload may take its time: all others are answered when this returns. Raises RequestRefused."""
        ticket = next(self._tickets)
        answer = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self._inbox.happened(Requested(request, ticket, order=order))
        if answer.done():
            answer.result()
        return answer

    def _respond(self, effect: Respond) -> None:
        answer = self._waiting.pop(effect.ticket, None)
        if answer is not None and not answer.done():  # who asked may have left
            if effect.answer is None:
                answer.set_exception(RequestRefused(effect.refused))
            else:
                answer.set_result(effect.answer)
