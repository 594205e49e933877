"""Log lines for people and for logfmt, as structlog renders them."""

from collections.abc import Mapping
from typing import Any

from rota.printable import printable, printable_lines
from rota.telemetry import log_lines as lines
from rota.telemetry.log_lines import EXCEPTION, Fields
from rota.telemetry.stand_ins import LoadedWhenTouched, importing_with

# structlog imports rich and asyncio for features not used here. Measured with CPython 3.11: 10.7 MB of private memory
# with both, 3.0 MB without, in each of our processes. structlog does without rich where it is not installed; its async
# methods would load the real asyncio.
with importing_with([LoadedWhenTouched("asyncio")], absent=["rich"]):
    import structlog


def text_lines(name: str, bound: Mapping[str, Any], counts: lines.Counts, *, colors: bool) -> lines.LogLines:
    """Return what makes lines in that format. Raises ValueError when there is none of the name."""
    render = _renderer(name, colors=colors)
    now = lines.Clock()

    def line(level: str, event: str, fields: Fields) -> bytes:
        return lines.fit(lines.all_fields(now(), level, event, bound, fields), render, counts)

    return line


# What is rendered is made fit to look at before, since colors are escapes too.
def _renderer(name: str, *, colors: bool) -> lines.Render:
    match name:
        case "logfmt":
            logfmt = structlog.processors.LogfmtRenderer(key_order=lines.FIRST, bool_as_flag=False)
            return lambda fields: logfmt(None, "", _on_one_line(fields))
        case "console" | "auto":
            plain = structlog.dev.plain_traceback
            console = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)
            return lambda fields: console(None, "", _with_a_traceback_below(fields))
        case _:
            raise ValueError(f"log format {name!r} is unknown: it is one of auto, json, console, logfmt")


def _on_one_line(fields: Fields) -> Fields:
    return {key: _printable(value) for key, value in fields.items()}


def _with_a_traceback_below(fields: Fields) -> Fields:
    shown = _on_one_line(fields)
    if EXCEPTION in fields:
        shown[EXCEPTION] = printable_lines(lines.as_text(fields[EXCEPTION]))
    return shown


def _printable(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float) else printable(lines.as_text(value))
