"""A control socket that only records requests, for tests of the client and of the commands that call a master."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from rota_supervisor.control.port import Answer, RequestKind, RequestRefused, ScaleOrder
from rota_supervisor.control.socket_server import ControlPlace, serve_control

# The recorded part of each request.
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
    """A master that only records requests. A test may set `answers` by verb, or a `refusal` for all requests."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.answers: dict[str, Answer] = {"status": {"pid": os.getpid()}}
        self.refusal = ""
        self.statuses = 0  # number of status requests
        self.failures: list[dict[str, Any]] = []  # errors of callbacks and tasks that asyncio reported

    def status(self) -> Answer:
        self.statuses += 1
        return self.answers["status"]

    def address(self) -> Answer:
        return self.answers["address"]

    async def ask(self, kind: RequestKind, order: ScaleOrder | None = None) -> Answer:
        if self.refusal:
            raise RequestRefused(self.refusal)
        said = WORDS[kind]
        self.asked.append(order or said)
        verb = said.partition(" ")[0]
        return self.answers.get(verb, {"asked": verb})


@contextlib.contextmanager
def serving(place: ControlPlace) -> Iterator[FakeMaster]:
    """Run a fake master at this place, in a thread."""
    fake = FakeMaster()
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()
    started = threading.Event()

    async def serve() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: fake.failures.append(context))
        async with serve_control(place, fake):
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
