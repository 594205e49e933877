"""The plot of docs/scaling.md as an SVG. It shows the number of workers under each rule on the same traces."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from scaling.pool_model import ROUND_SECONDS, Trace
from scaling.scaling_run import Outcome

CELL_WIDTH: Final = 300
CELL_HEIGHT: Final = 96
LEFT: Final = 96
TOP: Final = 78
GAP: Final = 24
PIXEL_SECONDS: Final = 10  # the width of a pixel in seconds; a pixel shows lateness if there was any within this time
RULE_COLOR: Final = "#1f6feb"
BEST_COLOR: Final = "#8b949e"
LATE_COLOR: Final = "#d1242f"
TEXT_COLOR: Final = "#24292f"

LEGEND: Final = (
    ("workers", RULE_COLOR),
    ("workers of the best controller", BEST_COLOR),
    ("the oldest task is late", LATE_COLOR),
)


class Column(NamedTuple):
    """A trace, with the outcome of each rule and of the best controller."""

    trace: Trace
    best: Outcome
    outcomes: Mapping[str, Outcome]


def drawn(columns: Sequence[Column]) -> str:
    """Return the plot, which has a column for each trace and a row for each rule."""
    rows = list(columns[0].outcomes)
    width = LEFT + len(columns) * (CELL_WIDTH + GAP)
    height = TOP + len(rows) * (CELL_HEIGHT + GAP)
    size = f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13" fill="{TEXT_COLOR}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        "<title>Workers of each rule on the same traces, with the times in which tasks are late</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *_legend(),
    ]
    for at, column in enumerate(columns):
        x = LEFT + at * (CELL_WIDTH + GAP)
        minutes = round(column.trace.seconds / 60)
        lines.append(f'<text x="{x}" y="{TOP - 12}">{escape(column.trace.name)}, {minutes} minutes</text>')
        for row, name in enumerate(rows):
            y = TOP + row * (CELL_HEIGHT + GAP)
            if not at:
                middle = y + CELL_HEIGHT // 2
                lines.append(f'<text x="{LEFT - 24}" y="{middle}" text-anchor="end">{escape(name)}</text>')
            lines += _cell(x, y, column, column.outcomes[name])
    return "\n".join([*lines, "</svg>", ""])


def _legend() -> Iterator[str]:
    x = LEFT
    for text, color in LEGEND:
        yield f'<rect x="{x}" y="18" width="24" height="4" fill="{color}"/>'
        yield f'<text x="{x + 32}" y="25">{text}</text>'
        x += 60 + 8 * len(text)


def _cell(x: int, y: int, column: Column, outcome: Outcome) -> Iterator[str]:
    trace = column.trace
    yield f'<rect x="{x}" y="{y}" width="{CELL_WIDTH}" height="{CELL_HEIGHT}" fill="#f6f8fa"/>'
    yield f'<text x="{x - 4}" y="{y + 10}" font-size="10" text-anchor="end">{trace.most}</text>'
    for begin, end in _late(outcome):
        left, right = (CELL_WIDTH * at / trace.seconds for at in (begin, end))
        size = f'width="{max(1.0, right - left):.1f}" height="{CELL_HEIGHT}"'
        yield f'<rect x="{x + left:.1f}" y="{y}" {size} fill="{LATE_COLOR}" fill-opacity="0.3"/>'
    yield _line(x, y, trace, column.best, BEST_COLOR)
    yield _line(x, y, trace, outcome, RULE_COLOR)


def _late(outcome: Outcome) -> Iterator[tuple[float, float]]:
    """Yield the periods in which the oldest waiting task had already waited for longer than its objective."""
    rounds = round(PIXEL_SECONDS / ROUND_SECONDS)
    begin = None
    for at in range(0, len(outcome.is_late), rounds):
        is_late = any(outcome.is_late[at : at + rounds])
        if is_late and begin is None:
            begin = at * ROUND_SECONDS
        if begin is not None and not is_late:
            yield begin, at * ROUND_SECONDS
            begin = None
    if begin is not None:
        yield begin, len(outcome.is_late) * ROUND_SECONDS


def _line(x: int, y: int, trace: Trace, outcome: Outcome, color: str) -> str:
    """Return the number of workers over time as a stepped line."""
    heights = [f"{y + CELL_HEIGHT * (1 - count / trace.most):.1f}" for _, count in outcome.steps]
    path = f"M{x} {heights[0]}"
    for (at, _), height in zip(outcome.steps[1:], heights[1:], strict=True):
        path += f"H{x + CELL_WIDTH * at / trace.seconds:.1f}V{height}"
    return f'<path d="{path}H{x + CELL_WIDTH}" fill="none" stroke="{color}" stroke-width="1.5"/>'
