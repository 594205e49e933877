"""The Lua files of the protocol, and one call of one of them: bytes to send and a reply to read.

The scripts are loaded from `rota/lua` and named by their SHA1. A script names the shared functions it needs in lines
such as `-- with: entry doorbell`; their files, from `lua/shared/`, are put between its first line (the flags) and its
body, each once and behind those that it names itself. So each script carries what it uses and nothing else, and runs as
one text.

A composed script is two functions: what `_GROUND` names is in the outer one, all else in the inner one. So each has 200
locals of its own, and a function takes what it needs of the ground from the function around it. That costs less than a
search among all locals of a script: a turn executes 3 % fewer instructions.

Each call of a script makes its functions again. Where such a line is indented, the files are put in its place, unless
they stand before it already: they are made when that function is called or that branch is taken, and known there alone.

A script that has a line `-- taking along: turn` gets that whole transition too, as a function, behind the shared files
of both. Where the first of its own is `copy`, the transition changes nothing; where it is `asked`, it gets its
arguments from the script.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from rota.protocol.keys import Keys
from rota.protocol.wire import Packed, command, pack, text_of

# The interpreter's own SHA1 where it was built with it, as the standard library's `random` takes its SHA512: hashlib
# would start OpenSSL, 1.3 MB in each process of a fleet, to name a dozen texts.
try:
    from _sha1 import sha1  # type: ignore[import-not-found]  # it has no types
except ImportError:
    from hashlib import sha1

# Found from this file: importlib.resources would cost every worker 26 ms of imports for the same answer.
_FOLDER = Path(__file__).parent.parent / "lua"
_WITH = "-- with:"
_ALONG = "-- taking along:"
_GROUND = frozenset({"copy", "asked", "prefix", "clock", "numbers", "entry", "bare", "patterns", "matching"})


@dataclass(frozen=True, slots=True)
class Script:
    """One transition's text, and the digest Redis knows it by."""

    name: str
    text: bytes
    sha: bytes


def read_script(name: str) -> Script:
    """Read, assemble and digest the script `lua/NAME.lua`. Raises FileNotFoundError for an unknown name."""
    text = _assemble((_FOLDER / f"{name}.lua").read_text(encoding="utf-8")).encode()
    return Script(name, text, sha1_of(text).encode())


@cache
def load_script(name: str) -> Script:
    """Return a script, read once in a process."""
    return read_script(name)


def sha1_of(text: bytes) -> str:
    """The SHA1 of a text, in hexadecimal digits: a name for it, no secret."""
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
    """Add what this text needs, by name, in an order in which each file stands behind what it needs."""
    for need in _named(_WITH, text):
        if need not in shared:
            source = (_FOLDER / "shared" / f"{need}.lua").read_text(encoding="utf-8")
            _add_needs(source, shared)
            shared[need] = _with_inner_needs(source, shared)


def _with_inner_needs(text: str, before: dict[str, str]) -> str:
    """A text with what its indented lines name, behind these files."""
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
    """Return what the lines that begin with a mark name."""
    return [name for line in text.splitlines() if line.startswith(mark) for name in line.removeprefix(mark).split()]


def read_sources() -> bytes:
    """Read every file that scripts are made of, each once."""
    return b"\n".join(path.read_bytes() for path in _FOLDER.rglob("*.lua"))


def script_names() -> list[str]:
    """The names of all transitions, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.lua"))


T = TypeVar("T")
Word = TypeVar("Word", bound=StrEnum)

Raw = Any  # bytes | int | None | list of these, as hiredis reads them


def reply(make: Callable[..., T], *parts: Callable[[Raw], Any]) -> Callable[[Raw], T]:
    """The parser of a list that has one item for each field of a value, read by these in their order."""

    def parse(raw: Raw) -> T:
        return make(*[part(item) for part, item in zip(parts, raw, strict=True)])

    return parse


def names_of(raw: Sequence[Raw]) -> tuple[str, ...]:
    """A list of names."""
    return tuple(map(text_of, raw))


def word_of(words: type[Word]) -> Callable[[Raw], Word]:
    """The parser of one word of an enumeration."""
    return lambda raw: words(text_of(raw))


def words_of(words: type[Word]) -> Callable[[Raw], list[Word]]:
    """The parser of a list of words of an enumeration."""
    return lambda raw: [words(text_of(word)) for word in raw]


def time_or_none(raw: Raw) -> int | None:
    """Microseconds, or "" for no time."""
    return int(raw) if raw else None


@lru_cache(maxsize=256)  # a process has one key a namespace, and a script for each transition
def _opening(sha: bytes, key: str) -> Packed:
    return pack(("EVALSHA", sha, 1, key))


@dataclass(frozen=True, slots=True)
class Command(Generic[T]):
    """One call of one script."""

    script: Script
    key: str
    args: Packed
    parse: Callable[[Raw], T]

    def by_sha(self) -> bytes:
        """EVALSHA in wire form. The server answers NOSCRIPT when it does not know the script."""
        return command((_opening(self.script.sha, self.key), self.args))

    def by_text(self) -> bytes:
        """EVAL in wire form: what to send after NOSCRIPT. It teaches the server the script as well."""
        return command((pack(("EVAL", self.script.text, 1, self.key)), self.args))


class Transitions:
    """What each part of the typed store is made of: a method a transition. See `rota.protocol.store`."""

    def __init__(self, namespace: str) -> None:
        self.keys = Keys(namespace)

    def _command(self, name: str, args: Packed, parse: Callable[[Raw], T]) -> Command[T]:
        return Command(load_script(name), self.keys.tasks, args, parse)


class RunCommand(Protocol):
    """Runs a command, once, on some connection; raises as that does. Where it is used says from which threads."""

    def __call__(self, command: Command[T], /) -> T: ...


Steps = Generator[Command[Any], Any, T]
"""Commands of which each may depend on the answers before: it yields one, is sent its answer, and returns what follows
from all. `follow` takes them where connections block, `AsyncClient` where they do not."""


class FollowSteps(Protocol):
    """Takes steps one by one, and returns what they return."""

    def __call__(self, steps: Steps[T], /) -> T: ...


def ask(command: Command[T]) -> Steps[T]:
    """One step, for `yield from`, which tells type checkers what comes back."""
    answer: T = yield command
    return answer


def follow(run: RunCommand, steps: Steps[T]) -> T:
    """Take the steps one by one. Raises as `run` does."""
    answer: Any = None
    while True:
        try:
            command = steps.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        answer = run(command)
