"""The three ways to put a bug into the copy of a file: by what a function does, never by the lines it is made of.

1. A Python function is called through one of `mutations.bugs`.
2. A Lua function is called through another, that has it as `original`.
3. Redis answers a command of a Lua file otherwise than it would.

Each is Stale when the product has no such function, or sends no such command, any more.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = {"rota": "workers", "rota_supervisor": "supervisor"}
_LUA: Final = "workers/rota/lua"


class Stale(Exception):
    """What a mutation names is not in the product any more: the mutation has to follow it."""


class Change(Protocol):
    """A change to one file. `path` is below the root."""

    @property
    def path(self) -> str: ...

    def applied_to(self, text: str) -> str:
        """The text with the bug. Raises Stale."""


def changed(change: Change) -> str:
    """The text of the product's file with the bug. Raises Stale."""
    place = ROOT / change.path
    if not place.is_file():
        raise Stale(f"there is no {change.path}")
    return change.applied_to(place.read_text())


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """`bug`, of `mutations.bugs`, is called instead of the function or method `name` of `module`; its first argument is
    that function, the others are the caller's. It is imported at the first call: it may need the module itself."""

    module: str
    name: str
    bug: Callable[..., Any]

    @property
    def path(self) -> str:
        package, *_ = parts = self.module.split(".")
        return f"{SOURCES[package]}/{'/'.join(parts)}.py"

    def applied_to(self, text: str) -> str:
        if not _defines(ast.parse(text), self.name):
            raise Stale(f"{self.path} defines no function {self.name}")
        return (
            f"{text}\n\ndef _with_a_bug(*args, _original={self.name}, **named):\n"
            f"    from mutations.bugs import {self.bug.__name__} as bug\n"
            f"    return bug(_original, *args, **named)\n\n\n{self.name} = _with_a_bug\n"
        )


def _defines(node: ast.Module | ast.ClassDef, name: str) -> bool:
    first, _, rest = name.partition(".")
    for each in node.body:
        if rest and isinstance(each, ast.ClassDef) and each.name == first:
            return _defines(each, rest)
        if not rest and isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == first:
            return True
    return False


@dataclass(frozen=True, slots=True)
class LuaFunction:
    """The function `name` of `lua/FILE.lua`, or of a shared file that it uses, does `code` in that file. `code` is the
    body of a function of `parameters` and may call `original`."""

    file: str
    name: str
    parameters: str
    code: str

    @property
    def path(self) -> str:
        return f"{_LUA}/{self.file}.lua"

    def applied_to(self, text: str) -> str:
        at = _end_of(self.name, text) or (_after_first_line(text) if self._is_shared(text) else None)
        if at is None:
            raise Stale(f"{self.path} neither defines nor is given a function {self.name}")
        return f"{text[:at]}{_rebound(self.name, self.parameters, self.code)}{text[at:]}"

    def _is_shared(self, text: str) -> bool:
        """Whether a file that this one names has the function, or one that such a file names."""
        names = re.findall(r"^-- with: (.*)$", text, re.MULTILINE)
        shared = [(ROOT / _LUA / "shared" / f"{each}.lua").read_text() for words in names for each in words.split()]
        return any(_end_of(self.name, each) is not None or self._is_shared(each) for each in shared)


@dataclass(frozen=True, slots=True)
class RedisAnswer:
    """What `redis.call` answers to this command from `lua/FILE.lua` on: `code` sees `key` and `...`, may call
    `original`, and answers, or else leaves it to the server."""

    file: str
    command: str
    code: str

    @property
    def path(self) -> str:
        return f"{_LUA}/{self.file}.lua"

    def applied_to(self, text: str) -> str:
        if f"call('{self.command}'," not in text:
            raise Stale(f"{self.path} does not call {self.command}")
        code = f"if command == '{self.command}' then {self.code} end return original(command, key, ...)"
        at = _after_first_line(text)
        # The table `redis` is read-only, so the rest of the script is given another.
        own = "local redis = setmetatable({}, { __index = redis })\n"
        return f"{text[:at]}{own}{_rebound('redis.call', 'command, key, ...', code)}{text[at:]}"


def _rebound(name: str, parameters: str, code: str) -> str:
    """Statements that have all who know the function by this name call another."""
    return f"do local original = {name}; {name} = function({parameters}) {code} end end\n"


def _end_of(name: str, text: str) -> int | None:
    """Where the line behind a Lua function of the file begins; None when there is no such function."""
    opening = rf"(?:local function {name}|{name} = function)\("
    found = re.search(rf"^( *){opening}.*?(?: end|\n(?:.*\n)*?\1end)\n", text, re.MULTILINE)
    return found.end() if found else None


def _after_first_line(text: str) -> int:
    """The first line is the script's flags; shared files have a comment there."""
    return text.index("\n") + 1
