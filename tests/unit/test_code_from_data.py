"""Data never becomes code: no module of the product evaluates text, unpickles bytes, or looks up an attribute or a
module by a name that Redis, a task or a request could have sent."""

import ast
from collections.abc import Iterator
from functools import cache
from typing import Final

import pytest

from support.prose import ROOT

PACKAGES: Final = ("workers/rota", "supervisor/rota_supervisor")
EVALUATORS: Final = frozenset({"eval", "exec", "compile", "__import__"})
UNSAFE_MODULES: Final = frozenset(
    {"cloudpickle", "code", "codeop", "dill", "jsonpickle", "marshal", "pickle", "shelve", "yaml"}
)
LOOKUPS: Final = frozenset({"attrgetter", "delattr", "getattr", "import_module", "methodcaller", "setattr"})
# The functions that look up an attribute or a module by a name that is not a constant, and the origin of each name.
NAMES: Final = {
    "supervisor/rota_supervisor/__main__.py": "the standard streams",
    "supervisor/rota_supervisor/cli/app.py": "the table of commands",
    "supervisor/rota_supervisor/cli/command.py": "the options of a command",
    "supervisor/rota_supervisor/cli/queue_verbs.py": "the fields of a queue's state",
    "supervisor/rota_supervisor/config/resolution.py": "the keys of the configuration",
    "supervisor/rota_supervisor/config/rules.py": "the keys of the configuration",
    "supervisor/rota_supervisor/config/typed_config.py": "the bounds of a type",
    "supervisor/rota_supervisor/exporter/history.py": "the lines of a chart",
    "supervisor/rota_supervisor/exporter/queue_watch.py": "the fields of a queue's state",
    "supervisor/rota_supervisor/fleet_snapshot.py": "the public names of a module",
    "supervisor/rota_supervisor/master/core/death.py": "the limits of a task",
    "supervisor/rota_supervisor/master/core/generations.py": "the keys of the configuration",
    "supervisor/rota_supervisor/master/core/process_settings.py": "the keys of the configuration",
    "supervisor/rota_supervisor/master/effects/master_output.py": "the levels of the log",
    "supervisor/rota_supervisor/master/effects/scaling_texts.py": "the counts of a load",
    "supervisor/rota_supervisor/master/shell/loop.py": "the fields of a record",
    "supervisor/rota_supervisor/master_snapshot.py": "the fields of a record",
    "supervisor/rota_supervisor/task_modules.py": "`imports` of the configuration",
    "workers/rota/__init__.py": "the public names of the package",
    "workers/rota/client/aio/consumer.py": "the fields of a record",
    "workers/rota/client/flow_sender.py": "the fields of a record",
    "workers/rota/client/task.py": "the module of a task that the application defined",
    "workers/rota/contrib/django/apps.py": "the installed applications",
    "workers/rota/contrib/django/urls.py": "the fields of a record",
    "workers/rota/contrib/opentelemetry.py": "the methods that are traced",
    "workers/rota/foreign_names.py": "the table of foreign names",
    "workers/rota/schedules/schedule.py": "the fields of a schedule",
    "workers/rota/server/address.py": "the files of a connection",
    "workers/rota/server/logins.py": "`redis_credentials` of the configuration",
    "workers/rota/tasks/conversion.py": "the fields of an argument's type",
    "workers/rota/tasks/periodic.py": "the fields of a record",
    "workers/rota/telemetry/log.py": "the levels of the log",
    "workers/rota/testing/captures.py": "the fields of a record",
    "workers/rota/worker/concurrent/concurrent_tasks.py": "a coroutine's attributes, for asyncio",
    "workers/rota/worker/worker_report.py": "the levels of the log",
}


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax trees of the product by path."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return {str(file.relative_to(ROOT)): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call with the last part of the called function's name. Methods that have the name of a builtin are
    left out.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                yield name, node
            case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id="builtins" | "operator" | "importlib"))):
                yield name, node


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module)):
                yield module.partition(".")[0]


def looks_up_a_variable(name: str, call: ast.Call) -> bool:
    """Whether this call looks up an attribute or a module by a name that is not a constant."""
    names = call.args[:1] if name in {"attrgetter", "import_module", "methodcaller"} else call.args[1:2]
    return name in LOOKUPS and not all(isinstance(each, ast.Constant) for each in names)


def test_no_module_evaluates_text_as_code() -> None:
    found = {path for path, tree in trees().items() if any(name in EVALUATORS for name, _ in calls(tree))}
    assert found == set()


def test_no_module_imports_a_format_that_contains_code() -> None:
    assert {path for path, tree in trees().items() if not UNSAFE_MODULES.isdisjoint(imported(tree))} == set()


def test_every_getattr_or_import_by_a_variable_name_is_in_a_listed_module() -> None:
    found = {path for path, tree in trees().items() if any(looks_up_a_variable(*each) for each in calls(tree))}
    assert found == NAMES.keys()


@pytest.mark.parametrize(
    ("code", "is_lookup"),
    [
        ("getattr(a, b)", True),
        ("getattr(a, 'b')", False),
        ("importlib.import_module(a)", True),
        ("a.getattr(b)", False),
    ],
)
def test_the_check_finds_getattr_and_imports_with_variable_names(code: str, *, is_lookup: bool) -> None:
    assert any(looks_up_a_variable(*each) for each in calls(ast.parse(code))) is is_lookup
