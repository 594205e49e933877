"""The three ways to put a bug into the copy of a file. They replace whole functions or replies, so they do not depend
on single lines.

1. A function of `mutations.bugs` is called in place of a Python function.
2. A Lua function is called in place of another function, which it receives as `original`.
3. A command of a Lua file gets a different reply from Redis.

Each way raises Stale if the product no longer has that function or no longer sends that command.
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
    """Raised if the product no longer has the function or the command that a mutation replaces. The mutation must then
    be adapted.
    """


class Change(Protocol):
    """A change to one file. `path` is relative to the root of the repository."""

    @property
    def path(self) -> str: ...

    def applied_to(self, text: str) -> str:
        """Return the text with the bug inserted. Raises Stale."""


def changed(change: Change) -> str:
    """Return the text of the changed file, with the bug in it. Raises Stale if the file no longer has the text to
    change."""
    place = ROOT / change.path
    if not place.is_file():
        raise Stale(f"there is no {change.path}")
    return change.applied_to(place.read_text())


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """The replacement of the function or method `name` of `module` by `bug`, a function of `mutations.bugs`. The first
    argument of `bug` is the original function. `bug` is imported at its first call, because it may import the module
    itself.
    """

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
    """The replacement of the function `name` in `lua/FILE.lua`, or in a shared file that `lua/FILE.lua` includes.
    `code` is the body of a function with these `parameters`, and may call `original`.
    """

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
        """Whether the function is in a file that this file includes, directly or indirectly."""
        names = re.findall(r"^-- with: (.*)$", text, re.MULTILINE)
        shared = [(ROOT / _LUA / "shared" / f"{each}.lua").read_text() for words in names for each in words.split()]
        return any(_end_of(self.name, each) is not None or self._is_shared(each) for each in shared)


@dataclass(frozen=True, slots=True)
class RedisAnswer:
    """The replacement of the reply to a command in `lua/FILE.lua`. `code` can use `key` and `...`, and may call
    `original`. If `code` returns nothing, the server executes the command.
    """

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
        # The table `redis` is read-only, so the rest of the script uses another table.
        own = "local redis = setmetatable({}, { __index = redis })\n"
        return f"{text[:at]}{own}{_rebound('redis.call', 'command, key, ...', code)}{text[at:]}"


def _rebound(name: str, parameters: str, code: str) -> str:
    """Return statements that replace the function for all subsequent code that calls it by this name."""
    return f"do local original = {name}; {name} = function({parameters}) {code} end end\n"


def _end_of(name: str, text: str) -> int | None:
    """Return the position of the line after a Lua function, or None if the file has no such function."""
    opening = rf"(?:local function {name}|{name} = function)\("
    found = re.search(rf"^( *){opening}.*?(?: end|\n(?:.*\n)*?\1end)\n", text, re.MULTILINE)
    return found.end() if found else None


def _after_first_line(text: str) -> int:
    """Return the position at which the second line starts. The first line has the flags of a script, or a comment."""
    return text.index("\n") + 1
