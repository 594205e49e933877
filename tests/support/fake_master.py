"""A control socket that only records requests, for tests of the client and of the commands that call a master."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from rota_supervisor.control.port import ControlReply, RequestKind, RequestRefused, ScaleOrder
from rota_supervisor.control.socket_server import ControlSocket, serve_control

# The text that is recorded for each kind of request.
WORDS = {
    RequestKind.DRAIN: "stop",
    RequestKind.STOP_NOW: "stop now",
    RequestKind.RELOAD: "reload",
    RequestKind.RESTART: "restart",
    RequestKind.QUIET: "quiet",
    RequestKind.RESUME: "resume",
    RequestKind.PREVIEW: "preview",
    RequestKind.SCALE: "scale",
}


class FakeMaster:
    """A master that only records requests. In `answers`, a test may set a response for each verb. If `refusal` is set,
    all requests are refused with it.
    """

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.answers: dict[str, ControlReply] = {"status": {"pid": os.getpid()}}
        self.refusal = ""
        self.statuses = 0  # the number of status requests
        self.failures: list[dict[str, Any]] = []  # errors of callbacks and tasks that asyncio reported

    def status(self) -> ControlReply:
        self.statuses += 1
        return self.answers["status"]

    def address(self) -> ControlReply:
        return self.answers["address"]

    def scaling(self) -> ControlReply:
        return self.answers["scaling"]

    async def request(self, kind: RequestKind, order: ScaleOrder | None = None) -> ControlReply:
        if self.refusal:
            raise RequestRefused(self.refusal)
        said = WORDS[kind]
        self.asked.append(order or said)
        verb = said.partition(" ")[0]
        return self.answers.get(verb, {"asked": verb})


@contextlib.contextmanager
def serving(control_socket: ControlSocket) -> Iterator[FakeMaster]:
    """Run a fake master at this control socket, in a thread."""
    fake = FakeMaster()
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()
    started = threading.Event()

    async def serve() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: fake.failures.append(context))
        async with serve_control(control_socket, fake):
            started.set()
            await stopping.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(10)
        yield fake
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()
