"""The master's end of the control socket: how `rota status`, `scale`, `reload`, `restart`, `quiet`, `resume` and `stop`
are answered.

One JSON object a line, `{"verb": "status"}`, answered by one JSON object a line: `{"ok": true, "status": {...}}`, or
`{"ok": false, "error": "what is wrong and what to do"}`.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from rota_supervisor.control.places import ControlPlace
from rota_supervisor.control.port import ControlPort
from rota_supervisor.control.verbs import respond

MAX_LINE_BYTES = 65_536
QUIET_SECONDS = 30.0  # a client that says nothing for longer is hung up on


@contextlib.asynccontextmanager
async def serve_control(place: ControlPlace, port: ControlPort) -> AsyncIterator[None]:
    """Answer requests at a place for the length of the block; whoever is still talking then is hung up on."""
    talks: set[asyncio.Task[None]] = set()

    # No coroutine: asyncio would make the task, and up to 3.12.1 tell of one that is cancelled as of a failure.
    def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.get_running_loop().create_task(_talk(reader, writer, port))
        talks.add(talk)
        talk.add_done_callback(talks.discard)

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
