"""Log lines for people and for logfmt, as structlog renders them."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, cast

from rota.telemetry.log_fields import FIRST, Clock, Counts, Fields, Lines, Render, all_fields, fit


class _LoadedWhenTouched(ModuleType):
    """Stands for a module until somebody needs something of it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _light_imports() -> Iterator[None]:
    # structlog imports rich and asyncio for features not used here. Measured with CPython 3.11: 10.7 MB of
    # private memory with both, 3.0 MB without, in each of our processes. So, while structlog is imported, rich
    # is hidden (structlog does without it) and asyncio is a stand-in (its async methods would load the real one).
    stand_ins = {"rich": cast(ModuleType, None), "asyncio": _LoadedWhenTouched("asyncio")}
    absent = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    if "structlog" in sys.modules:
        absent = {}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


with _light_imports():
    import structlog


def text_lines(name: str, bound: Mapping[str, Any], counts: Counts, *, colors: bool) -> Lines:
    """Makes lines in that format. Raises ValueError when there is none of the name."""
    render = _renderer(name, colors=colors)
    now = Clock()

    def lines(level: str, event: str, fields: Fields) -> bytes:
        return fit(all_fields(now(), level, event, bound, fields), render, counts)

    return lines


def _renderer(name: str, *, colors: bool) -> Render:
    match name:
        case "logfmt":
            return _using(structlog.processors.LogfmtRenderer(key_order=FIRST, bool_as_flag=False))
        case "console" | "auto":
            return _using(
                structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)
            )
        case _:
            raise ValueError(f"log format {name!r} is unknown: it is one of auto, json, console, logfmt")


def _using(renderer: Callable[[Any, str, Fields], str]) -> Render:
    def render(fields: Fields) -> str:
        return renderer(None, "", dict(fields))  # it empties what it is given

    return render
