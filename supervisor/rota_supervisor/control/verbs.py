"""From one line on the control socket to its answer. What a person got wrong is refused in words."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rota_supervisor.config.faults import shown, suggestion
from rota_supervisor.control.port import Answer, ControlPort, RequestRefused, ScaleOrder

Handler = Callable[[ControlPort, Mapping[str, Any]], Answer | Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class _Verb:
    """What a request does, and the fields it may have beside its verb."""

    fulfil: Handler
    fields: tuple[str, ...] = ()


def _reload(port: ControlPort, request: Mapping[str, Any]) -> Answer | Awaitable[Answer]:
    return port.preview() if _flag(request, "dry_run") else port.reload()


def _scale(port: ControlPort, request: Mapping[str, Any]) -> Answer:
    pool, given = request.get("pool"), [key for key in ("workers", "more") if key in request]
    if pool is not None and not isinstance(pool, str):
        raise RequestRefused(f"pool is a name, and not {shown(pool)}")
    if len(given) != 1:
        raise RequestRefused("scale takes either workers, how many there are to be, or more, how many more")
    number = request[given[0]]
    if type(number) is not int:  # True is an int, too
        raise RequestRefused(f"{given[0]} is a whole number, and not {shown(number)}")
    return port.scale(ScaleOrder(pool, number, is_relative=given[0] == "more"))


def _flag(request: Mapping[str, Any], name: str) -> bool:
    value = request.get(name, False)
    if not isinstance(value, bool):
        raise RequestRefused(f"{name} is true or false, and not {shown(value)}")
    return value


VERBS: Final = {
    "status": _Verb(lambda port, _: port.status()),
    "scale": _Verb(_scale, ("pool", "workers", "more")),
    "reload": _Verb(_reload, ("dry_run",)),
    "restart": _Verb(lambda port, _: port.restart()),
    "quiet": _Verb(lambda port, _: port.quiet()),
    "resume": _Verb(lambda port, _: port.resume()),
    "stop": _Verb(lambda port, request: port.stop(now=_flag(request, "now")), ("now",)),
}


async def respond(line: bytes, port: ControlPort) -> dict[str, Any]:
    """The answer to one request, under the name of its verb. A reload is answered when it is known what came of it."""
    try:
        return await _fulfilled(_request_in(line), port)
    except RequestRefused as refused:
        return {"ok": False, "error": str(refused)}


def _request_in(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise RequestRefused('a request is one JSON object a line, as {"verb": "status"}')
    return request


async def _fulfilled(request: dict[str, Any], port: ControlPort) -> dict[str, Any]:
    name = request.pop("verb", None)
    if not isinstance(name, str):
        raise RequestRefused(f"a request names its verb, one of {', '.join(VERBS)}")
    verb = VERBS.get(name)
    if verb is None:
        near = suggestion(name, VERBS) or f": it knows {', '.join(VERBS)}"
        raise RequestRefused(f"this master does not know the verb {shown(name)}{near}")
    for field in request:
        if field not in verb.fields:  # misspelt, a dry run would be none
            takes = f"it takes {', '.join(verb.fields)}" if verb.fields else "it takes none"
            raise RequestRefused(f"{name} has no field {shown(field)}{suggestion(field, verb.fields) or f': {takes}'}")
    answer = verb.fulfil(port, request)
    return {"ok": True, name: answer if isinstance(answer, dict) else await answer}
