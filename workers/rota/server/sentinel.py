"""Which server is the primary, by what sentinels say: a search without I/O, driven by whoever has connections.

1. Each sentinel in turn is asked for the address of the service; what does not answer in time is passed over.
2. The server at that address is asked for its ROLE: a sentinel may not know yet that it was demoted or died.
3. The first that says it is the primary is the one. Without such, the error says what each of them answered.

Nothing is remembered: whoever connects asks anew, so that a failover is noticed by the next connection. The protocol is
that of Redis's "Guidelines for Redis clients with support for Redis Sentinel".
"""

import contextlib
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rota.protocol.wire import Arg
from rota.server.address import Address, shown_place
from rota.server.server_errors import REASON_SENTINEL, ConnectionLost, Refused, ServerError

SENTINEL_SECONDS: Final = 1.0  # to connect to a sentinel, and to hear from it: the next one may know as well
_PORT: Final = re.compile(rb"[0-9]{1,5}")
PRIMARY_SECONDS: Final = 2.0  # likewise; what was the primary may be a host that is gone, and a failover under way
_PRIMARY: Final = b"master"
_MOST_SHOWN: Final = 80  # characters of an answer that is none


@dataclass(frozen=True, slots=True)
class Question:
    """Connect there, ask this, and give up after so many seconds without connection or answer."""

    address: Address
    args: tuple[Arg, ...]
    seconds: float


Answer = Any
"""A reply as hiredis reads it, or the ServerError in its place."""

Search = Generator[Question, Answer, None]


def search(address: Address) -> Search:
    """Yield questions, and take their answers; ends after the ROLE of the primary, which was the last one asked.

    Raises ConnectionLost when there is no primary, or what the primary refused us with.
    """
    assert address.sentinels is not None
    sentinels = address.sentinels
    found: dict[tuple[str, int], str] = {}  # why each place that was named is not the primary
    words: dict[str, list[str]] = {}  # what was said, and by which sentinels
    asked: Address | None = None  # a sentinel that answers
    for place in sentinels.places:
        sentinel = Address(
            *place,
            tls=address.tls,
            username=sentinels.username,
            password=sentinels.password,
            tls_files=address.tls_files,
        )
        answer = yield _of_sentinel(sentinel, "GET-MASTER-ADDR-BY-NAME", sentinels.service)
        if not isinstance(answer, ServerError):
            asked = sentinel
        named = _place(answer)
        if named is None:
            words.setdefault(_without_answer(answer, sentinel), []).append(sentinel.place)
            continue
        if named not in found:
            candidate = replace(address, host=named[0], port=named[1], sentinels=None)
            fault = _fault((yield Question(candidate, ("ROLE",), PRIMARY_SECONDS)), candidate)
            if not fault:
                return
            found[named] = fault
        words.setdefault(f"named {shown_place(*named)} ({found[named]})", []).append(sentinel.place)
    more = "" if asked is None else (yield from _explain(asked, sentinels.service, known=bool(found)))
    said = "; ".join(f"{', '.join(places)} {what}" for what, places in words.items())
    raise ConnectionLost(f"no primary of {sentinels.service!r}: {said}{more}", REASON_SENTINEL)


def _explain(sentinel: Address, service: str, *, known: bool) -> Generator[Question, Answer, str]:
    # What a person needs who reads the error: the services there are, or why there is no failover.
    if known:
        answer = yield _of_sentinel(sentinel, "CKQUORUM", service)
        return f"; {answer}" if isinstance(answer, Refused) else ""  # NOQUORUM, and what is missing
    answer = yield _of_sentinel(sentinel, "MASTERS")
    return f"; {sentinel.place} knows {_names(answer)}" if isinstance(answer, list) else ""


def _of_sentinel(sentinel: Address, *args: str) -> Question:
    return Question(sentinel, ("SENTINEL", *args), SENTINEL_SECONDS)


def _place(answer: Answer) -> tuple[str, int] | None:
    # None for whatever nobody can connect to: it must pass this sentinel over, and not raise in a resolver.
    match answer:
        case [bytes() as host, bytes() as port] if (
            host and b"\0" not in host and _PORT.fullmatch(port) and int(port) < 1 << 16
        ):
            with contextlib.suppress(UnicodeError):
                name = host.decode()
                name.encode("idna")
                return name, int(port)
    return None


def _without_answer(answer: Answer, asked: Address) -> str:
    """What a sentinel did that named no place."""
    if isinstance(answer, ServerError):
        return f"did not tell ({_without_place(answer, asked)})"
    return "did not know it" if answer is None else f"answered {repr(answer)[:_MOST_SHOWN]}"


def _without_place(error: ServerError, asked: Address) -> str:
    return str(error).replace(f" to {asked.place}:", ":")


def _fault(role: Answer, asked: Address) -> str:
    """Why a server that answered its ROLE so is not the primary; "" when it is."""
    match role:
        case Refused():  # the password or the permissions are wrong, and would be at any other server
            raise role
        case ServerError():
            return _without_place(role, asked)
        case [word, *_]:
            return "" if word == _PRIMARY else "a replica"
        case _:
            return f"which says no role: {role!r}"


def _names(services: Sequence[object]) -> str:
    # Of each a flat list of fields and values.
    pairs = [zip(each[::2], each[1::2], strict=False) for each in services if isinstance(each, list)]
    names = [next((value for field, value in each if field == b"name"), b"?") for each in pairs]
    return ", ".join(repr(name.decode(errors="replace")) for name in names if isinstance(name, bytes)) or "none at all"
