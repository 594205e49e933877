"""Tables of `rota top`: rows of cells, sorted and filtered, with as many columns as there is room for. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from rota.durations import in_words
from rota.printable import printable

NONE: Final = "-"
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_SPARK_WIDTH: Final = 16
_LEAST: Final = 8  # letters of a name
_GAP: Final = 2  # columns of the terminal beside each cell

Row = Mapping[str, Any]


class Cell(NamedTuple):
    """What stands there, on one line; `level`: bad, warn, soft or "" says how it looks. `value` is what it is sorted
    by, None for what is not known."""

    text: str
    value: Any = None
    level: str = ""


class TextLine(NamedTuple):
    """A row of a table. `key`: what it is about, `row`: what the cells were made of."""

    key: str
    cells: tuple[Cell, ...]
    row: Row


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under their heads. `right` and `widths`: of each column whether its cells stand to the right, and how wide
    it is."""

    name: str
    heads: tuple[str, ...]
    right: tuple[bool, ...]
    widths: tuple[int, ...]
    lines: tuple[TextLine, ...]

    def filtered(self, wanted: str) -> "Table":
        """Return it with the rows alone in which the text occurs."""
        wanted = wanted.casefold()
        lines = (line for line in self.lines if any(wanted in cell.text.casefold() for cell in line.cells))
        return replace(self, lines=tuple(lines))

    def sorted(self, head: str, *, reverse: bool) -> "Table":
        """Return it by one column, what is not known at the end; as it is where that column is not shown."""
        if head not in self.heads:
            return self
        at = self.heads.index(head)
        known = [line for line in self.lines if line.cells[at].value is not None]
        known.sort(key=lambda line: line.cells[at].value, reverse=reverse)
        return replace(self, lines=(*known, *(line for line in self.lines if line.cells[at].value is None)))


class Column(NamedTuple):
    """`rank`: where there is no room for all columns those of the highest rank are left out first, 0 never."""

    head: str
    cell: Callable[[Row], Cell]
    rank: int = 0
    right: bool = True


def spark(values: Iterable[float | None], width: int = _SPARK_WIDTH, top: float | None = None) -> str:
    """Return the last values as bars of one line, `top` as the highest: theirs, without one. None is a gap."""
    shown = list(values)[-width:]
    highest = top or max((value for value in shown if value is not None), default=0.0)
    return "".join(_bar(value, highest) for value in shown).rjust(width)


def _bar(value: float | None, highest: float) -> str:
    if value is None:
        return _LEVELS[0]
    share = min(1.0, value / highest) if highest else 0.0
    return _LEVELS[1 + round(share * (len(_LEVELS) - 2))]


# Cells


def text_cell(value: str | None, most: int = 200, level: str = "") -> Cell:
    text = printable(value or "")
    return Cell(text if len(text) <= most else f"{text[: most - 1]}…", text or None, level) if text else Cell(NONE)


def count_cell(value: float | None, level: str = "") -> Cell:
    return Cell(NONE) if value is None else Cell(f"{value:,}", value, level if value else "soft")


def rate_cell(value: float | None) -> Cell:
    return Cell(NONE) if value is None else Cell(f"{value:,.1f}" if value < 100 else f"{value:,.0f}", value)  # noqa: PLR2004 - where a tenth says nothing more


def time_cell(value: float | None, level: str = "") -> Cell:
    return Cell(NONE) if value is None else Cell(in_words(value, 1), value, level)


def table_of(name: str, columns: Sequence[Column], rows: Iterable[Row], key: str, width: int) -> Table:
    """Return the table with as many of its columns as `width` has room for."""
    made = [(str(row[key]), row, [column.cell(row) for column in columns]) for row in rows]
    widths = [_width(column, [cells[at] for *_, cells in made]) for at, column in enumerate(columns)]
    shown = _fitting(columns, widths, width)
    cut = _cut(columns, widths, shown, width)
    lines = tuple(
        TextLine(key, tuple(_shortened(cells[at], cut.get(at)) for at in shown), row) for key, row, cells in made
    )
    heads, right = tuple(columns[at].head for at in shown), tuple(columns[at].right for at in shown)
    return Table(name, heads, right, tuple(cut.get(at, widths[at]) for at in shown), lines)


def _width(column: Column, cells: Sequence[Cell]) -> int:
    """Return how wide it is; 0 for one that can be left out, and says nothing."""
    is_needed = not column.rank or any(cell.text not in ("", NONE) for cell in cells)
    return max(len(column.head), *(len(cell.text) for cell in cells), 0) if is_needed else 0


def _fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Return the places of the columns that are shown."""
    shown = [at for at, needed in enumerate(widths) if needed]
    while sum(widths[at] + _GAP for at in shown) > width:
        worst = max(shown, key=lambda at: columns[at].rank)
        if not columns[worst].rank:
            break
        shown.remove(worst)
    return shown


def _cut(columns: Sequence[Column], widths: Sequence[int], shown: Sequence[int], width: int) -> Mapping[int, int]:
    """Return to how many letters which column of words is cut, where the last ones are still too wide."""
    over = sum(widths[at] + _GAP for at in shown) - width
    words = [at for at in shown if not columns[at].right]
    if over <= 0 or not words:
        return {}
    widest = max(words, key=lambda at: widths[at])
    return {widest: max(_LEAST, widths[widest] - over)}


def _shortened(cell: Cell, most: int | None) -> Cell:
    if most is None or len(cell.text) <= most:
        return cell
    return cell._replace(text=f"{cell.text[: most - 1]}…")
