"""The scripts of the protocol, which are assembled from Lua files, and the calls of these scripts. A call consists of
bytes to send and a parser for the reply.

The scripts are loaded from `rota/lua` and identified by their SHA1. A script lists the shared functions that it needs
in lines such as `-- with: entry doorbell`. The files of `lua/shared/` with these names are inserted between the
script's first line (the flags) and its body. Each file is inserted once, after the files that it needs itself. So a
script contains only what it uses, and runs as one text.

An assembled script consists of two functions: the outer function contains the files listed in `_GROUND`, and the inner
function contains all others. This gives each function its own limit of 200 locals. When Lua creates a function inside
the inner function, it captures the outer function's locals directly from the inner function. With only one function,
Lua would search among all of that function's locals instead. The split saves 3 % of the instructions of a turn.

Each call of a script creates its functions again. Some functions are needed only in rare cases, so a `-- with:` line
may be indented. Its files are then inserted in place of this line, unless the script already has them. Their functions
are created only when the code around the line is executed, and are visible only there.

A script with the line `-- taking along: turn` also contains the whole transition `turn`, as a function after the shared
files of both. If the first file that the script lists is `copy`, the transition changes nothing. If the first file is
`own_args`, the transition gets its arguments from the script.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from rota.protocol.keys import Keys
from rota.protocol.wire import Packed, command, pack, text_of

# Use the interpreter's SHA1 if it has one, just as the standard library's `random` uses the interpreter's SHA512.
# hashlib would load OpenSSL, which takes 1.3 MB in each process of a fleet. That is too much for digesting a dozen
# texts.
try:
    from _sha1 import sha1  # type: ignore[import-not-found]  # it has no types
except ImportError:
    from hashlib import sha1

# The path is relative to this file, because importlib.resources would cost every worker 26 ms of imports.
_FOLDER = Path(__file__).parent.parent / "lua"
_WITH = "-- with:"
_ALONG = "-- taking along:"
_GROUND = frozenset({"copy", "own_args", "prefix", "clock", "numbers", "entry", "legacy_item", "patterns", "matching"})


@dataclass(frozen=True, slots=True)
class Script:
    """The text of one transition, and its SHA1 digest for EVALSHA."""

    name: str
    text: bytes
    sha: bytes


def read_script(name: str) -> Script:
    """Read, assemble and digest the script `lua/NAME.lua`. Raises FileNotFoundError if there is no such script."""
    text = _assemble((_FOLDER / f"{name}.lua").read_text(encoding="utf-8")).encode()
    return Script(name, text, sha1_of(text).encode())


@cache
def load_script(name: str) -> Script:
    """Return a script. Each process reads and assembles a script only once."""
    return read_script(name)


def sha1_of(text: bytes) -> str:
    """Return the SHA1 of a text in hexadecimal digits. It serves as a name, not for security."""
    digits: str = sha1(text, usedforsecurity=False).hexdigest()
    return digits


def _assemble(source: str) -> str:
    flags, _, body = source.partition("\n")
    shared: dict[str, str] = {}
    _add_needs(body, shared)
    functions = []
    for name in _named(_ALONG, body):
        _, _, transition = (_FOLDER / f"{name}.lua").read_text(encoding="utf-8").partition("\n")
        _add_needs(transition, shared)
        functions.append(f"local function {name}()\n{_with_inner_needs(transition, shared)}end")
    ground = [text for name, text in shared.items() if name in _GROUND]
    rest = [text for name, text in shared.items() if name not in _GROUND]
    inner = [*rest, *functions, _with_inner_needs(body, shared)]
    if ground:
        inner = [*ground, "return (function()", *inner, "end)()"]
    return "\n".join([flags, *inner])


def _add_needs(text: str, shared: dict[str, str]) -> None:
    """Read the shared files that this text needs, and store them in the dict `shared` under their names. Each file
    comes after the files that it needs itself."""
    for need in _named(_WITH, text):
        if need not in shared:
            source = (_FOLDER / "shared" / f"{need}.lua").read_text(encoding="utf-8")
            _add_needs(source, shared)
            shared[need] = _with_inner_needs(source, shared)


def _with_inner_needs(text: str, before: dict[str, str]) -> str:
    """Insert the shared files that the indented `-- with:` lines of this text list, and return the result. Files that
    are in `before` are not inserted again."""
    lines = []
    for line in text.split("\n"):
        lines.append(line)
        indent, mark, _ = line.partition(_WITH)
        if mark and indent and indent.isspace():
            inner = dict(before)
            _add_needs(line.lstrip(), inner)
            lines += [indent + added for name in inner if name not in before for added in inner[name].splitlines()]
    return "\n".join(lines)


def _named(mark: str, text: str) -> list[str]:
    """Return the names that are listed in the lines that begin with `mark`, for example with `-- with:`."""
    return [name for line in text.splitlines() if line.startswith(mark) for name in line.removeprefix(mark).split()]


def script_names() -> list[str]:
    """Return the names of all transitions, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.lua"))


