"""How cells and tables look in Textual."""

from collections.abc import Callable
from typing import Any, Final

from rich.text import Text
from textual.widgets import DataTable

from rota_supervisor.top.tables import Cell, Table, TextLine

_STYLES: Final = {
    "bad": "bold red", "warn": "yellow", "good": "green", "soft": "dim", "strong": "bold", "chart": "cyan", "": "",
}  # fmt: skip


def drawn(cell: Cell) -> Text:
    """Return a cell as Textual shows it: never as markup."""
    return Text(cell.text, _STYLES[cell.level], no_wrap=True, overflow="ellipsis")


class FleetTable(DataTable[Text]):
    """A table of what `make` makes of what was read, as wide as there is room; the cursor stays with what it was on."""

    def __init__(self, name: str, make: Callable[[Any], Table], classes: str = "") -> None:
        super().__init__(id=name, classes=classes, cursor_type="row", cell_padding=1)
        self._make = make
        self._seen: Any = None
        self.table: Table | None = None
        self.wanted = ""
        self.sort_head = ""
        self.is_reversed = False

    def put(self, seen: Any) -> None:
        """Show what was read."""
        self._seen = seen
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Show it as it is to be filtered and sorted by now."""
        if self._seen is None or not self.size.width:
            return
        key, scrolled = self.current_key(), self.scroll_y
        made = self._make(self._seen).fitted(self.size.width, self.sort_head)
        shown = self.table = made.filtered(self.wanted).sorted(self.sort_head, reverse=self.is_reversed)
        self._put_columns(shown)
        for line in shown.lines:
            cells = zip(line.cells, shown.right, strict=True)
            self.add_row(*(_justified(cell, right) for cell, right in cells), key=line.key)
        self.border_title = f"{shown.name} {len(shown.lines)}" + (f" of {len(made.lines)}" if self.wanted else "")
        self._back_to(key, scrolled)

    def _put_columns(self, shown: Table) -> None:
        """Columns get their widths here: those that Textual finds out come a moment later, which flickers."""
        self.clear(columns=True)
        for head, right, width in zip(shown.heads, shown.right, shown.widths, strict=True):
            mark = ("▼" if self.is_reversed else "▲") if head == self.sort_head else ""
            text = Text(head + mark, justify="right" if right else "left")
            self.add_column(text, width=max(width, len(text.plain)))

    def _back_to(self, key: str | None, scrolled: float) -> None:
        keys = [line.key for line in self._shown_lines()]
        if key in keys:
            self.move_cursor(row=keys.index(key), scroll=False)
        self.scroll_to(y=scrolled, animate=False)

    def _shown_lines(self) -> tuple[TextLine, ...]:
        return self.table.lines if self.table else ()

    def current(self) -> TextLine | None:
        """Return the row under the cursor."""
        lines = self._shown_lines()
        return lines[self.cursor_row] if 0 <= self.cursor_row < len(lines) else None

    def current_key(self) -> str | None:
        line = self.current()
        return line.key if line else None

    def sort_by_next(self) -> None:
        """Sort by the column behind the one by which it is sorted; after the last by none."""
        heads = ("", *(self.table.heads if self.table else ()))
        at = heads.index(self.sort_head) if self.sort_head in heads else 0
        self.sort_head = heads[(at + 1) % len(heads)]


def _justified(cell: Cell, right: bool) -> Text:
    text = drawn(cell)
    text.justify = "right" if right else "left"
    return text
