"""Each assembled script stays within Lua 5.1's limits for a function, because a server rejects a script that exceeds
them. The tests also limit the length of functions.
"""

from pathlib import Path
from typing import Final

import pytest

import rota
from rota.protocol.scripts import read_script, script_names
from support.lua_functions import functions_of

# Lua allows 60 upvalues and 200 locals. The limits here are lower, which leaves space for new shared functions. To stay
# below the limits, put related functions into a table such as `bounds`, which is only one local and one upvalue.
MOST_UPVALUES: Final = 54
MOST_LOCALS: Final = 170

# The length of a function includes the functions inside it. Split a longer function into several functions of its file
# that share a record, as in claim.lua. If creating these functions takes too long in every call, move them to a file
# that is included only where they are needed.
MOST_LINES: Final = 60
FOLDER: Final = Path(rota.__file__).parent / "lua"
FILES: Final = sorted(FOLDER.rglob("*.lua"))

# Names that a script declares twice. `add_members` needs the long form of in_use.lua, and the included `enqueue`
# contains the short form, which has the same names.
SAID_TWICE: Final = {
    "add_members": {"FORMER", "EVENTS_ON", "PATTERNS", "in_use", "any_incarnations", "any_events", "any_patterns"}
}


@pytest.mark.parametrize("name", script_names())
def test_no_lua_function_comes_near_the_limit_of_locals_or_upvalues(name: str) -> None:
    functions = functions_of(read_script(name).text)
    upvalues, most_locals = max(each.upvalues for each in functions), max(each.most_locals for each in functions)
    print(f"{name}: {upvalues} upvalues, {most_locals} locals")  # noqa: T201 - shown by `pytest -s`
    assert upvalues <= MOST_UPVALUES
    assert most_locals <= MOST_LOCALS


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_lua_function_is_too_long(path: Path) -> None:
    _, *functions = functions_of(path.read_bytes())  # the first function is the file itself
    lengths = {each.line: each.last_line - each.line + 1 for each in functions}
    assert {line: length for line, length in lengths.items() if length > MOST_LINES} == {}


@pytest.mark.parametrize("name", script_names())
def test_no_local_variable_in_lua_shadows_another_one(name: str) -> None:
    text = read_script(name).text
    inner_line = 1 + text.split(b"\n").index(b"return (function()")
    outer, *others = functions_of(text)
    ground = {local for local, _, _ in outer.locals}
    for function in (outer, *others):
        is_inner = function.line == inner_line
        taken = function.shadowed | (ground & {local for local, _, _ in function.locals} if is_inner else set())
        assert taken - {"_"} == (SAID_TWICE.get(name, set()) if is_inner else set())


def test_the_checker_counts_upvalues_and_locals_as_lua_does() -> None:
    script = b"!lua\nlocal a, b = 1, 2\nlocal function f(c) local a = c return a + b end\nlocal a = f(1)\nreturn a"
    outer, inner = functions_of(script)
    assert (outer.upvalues, outer.most_locals, outer.shadowed) == (0, 4, {"a"})
    assert (inner.upvalues, inner.most_locals, inner.shadowed) == (1, 2, set())
    assert [inner.line, inner.last_line, outer.line] == [3, 3, 0]


def test_the_checker_finds_assigned_names_that_no_function_declares() -> None:
    script = b"!lua\nlocal a\nlocal function f(b) a, b, c = 1, 2, 3 d.e = 4 end\ng = f"
    outer, inner = functions_of(script)
    assert (outer.assigned, inner.assigned) == ({"g"}, {"c"})
