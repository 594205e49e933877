"""The tables of `rota top`, as pure functions. A table has rows of cells. It can be sorted and filtered, and shows as
many columns as fit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from rota.display_text import printable
from rota.durations import in_words

NONE: Final = "-"
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_SPARK_WIDTH: Final = 16
_LEAST: Final = 8  # text is not cut to fewer characters than this
_GAP: Final = 2  # the space beside each cell, in characters

Row = Mapping[str, Any]


class Cell(NamedTuple):
    """The content of a table cell, which is one line of text."""

    text: str
    value: Any = None  # the sort key, or None if the value is not known
    level: str = ""  # the style: bad, warn, soft or ""


class TextLine(NamedTuple):
    """A row of a table."""

    key: str  # the key of the object that the row shows
    cells: tuple[Cell, ...]
    row: Row  # the data from which the cells were made


class Column(NamedTuple):
    """A column of a table."""

    head: str  # its header
    cell: Callable[[Row], Cell]  # makes the cell for a row
    rank: int = 0  # columns that do not fit are omitted, those with the highest rank first, but never those with rank 0
    right: bool = True  # whether cells are aligned to the right


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with their column headers."""

    name: str
    columns: tuple[Column, ...]
    widths: tuple[int, ...]  # the widths of the columns
    lines: tuple[TextLine, ...]

    @property
    def heads(self) -> tuple[str, ...]:
        return tuple(column.head for column in self.columns)

    @property
    def right(self) -> tuple[bool, ...]:
        """Whether the cells of each column are aligned to the right."""
        return tuple(column.right for column in self.columns)

    def fitted(self, width: int, kept: str = "") -> "Table":
        """Return the table with as many columns as fit into `width`, the most important ones. The column with the
        header `kept` is never omitted."""
        shown = _fitting(self, width, kept)
        cut = _cut(self, shown, width)
        lines = (
            line._replace(cells=tuple(_shortened(line.cells[at], cut.get(at)) for at in shown)) for line in self.lines
        )
        return Table(
            self.name,
            tuple(self.columns[at] for at in shown),
            tuple(cut.get(at, self.widths[at]) for at in shown),
            tuple(lines),
        )

    def filtered(self, wanted: str) -> "Table":
        """Return the table with only those rows that contain the text."""
        wanted = wanted.casefold()
        lines = (line for line in self.lines if any(wanted in cell.text.casefold() for cell in line.cells))
        return replace(self, lines=tuple(lines))

    def sorted(self, head: str, *, reverse: bool) -> "Table":
        """Return the table sorted by one column, with unknown values last. If the table does not have this column,
        return it unchanged."""
        if head not in self.heads:
            return self
        at = self.heads.index(head)
        known = [line for line in self.lines if line.cells[at].value is not None]
        known.sort(key=lambda line: line.cells[at].value, reverse=reverse)
        return replace(self, lines=(*known, *(line for line in self.lines if line.cells[at].value is None)))


def spark(values: Iterable[float | None], width: int = _SPARK_WIDTH, top: float | None = None) -> str:
    """Return the last values as bars in one line. The highest bar stands for `top`, or for the largest value if `top`
    is None. A value of None leaves a gap."""
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
    return Cell(NONE) if value is None else Cell(f"{value:,.1f}" if value < 100 else f"{value:,.0f}", value)  # noqa: PLR2004 - above this a tenth is irrelevant


def time_cell(value: float | None, level: str = "") -> Cell:
    return Cell(NONE) if value is None else Cell(in_words(value, 1), value, level)


def table_of(name: str, columns: Sequence[Column], rows: Iterable[Row], key: str) -> Table:
    """Return a table with one row of cells for each of `rows`. `key`: the field that identifies a row."""
    lines = tuple(TextLine(str(row[key]), tuple(column.cell(row) for column in columns), row) for row in rows)
    widths = (_width(column, [line.cells[at] for line in lines]) for at, column in enumerate(columns))
    return Table(name, tuple(columns), tuple(widths), lines)


def _width(column: Column, cells: Sequence[Cell]) -> int:
    """Return the width that a column needs. It is 0 for an optional column without any content, which is not shown."""
    is_needed = not column.rank or any(cell.text not in ("", NONE) for cell in cells)
    return max(len(column.head), *(len(cell.text) for cell in cells), 0) if is_needed else 0


def _fitting(table: Table, width: int, kept: str) -> list[int]:
    """Return the indexes of the columns to show in `width`. Columns that do not fit are omitted, the least important
    first. The column with the header `kept` is never omitted."""
    shown = [at for at, needed in enumerate(table.widths) if needed]
    ranks = [0 if column.head == kept else column.rank for column in table.columns]
    while sum(table.widths[at] + _GAP for at in shown) > width:
        worst = max(shown, key=lambda at: ranks[at])
        if not ranks[worst]:
            break
        shown.remove(worst)
    return shown


def _cut(table: Table, shown: Sequence[int], width: int) -> Mapping[int, int]:
    """Choose the column to shorten if the shown columns are together wider than `width`: the widest one with text.
    Return the index of this column with its new width, or an empty mapping if no column has to be shortened."""
    over = sum(table.widths[at] + _GAP for at in shown) - width
    texts = [at for at in shown if not table.columns[at].right]
    if over <= 0 or not texts:
        return {}
    widest = max(texts, key=lambda at: table.widths[at])
    return {widest: max(_LEAST, table.widths[widest] - over)}


def _shortened(cell: Cell, most: int | None) -> Cell:
    if most is None or len(cell.text) <= most:
        return cell
    return cell._replace(text=f"{cell.text[: most - 1]}…")
