"""The master's end of the control socket: how `rota status`, `scale`, `reload`, `restart`, `quiet`, `resume` and `stop`
are answered, and commands whose configuration file has faults find their server.

One JSON object a line, `{"verb": "status"}`, answered by one JSON object a line: `{"ok": true, "status": {...}}`, or
`{"ok": false, "error": "what is wrong and what to do"}`.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from rota_supervisor.config.faults import shown, suggestion
from rota_supervisor.control.port import Answer, ControlPort, RequestKind, RequestRefused, ScaleOrder
from rota_supervisor.control.socket_place import ControlPlace

MAX_LINE_BYTES: Final = 65_536
QUIET_SECONDS: Final = 30.0  # a client that says nothing for longer is hung up on
_Request = Mapping[str, Any]
_Act = Callable[[ControlPort, _Request], Answer | Awaitable[Answer]]


# From a connection to lines


@contextlib.asynccontextmanager
async def serve_control(place: ControlPlace, port: ControlPort) -> AsyncIterator[None]:
    """Answer requests at a place for the length of the block; whoever is still talking then is hung up on."""
    talks: set[asyncio.Task[None]] = set()

    # No coroutine: asyncio would make the task, and up to 3.12.1 report one that is cancelled as a failure.
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
    """Answer one client, a request at a time: one whose answers are not read is answered no more, and one that has sent
    many lets all others go first after each."""
    writer.transport.set_write_buffer_limits(high=0)
    try:
        while True:
            async with asyncio.timeout(QUIET_SECONDS):
                line = await reader.readuntil()
            writer.write(json.dumps(await _respond(line, port)).encode() + b"\n")
            async with asyncio.timeout(QUIET_SECONDS):
                await writer.drain()
            await asyncio.sleep(0)  # neither of the two waits need let others run
    except (ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # the client left, said nothing, or has no end; there is nothing to answer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


# From a line to its answer; what a person got wrong is refused in words


async def _respond(line: bytes, port: ControlPort) -> Answer:
    """Return the answer under the name of its verb. A reload is answered when it is known what came of it."""
    try:
        name, answer = _fulfil(line, port)
        return {"ok": True, name: answer if isinstance(answer, dict) else await answer}
    except RequestRefused as refused:
        return {"ok": False, "error": str(refused)}


def _fulfil(line: bytes, port: ControlPort) -> tuple[str, Answer | Awaitable[Answer]]:
    request = _request_in(line)
    name = request.pop("verb", None)
    if not isinstance(name, str):
        raise RequestRefused(f"a request names its verb, one of {', '.join(VERBS)}")
    if name not in VERBS:
        near = suggestion(name, VERBS) or f": it knows {', '.join(VERBS)}"
        raise RequestRefused(f"this master does not know the verb {shown(name)}{near}")
    act, fields = VERBS[name]
    for field in request:
        if field not in fields:  # misspelt, a dry run would be none
            takes = f"it takes {', '.join(fields)}" if fields else "it takes none"
            raise RequestRefused(f"{name} has no field {shown(field)}{suggestion(field, fields) or f': {takes}'}")
    return name, act(port, request)


def _request_in(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise RequestRefused('a request is one JSON object a line, as {"verb": "status"}')
    return request


def _reload(port: ControlPort, request: _Request) -> Awaitable[Answer]:
    return port.ask(RequestKind.PREVIEW if _flag(request, "dry_run") else RequestKind.RELOAD)


def _stop(port: ControlPort, request: _Request) -> Awaitable[Answer]:
    return port.ask(RequestKind.STOP_NOW if _flag(request, "now") else RequestKind.DRAIN)


def _scale(port: ControlPort, request: _Request) -> Awaitable[Answer]:
    pool, given = request.get("pool"), [key for key in ("workers", "more") if key in request]
    if pool is not None and not isinstance(pool, str):
        raise RequestRefused(f"pool is a name, and not {shown(pool)}")
    if len(given) != 1:
        raise RequestRefused("scale takes either workers, how many there are to be, or more, how many more")
    number = request[given[0]]
    if type(number) is not int:  # True is an int, too
        raise RequestRefused(f"{given[0]} is a whole number, and not {shown(number)}")
    return port.ask(RequestKind.SCALE, ScaleOrder(pool, number, is_relative=given[0] == "more"))


def _flag(request: _Request, name: str) -> bool:
    value = request.get(name, False)
    if not isinstance(value, bool):
        raise RequestRefused(f"{name} is true or false, and not {shown(value)}")
    return value


# What each verb does, and the fields that a request may have beside it.
VERBS: Final[dict[str, tuple[_Act, tuple[str, ...]]]] = {
    "status": (lambda port, _: port.status(), ()),
    "scale": (_scale, ("pool", "workers", "more")),
    "reload": (_reload, ("dry_run",)),
    "restart": (lambda port, _: port.ask(RequestKind.RESTART), ()),
    "quiet": (lambda port, _: port.ask(RequestKind.QUIET), ()),
    "resume": (lambda port, _: port.ask(RequestKind.RESUME), ()),
    "stop": (_stop, ("now",)),
    "address": (lambda port, _: port.address(), ()),
}
