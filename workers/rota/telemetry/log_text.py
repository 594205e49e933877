"""Log lines for people and for logfmt, as structlog renders them."""

from collections.abc import Callable, Mapping
from typing import Any

from rota.printable import printable, printable_lines
from rota.telemetry.log_fields import (
    EXCEPTION,
    FIRST,
    Clock,
    Counts,
    Fields,
    LogLines,
    Render,
    all_fields,
    as_text,
    fit,
)
from rota.telemetry.stand_ins import LoadedWhenTouched, importing_with

# structlog imports rich and asyncio for features not used here. Measured with CPython 3.11: 10.7 MB of private memory
# with both, 3.0 MB without, in each of our processes. structlog does without rich where it is not installed; its async
# methods would load the real asyncio.
with importing_with([LoadedWhenTouched("asyncio")], absent=["rich"]):
    import structlog


def text_lines(name: str, bound: Mapping[str, Any], counts: Counts, *, colors: bool) -> LogLines:
    """Makes lines in that format. Raises ValueError when there is none of the name."""
    render = _renderer(name, colors=colors)
    now = Clock()

    def lines(level: str, event: str, fields: Fields) -> bytes:
        return fit(all_fields(now(), level, event, bound, fields), render, counts)

    return lines


def _renderer(name: str, *, colors: bool) -> Render:
    match name:
        case "logfmt":
            return _using(structlog.processors.LogfmtRenderer(key_order=FIRST, bool_as_flag=False), _on_one_line)
        case "console" | "auto":
            return _using(
                structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback),
                _with_a_traceback_below,
            )
        case _:
            raise ValueError(f"log format {name!r} is unknown: it is one of auto, json, console, logfmt")


def _using(renderer: Callable[[Any, str, Fields], str], fit_to_look_at: Callable[[Fields], Fields]) -> Render:
    # Before it is rendered, since colors are escapes too.
    return lambda fields: renderer(None, "", fit_to_look_at(fields))


def _on_one_line(fields: Fields) -> Fields:
    return {key: _printable(value) for key, value in fields.items()}


def _with_a_traceback_below(fields: Fields) -> Fields:
    shown = _on_one_line(fields)
    if EXCEPTION in fields:
        shown[EXCEPTION] = printable_lines(as_text(fields[EXCEPTION]))
    return shown


def _printable(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float) else printable(as_text(value))