T = TypeVar("T")
Status = TypeVar("Status", bound=StrEnum)

Raw = Any  # bytes | int | None | list of these, as hiredis reads them


def reply(make: Callable[..., T], *parts: Callable[[Raw], Any]) -> Callable[[Raw], T]:
    """Return a parser for a reply that is a list. It parses each item with one of `parts`, in order, and passes the
    results to `make`."""

    def parse(raw: Raw) -> T:
        return make(*[part(item) for part, item in zip(parts, raw, strict=True)])

    return parse


def names_of(raw: Sequence[Raw]) -> tuple[str, ...]:
    """Return names as strings. `raw` is a list of names as hiredis returns it."""
    return tuple(map(text_of, raw))


def status_of(statuses: type[Status]) -> Callable[[Raw], Status]:
    """Return a parser for a reply that is one member of the enumeration."""
    return lambda raw: statuses(text_of(raw))


def statuses_of(statuses: type[Status]) -> Callable[[Raw], list[Status]]:
    """Return a parser for a reply that is a list of members of the enumeration."""
    return lambda raw: [statuses(text_of(status)) for status in raw]


def time_or_none(raw: Raw) -> int | None:
    """Return a time in microseconds, or None for ""."""
    return int(raw) if raw else None


@lru_cache(maxsize=256)  # a process has two keys per namespace, and one script per transition
def _opening(sha: bytes, keys: tuple[str, ...]) -> Packed:
    return pack(("EVALSHA", sha, len(keys), *keys))


@dataclass(frozen=True, slots=True)
class ScriptCall(Generic[T]):
    """One call of one script: its declared keys, its arguments, and the parser of its reply."""

    script: Script
    keys: tuple[str, ...]
    args: Packed
    parse: Callable[[Raw], T]

    def by_sha(self) -> bytes:
        """Return EVALSHA in wire form. The server replies NOSCRIPT if it does not know the script."""
        return command((_opening(self.script.sha, self.keys), self.args))

    def by_text(self) -> bytes:
        """Return EVAL in wire form, to send after NOSCRIPT. The server then caches the script too."""
        return command((pack(("EVAL", self.script.text, len(self.keys), *self.keys)), self.args))


class Transitions:
    """The base class of the parts of the typed store, which have one method for each transition. See
    `rota.protocol.store`."""

    def __init__(self, namespace: str) -> None:
        self.keys = Keys(namespace)
        self._declared = (self.keys.tasks, self.keys.absent)

    def _call(self, name: str, args: Packed, parse: Callable[[Raw], T]) -> ScriptCall[T]:
        return ScriptCall(load_script(name), self._declared, args, parse)


class RunCall(Protocol):
    """A function that runs a script once on a connection, and raises the errors of that connection. The code that
    provides the function documents which threads may call it."""

    def __call__(self, call: ScriptCall[T], /) -> T: ...


Steps = Generator[ScriptCall[Any], Any, T]
"""A generator of script calls, each of which may depend on earlier replies. The generator yields a call, receives the
reply through `send`, and finally returns a result. `follow` runs it on blocking connections, and `AsyncClient` runs it
on asyncio."""


class FollowSteps(Protocol):
    """A function that runs the calls of a generator one after another, and returns what the generator returns."""

    def __call__(self, steps: Steps[T], /) -> T: ...


def execute(call: ScriptCall[T]) -> Steps[T]:
    """Yield one call and return its reply. In a generator, type checkers know the type of `yield from execute(call)`,
    but not of a plain `yield`."""
    reply: T = yield call
    return reply


def follow(run: RunCall, steps: Steps[T]) -> T:
    """Run the calls of a generator one after another, and return what the generator returns. Raises the same errors as
    `run`."""
    reply: Any = None
    while True:
        try:
            call = steps.send(reply)
        except StopIteration as end:
            value: T = end.value
            return value
        reply = run(call)
