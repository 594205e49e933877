"""Log lines for people and for logfmt, as structlog renders them."""

from collections.abc import Callable, Mapping
from typing import Any

from rota.telemetry.log_fields import FIRST, Clock, Counts, Fields, Lines, Render, all_fields, fit
from rota.telemetry.stand_ins import LoadedWhenTouched, importing_with

# structlog imports rich and asyncio for features not used here. Measured with CPython 3.11: 10.7 MB of private memory
# with both, 3.0 MB without, in each of our processes. structlog does without rich where it is not installed; its async
# methods would load the real asyncio.
with importing_with([LoadedWhenTouched("asyncio")], absent=["rich"]):
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
