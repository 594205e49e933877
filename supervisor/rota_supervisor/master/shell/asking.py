"""What people ask of the fleet, by signal or by the control socket: each request gets a ticket and becomes an event."""

import asyncio
from collections.abc import Awaitable
from itertools import count

from rota.child.slot_memory import SlotMemory
from rota_supervisor.control.port import Answer, ControlPort, RequestKind, RequestRefused, ScaleOrder
from rota_supervisor.master.core.effects import Respond
from rota_supervisor.master.core.events import Requested
from rota_supervisor.master.core.status import status
from rota_supervisor.master.effects.slots import glance_at
from rota_supervisor.master.shell.loop import Inbox


class Asking(ControlPort):
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
        return status(self._inbox.state, glance_at(self._inbox.state, self._memory))

    def address(self) -> Answer:
        """Return the server with its password, for those who may read the socket, the namespace and the file."""
        config, file = self._inbox.state.config, self._inbox.state.surroundings.file
        return {"redis_url": config.redis_url, "namespace": config.namespace, "file": file}

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
