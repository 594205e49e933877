"""Write docs/api.md from the signatures and docstrings of the public names: `make docs`.

Griffe reads the source without importing it, so the page has annotations as they are written.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import takewhile
from pathlib import Path
from textwrap import indent, wrap
from typing import Final

from griffe import (
    Alias,
    Attribute,
    Class,
    Expr,
    ExprAttribute,
    ExprCall,
    ExprName,
    ExprSubscript,
    Function,
    Module,
    Object,
    Parameter,
    ParameterKind,
    load,
)

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs/api.md"

INTRODUCTION: Final = """\
# Python API

This page is for developers of applications. It describes every public class, function and error of `rota`, with its
parameters, return values and exceptions. Python's `help()` shows the same texts, for example `help(rota.Client)`.
[Tasks](tasks.md) lists the options of tasks and of calls in tables, with their defaults and examples.

Durations are seconds or a `timedelta`, unless the name of a parameter states its unit. Times are `datetime` objects
with a time zone. This page is generated from the docstrings by `make docs`.
"""

GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "Declaring tasks": ("task", "Task", "client.task.Using", "Cron", "Every", "tasks.periodic.Periodic"),
    "Enqueueing": ("configure", "default_client", "enqueue_many", "Call", "Handle", "Client"),
    "On asyncio": (
        "AsyncClient",
        "default_async_client",
        "aenqueue_many",
        "amap",
        "AsyncHandle",
        "AsyncChainHandle",
        "AsyncGroupHandle",
        "AsyncTaskEvents",
        "AsyncConsumer",
        "AsyncLeasedTask",
    ),
    "Chains and groups": (
        "chain",
        "group",
        "map",
        "client.flow_sender.MapOptions",
        "Chain",
        "Group",
        "ChainHandle",
        "GroupHandle",
        "GroupStatus",
        "client.status.GroupStanding",
    ),
    "Looking": (
        "QueueCounts",
        "status",
        "cancel",
        "TaskStatus",
        "protocol.task_states.State",
        "AttemptRecord",
        "Progress",
        "QueuedTask",
        "Explanation",
        "TaskEvent",
        "client.event_stream.TaskEvents",
        "client.blocking.schedules.Schedules",
        "ScheduleStatus",
    ),
    "Inside a task": ("current_task", "CurrentTask", "Retry", "Dead", "TimeLimit", "Cancelled"),
    "Hooks": ("on_worker_start", "on_worker_stop", "around_task", "on_failure", "AttemptFailure", "on_dead"),
    "Traces: rota.contrib.opentelemetry": (
        "contrib.opentelemetry.instrument",
        "contrib.opentelemetry.uninstrument",
        "contrib.opentelemetry.processing",
    ),
    "Taking tasks in a program of your own": ("Consumer", "LeasedTask"),
    "Testing: rota.testing": (
        "testing.capture",
        "testing.Capture",
        "testing.CapturedCall",
        "testing.CaptureClock",
        "testing.eager",
        "testing.Ran",
        "testing.EndlessDrain",
        "testing.NeedsServer",
        "testing.NotRun",
    ),
    "Errors and warnings": ("RotaError", "RotaWarning"),  # and all errors that are in no other group
}
"""The public names in the order of the page. Applications do not import names with a dot, but receive such objects."""

CONSTRUCTED: Final = ("Cron", "Every", "Call", "Client", "AsyncClient", "Retry", "Dead")
"""The classes whose constructors applications call. They receive the objects of all other classes."""

_OURS: Final = (
    *(
        f"TaskDefinition.{each}"
        for each in ("bind", "described", "rate_request", "read_annotations", "received", "typed")
    ),
    *("Periodic.of", "Periodic.rule", "Cron.rule", "Every.rule"),
)
_SHOWN_AS: Final = {
    "CallChain": "Chain",
    "CallGroup": "Group",
    "TaskDefinition": "Task",
    "MakesCalls": "Task[..., Any] | Using[..., Any]",
    "TaskAccess": "Client",
    "AsyncTaskAccess": "AsyncClient",
}
"""The names that the page shows in place of base classes and protocols."""
_HIDDEN: Final = re.compile(rf"\b({'|'.join(_SHOWN_AS)})\b")
_STARS: Final = {ParameterKind.var_positional: "*", ParameterKind.var_keyword: "**"}
_WIDTH: Final = 100
_COMMENTED: Final = _WIDTH - 8  # Room for a field and its comment, without the indentation and the mark of the comment.
_PAGE: Final = re.compile(r"\bdocs/([a-z-]+\.md)")
_RAISES: Final = re.compile(r"^Raises:\n((?: {4}.*(?:\n|$))+)", re.MULTILINE)
_ERROR: Final = re.compile(r"^ {4}([\w, ]+):", re.MULTILINE)


def page() -> str:
    """Return the page. Raises ValueError if a public name is in no group or has no docstring."""
    package = _package()
    grouped = {name for names in GROUPS.values() for name in names}
    left = sorted({str(name) for name in package.exports or ()} - grouped - {"__version__"})
    if homeless := [name for name in left if package[name].canonical_path not in _errors_named(name)]:
        raise ValueError(f"docs/site/api_page.py: no group of GROUPS has {', '.join(homeless)}")
    parts = [INTRODUCTION]
    for heading, names in GROUPS.items():
        parts.append(f"## {heading}\n")
        every = (*names, *left) if heading == list(GROUPS)[-1] else names
        parts += [part for name in every for part in _entry(_target(package[name]))]
    return _HIDDEN.sub(lambda found: _SHOWN_AS[found[0]], "\n".join(parts))


def _errors_named(name: str) -> tuple[str, ...]:
    return f"rota.errors.{name}", f"rota.client.command_replies.{name}", f"rota.client.inquiries.{name}"


@cache
def _package() -> Module:
    found = load("rota", search_paths=[str(ROOT / "workers")], resolve_aliases=True)
    assert isinstance(found, Module)
    return found


def _target(found: Object | Alias) -> Object:
    return found.final_target if isinstance(found, Alias) else found


def _entry(item: Object) -> Iterator[str]:
    yield f"### {item.name}\n"
    if isinstance(item, Function):
        yield _described(item, "\n".join(_signature(each) for each in item.overloads or [item]))
    elif isinstance(item, Class):
        yield _described(item, _outline(item))
        for member in map(_target, {**item.members, **item.all_members}.values()):
            if _is_documented(member):
                yield f"#### {item.name}.{member.name}\n"
                yield _described(member, _shown(member))


def _is_documented(member: Object) -> bool:
    told = isinstance(member, Function) or "property" in member.labels
    return told and member.name[0] != "_" and f"{member.parent and member.parent.name}.{member.name}" not in _OURS


def _described(item: Object, code: str) -> str:
    if item.docstring is None:
        raise ValueError(f"{item.filepath}:{item.lineno}: {item.path} needs a docstring: it is public")
    told = _PAGE.sub(r"[\g<0>](\1)", item.docstring.value)
    return f"```python\n{code}\n```\n\n{_RAISES.sub(_errors, told)}\n"


def _errors(block: re.Match[str]) -> str:
    """Return the errors of a docstring as a list in Markdown."""
    return "Raises:\n\n" + re.sub(r"^ {8}", "  ", _ERROR.sub(_error, block[1]), flags=re.MULTILINE)


def _error(names: re.Match[str]) -> str:
    return f"* {', '.join(f'`{name}`' for name in names[1].split(', '))}:"


def _shown(member: Object) -> str:
    if isinstance(member, Function):
        return "\n".join(_signature(each) for each in member.overloads or [member])
    assert isinstance(member, Attribute)
    return f"{member.name}: {member.annotation}"


def _outline(item: Class) -> str:
    bases = ", ".join(_bases(item))
    head = f"class {item.name}({bases}):" if bases else f"class {item.name}:"
    if item.name in CONSTRUCTED:
        return f"{head}\n{indent(_signature_of('__init__', list(item.parameters), 'None'), '    ')}"
    fields = [f"    {line}" for member in item.all_members.values() for line in _field(_target(member))]
    return "\n".join([head, *fields]) if fields else f"{head} ..."


def _bases(item: Class) -> Iterator[str]:
    for base in map(_expression, item.bases):
        if str(base) == "ABC":
            continue
        if str(base) in (_package().exports or ()) or not base.canonical_path.startswith("rota."):
            yield str(base)
        else:  # the base class is not public, so show its own bases
            hidden = _ours(base)
            assert isinstance(hidden, Class)
            yield from _bases(hidden)


def _expression(base: str | Expr) -> Expr:
    assert isinstance(base, Expr)
    return base


def _field(member: Object) -> Iterator[str]:
    # The fields of a data class or the members of an enum. Other attributes are described by properties and docstrings.
    if not isinstance(member, Attribute) or member.name[0] == "_" or member.labels & {"property", "cached"}:
        return
    if "repr=False" in str(member.value):  # internal
        return
    parent = member.parent
    if isinstance(parent, Class) and ("dataclass" in parent.labels or "class-attribute" in member.labels):
        kind = f": {member.annotation}" if member.annotation else ""
        line = f"{member.name}{kind}{_default(member.value) if _is_plain(member.value) else ''}"
        comment = _comment(member)
        if comment and len(line) + len(comment) > _COMMENTED:
            yield from (f"# {part}" for part in wrap(comment, _COMMENTED))
        yield f"{line}  # {comment}" if comment and len(line) + len(comment) <= _COMMENTED else line


def _comment(member: Attribute) -> str:
    """Return the comment behind a field, or the one above it, or ""."""
    assert isinstance(member.filepath, Path)
    assert member.lineno is not None
    assert member.endlineno is not None
    lines = _lines(member.filepath)
    _, _, behind = lines[member.endlineno - 1].partition("  # ")
    above = takewhile(lambda line: line.strip().startswith("# "), reversed(lines[: member.lineno - 1]))
    if behind.startswith(("noqa", "type:")):
        return ""
    return behind or " ".join(line.strip()[2:] for line in reversed([*above]))


@cache
def _lines(file: Path) -> tuple[str, ...]:
    return tuple(file.read_text(encoding="utf-8").splitlines())


def _is_plain(value: str | Expr | None) -> bool:
    return value is not None and not isinstance(value, ExprCall)


def _signature(function: Function) -> str:
    decorators = [f"@{each.value}\n" for each in function.decorators if str(each.value) == "contextmanager"]
    return "".join(decorators) + _signature_of(function.name, list(function.parameters), function.returns)


def _signature_of(name: str, parameters: list[Parameter], returns: str | Expr | None) -> str:
    shown = list(_parameters(parameters))
    line = f"def {name}({', '.join(shown)}) -> {returns}: ..."
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"def {name}(", *(f"    {each}," for each in shown), f") -> {returns}: ..."])


def _parameters(parameters: list[Parameter]) -> Iterator[str]:
    positional_only = [each for each in parameters if each.kind is ParameterKind.positional_only]
    starred = False
    for each in parameters:
        shown = list(_options(each)) if str(each.annotation).startswith("Unpack[") else [_parameter(each)]
        is_named = each.kind is ParameterKind.keyword_only or len(shown) > 1
        if is_named and not starred:
            yield "*"
        starred = starred or is_named or each.kind is ParameterKind.var_positional
        yield from shown
        if positional_only and each is positional_only[-1]:
            yield "/"


def _options(parameter: Parameter) -> Iterator[str]:
    # The optional keyword arguments that `**options: Unpack[...]` describes.
    assert isinstance(parameter.annotation, ExprSubscript)
    assert isinstance(parameter.annotation.slice, Expr)
    arguments = _ours(parameter.annotation.slice)
    assert isinstance(arguments, Class)
    for member in map(_target, arguments.all_members.values()):
        if isinstance(member, Attribute):
            yield f"{member.name}: {member.annotation} = ..."


def _ours(name: Expr) -> Object:
    return _target(_package()[name.canonical_path.removeprefix("rota.")])


def _parameter(parameter: Parameter) -> str:
    stars = _STARS.get(parameter.kind, "") if parameter.kind else ""
    kind = f": {parameter.annotation}" if parameter.annotation else ""
    return f"{stars}{parameter.name}{kind}{'' if stars else _default(parameter.default)}"


def _default(value: str | Expr | None) -> str:
    if isinstance(value, ExprAttribute | ExprName):  # show the value of a constant, not its name
        with suppress(KeyError):  # an attribute of an object
            constant = _ours(value)
            assert isinstance(constant, Attribute)
            value = constant.value
    return "" if value is None else " = " + str(value).replace("'", '"')


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
