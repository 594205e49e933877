"""Log lines in the formats `console`, which is for people, and `logfmt`. structlog renders both."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import structlog

from rota.display_text import printable, printable_lines
from rota.telemetry import log_lines as lines
from rota.telemetry.log_lines import EXCEPTION, Fields

_MASTER: Final = "master"
_TIME: Final = slice(11, 23)  # the part of a timestamp that shows the time to the millisecond
_EVENT_WIDTH: Final = 14
_WHO_WIDTH: Final = 9
_UNIT: Final = "_seconds"
# On the console, these fields come first, without their names. All other fields follow in their own order, with their
# names.
_WITHOUT_NAMES: Final = ("timestamp", "level", "event", "who", "task", "task_id")
# Fields that the console does not show, because they are the same in all lines of a fleet, follow from the event, or
# are of little use to people.
_LEFT_OUT: Final = frozenset({"pid", "node", "namespace", "outcome", "wait_seconds"})
_PLAIN: Final = {"kind": "immediate", "attempt": 1, "promotion_lag_seconds": 0.0, "pool": "default", "queue": "default"}


def text_lines(name: str, bound: Mapping[str, Any], counts: lines.Counts, *, colors: bool) -> lines.LogLines:
    """Return the function that makes log lines in the format with this name. Raises ValueError if there is no such
    format."""
    render = _renderer(name, colors=colors)
    now = lines.Clock()

    def line(level: str, event: str, fields: Fields) -> bytes:
        return lines.fit(lines.all_fields(now(), level, event, bound, fields), render, counts)

    return line


# Values are made printable before they are rendered, because the colors that are added then are escape sequences too.
def _renderer(name: str, *, colors: bool) -> lines.Render:
    match name:
        case "logfmt":
            logfmt = structlog.processors.LogfmtRenderer(key_order=lines.FIRST, bool_as_flag=False)
            return lambda fields: logfmt(None, "", _on_one_line(fields))
        case "console" | "auto":
            plain = structlog.dev.plain_traceback
            console = structlog.dev.ConsoleRenderer(
                columns=list(_columns(colors=colors)), exception_formatter=plain, sort_keys=False
            )
            return lambda fields: console(None, "", _with_a_traceback_below(for_people(fields)))
        case _:
            raise ValueError(f"unknown log format {name!r}: use auto, json, console or logfmt")


def _on_one_line(fields: Fields) -> Fields:
    return {key: _printable(value) for key, value in fields.items()}


def _with_a_traceback_below(fields: Fields) -> Fields:
    shown = _on_one_line(fields)
    if EXCEPTION in fields:
        shown[EXCEPTION] = printable_lines(lines.as_text(fields[EXCEPTION]))
    return shown


def _printable(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float) else printable(lines.as_text(value))


# The console format, which fits one task into one line of a terminal with 120 columns


def for_people(fields: Fields) -> Fields:
    """Return those fields of a line that a person needs. The process comes first, fields with their usual values are
    left out, and durations have units."""
    # A line of the master may be about another slot, so the master's own slot is not shown.
    own = ("role",) if fields.get("role") == _MASTER else ("role", "slot")
    who = " ".join(str(fields[key]) for key in own if key in fields)
    shown = {**fields, "timestamp": fields["timestamp"][_TIME], "who": who}
    names = [*_WITHOUT_NAMES, *(key for key in fields if key not in (*_WITHOUT_NAMES, *_LEFT_OUT, *own))]
    if EXCEPTION in fields and "error" in names:  # the last line of the traceback below shows the error too
        names.remove("error")
    return dict(_for_people(key, shown[key]) for key in names if key in shown and shown[key] != _PLAIN.get(key))


def _for_people(key: str, value: object) -> tuple[str, object]:
    is_duration = key.endswith(_UNIT) and isinstance(value, int | float)
    return (key.removesuffix(_UNIT), _duration(value)) if is_duration else (key, value)


def _duration(seconds: Any) -> str:
    return f"{seconds * 1000:.1f}ms" if abs(seconds) < 1 else f"{seconds:.2f}s"


def _columns(*, colors: bool) -> Iterable[structlog.dev.Column]:
    styles = structlog.dev.ConsoleRenderer.get_default_column_styles(colors)
    levels = structlog.dev.ConsoleRenderer.get_default_level_styles(colors)

    def column(key: str, style: str, width: int = 0) -> structlog.dev.Column:
        formatter = structlog.dev.KeyValueColumnFormatter(None, style, styles.reset, str, width)
        return structlog.dev.Column(key, formatter)

    yield column("timestamp", styles.timestamp)
    yield structlog.dev.Column("level", lambda _, level: f"{levels[str(level)]}{level:<8}{styles.reset}")
    yield column("event", styles.bright, _EVENT_WIDTH)
    yield column("who", styles.logger_name, _WHO_WIDTH)
    yield column("task", styles.bright)
    yield column("task_id", styles.timestamp)
    named = structlog.dev.KeyValueColumnFormatter(styles.kv_key, styles.kv_value, styles.reset, _quoted_where_needed)
    yield structlog.dev.Column("", named)


def _quoted_where_needed(value: object) -> str:
    text = str(value)
    return f'"{text}"' if " " in text or not text else text
