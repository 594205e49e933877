"""The master's end of the control socket: how `rota status`, `reload` and `stop` are answered.

One JSON object a line, `{"verb": "status"}`, answered by one JSON object a line: `{"ok": true, ...}` or
`{"ok": false, "error": "what is wrong"}`.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Protocol

from rota_supervisor.control.places import ControlPlace

MAX_LINE_BYTES = 65_536
QUIET_SECONDS = 30.0  # a client that says nothing for longer is hung up on


class ControlPort(Protocol):
    """The master as its control socket sees it. All calls are made in the master's loop and return at once."""

    def status(self) -> dict[str, object]:
        """The fleet as it stands, ready to be written as JSON."""

    def request_reload(self) -> Awaitable[dict[str, object]]:
        """Read the configuration again and apply what changed; resolves to what became of it: `result` is
        success or failure, `changes` says what, `faults` why not. Need not be awaited."""

    def request_stop(self, *, now: bool) -> None:
        """Drain and leave, or, `now`, kill everything at once and leave. May be repeated."""


@contextlib.asynccontextmanager
async def serve_control(place: ControlPlace, port: ControlPort) -> AsyncIterator[None]:
    """Answer requests at a place for the length of the block; whoever is still talking then is hung up on."""
    talks: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        talks.add(talk)
        try:
            await _talk(reader, writer, port)
        finally:
            talks.discard(talk)

    server = await asyncio.start_unix_server(answer, sock=place.listening, limit=MAX_LINE_BYTES)
    try:
        yield
    finally:
        server.close()
        open_talks = list(talks)
        for talk in open_talks:
            talk.cancel()
        await asyncio.gather(*open_talks, return_exceptions=True)


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: ControlPort) -> None:
    try:
        await _converse(reader, writer, port)
    except (ConnectionError, TimeoutError):
        pass  # the client left, or said nothing; it has nothing to be told
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: ControlPort) -> None:
    while True:
        async with asyncio.timeout(QUIET_SECONDS):
            try:
                line = await reader.readuntil()
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                return
        writer.write(json.dumps(await respond(line, port)).encode() + b"\n")
        async with asyncio.timeout(QUIET_SECONDS):
            await writer.drain()


async def respond(line: bytes, port: ControlPort) -> dict[str, Any]:
    """The answer to one request; for `reload` when it is known what became of it."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return _refusal("a request is one JSON object a line")
    match request:
        case {"verb": "status"}:
            return {"ok": True, "status": port.status()}
        case {"verb": "reload"}:
            return {"ok": True, "reload": await port.request_reload()}
        case {"verb": "stop"}:
            port.request_stop(now=request.get("now") is True)
            return {"ok": True}
        case {"verb": verb}:
            return _refusal(f"this master does not know the verb {verb!r}")
    return _refusal("a request names its verb")


def _refusal(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error}
