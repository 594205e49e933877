"""Each known bug in the list of `make mutation` can still be inserted into a copy of the product, and Python imports
the copy.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from mutations import bugs
from mutations.catalogue import MUTATIONS, Mutation
from mutations.changes import ROOT, Change, LuaFunction, PythonFunction, RedisAnswer, Stale, changed
from mutations.tree import environment, make_copy

PYTHON = """\
def outside(a): return a
class Kept:
    def told(self, a): return a
"""
LUA = """\
#!lua
-- with: clock
local function one(a) return a end
local function two(a)
  return a
end
redis.call('GET', KEYS[1])
"""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_changes_existing_code_of_the_product(mutation: Mutation) -> None:
    assert changed(mutation.change) != (ROOT / mutation.change.path).read_text()


def test_each_mutation_has_a_unique_name() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.parametrize(
    ("change", "text", "says"),
    [
        (PythonFunction("rota.some", "gone", bugs.never_up), PYTHON, "some.py defines no function gone"),
        (PythonFunction("rota.some", "Kept.gone", bugs.never_up), PYTHON, "no function Kept.gone"),
        (PythonFunction("rota.some", "Gone.told", bugs.never_up), PYTHON, "no function Gone.told"),
        (PythonFunction("rota.some", "Kept", bugs.never_up), PYTHON, "no function Kept"),
        (LuaFunction("some", "gone", "", ""), LUA, "some.lua neither defines nor is given a function gone"),
        (RedisAnswer("some", "SET", "return 1"), LUA, "some.lua does not call SET"),
    ],
)
def test_a_mutation_of_code_that_does_not_exist_is_reported_as_stale(change: Change, text: str, says: str) -> None:
    with pytest.raises(Stale, match=says):
        change.applied_to(text)


@pytest.mark.parametrize(
    ("change", "behind"),
    [
        (LuaFunction("some", "one", "a", "return 1"), "local function one(a) return a end\n"),
        (LuaFunction("some", "two", "a", "return 1"), "  return a\nend\n"),
        # The function is defined in the shared file `clock`.
        (LuaFunction("some", "redis_now", "", "return 1"), "#!lua\n"),
        (RedisAnswer("some", "GET", "return 1"), "#!lua\n"),
    ],
)
def test_a_lua_function_is_replaced_right_after_its_definition(change: Change, behind: str) -> None:
    before, inserted, after = LUA.partition(behind)
    text = change.applied_to(LUA)
    assert text.startswith(before + inserted + ("do " if isinstance(change, LuaFunction) else "local redis"))
    assert text.endswith(f"end end\n{after}")


def test_python_imports_the_mutated_copy_before_the_installed_package(tmp_path: Path) -> None:
    make_copy(tmp_path, PythonFunction("rota.child.child_process", "Fence.is_up", bugs.never_up))
    code = (
        "from types import SimpleNamespace as Slot; import rota_supervisor, rota.child.child_process as f;"
        "print(f.Fence(Slot(renewed_ns=0), 1.0).is_up(10**12), f.__file__, rota_supervisor.__file__)"
    )
    said = subprocess.check_output([sys.executable, "-c", code], env=environment(tmp_path), text=True).split()
    assert said[0] == "False", "without the bug the fence is up after a second"
    assert all(path.startswith(str(tmp_path)) for path in said[1:])
