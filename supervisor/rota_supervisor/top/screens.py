"""The Textual widgets of `rota top`: its tables, and the screens with a queue's tasks, the details of a row, and a
confirmation."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final

from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Static

import rota
from rota.client.queues import QueuedTask
from rota.display_text import printable
from rota.protocol.task_states import LISTED
from rota_supervisor.facts import fields_of
from rota_supervisor.top import fleet_view
from rota_supervisor.top.tables import Cell, Row, Table, TextLine

_STYLES: Final = {
    "bad": "bold red", "warn": "yellow", "good": "green", "soft": "dim", "strong": "bold", "chart": "cyan", "": "",
}  # fmt: skip


def drawn(cell: Cell) -> Text:
    """Return the text that Textual shows for a cell. The content of the cell is never interpreted as markup."""
    return Text(cell.text, _STYLES[cell.level], no_wrap=True, overflow="ellipsis")


class FleetTable(DataTable[Text]):
    """A table whose rows and columns the function `make` creates from the status. It is as wide as the terminal. When
    it is drawn again, the cursor stays on the same row."""

    def __init__(self, name: str, make: Callable[[Any], Table], classes: str = "") -> None:
        super().__init__(id=name, classes=classes, cursor_type="row", cell_padding=1)
        self._make = make
        self._seen: Any = None
        self.table: Table | None = None
        self.wanted = ""
        self.sort_head = ""
        self.is_reversed = False

    def put(self, seen: Any) -> None:
        """Store new data, from which `make` creates the table, and draw the table."""
        self._seen = seen
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Draw the table with the current filter and sort order."""
        if self._seen is None or not self.size.width:
            return
        key = self.current_key()
        scrolled = self.scroll_y
        made = self._make(self._seen).fitted(self.size.width, self.sort_head)
        shown = self.table = made.filtered(self.wanted).sorted(self.sort_head, reverse=self.is_reversed)
        self._put_columns(shown)
        for line in shown.lines:
            cells = zip(line.cells, shown.right, strict=True)
            self.add_row(*(_justified(cell, right=right) for cell, right in cells), key=line.key)
        self.border_title = f"{shown.name} {len(shown.lines)}" + (f" of {len(made.lines)}" if self.wanted else "")
        self._back_to(key, scrolled)

    def _put_columns(self, shown: Table) -> None:
        """Set the columns and their widths. Without widths, Textual would compute them a moment later, and the table
        would flicker."""
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
        """Sort by the next column. After the last column, return to the unsorted table."""
        heads = ("", *(self.table.heads if self.table else ()))
        at = heads.index(self.sort_head) if self.sort_head in heads else 0
        self.sort_head = heads[(at + 1) % len(heads)]


def _justified(cell: Cell, *, right: bool) -> Text:
    text = drawn(cell)
    text.justify = "right" if right else "left"
    return text


MOST_TASKS: Final = 50  # maximum number of tasks to show for each state
_LABEL: Final = 20
_BACK: Final = Binding("escape,q", "dismiss", "back", key_display="esc")


class Confirm(ModalScreen[bool]):
    """A question that asks for confirmation: `y` means yes, any other key means no."""

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Static(Text(f"{printable(self._question)}\n\ny: yes   any other key: no"), id="question")

    def on_key(self, event: events.Key) -> None:
        event.stop()
        self.dismiss(event.key == "y")


class Details(Screen[None]):
    """A screen with the details of one row, one per line."""

    BINDINGS: ClassVar[list[BindingType]] = [_BACK]

    def __init__(self, title: str, lines: Iterable[str]) -> None:
        super().__init__()
        self._heading = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        yield Static(Text(printable(self._heading), "bold"), classes="heading")
        with VerticalScroll():
            yield Static(Text("\n".join(self._lines)), id="details")
        yield Footer(compact=True)


def fields(values: Row, prefix: str = "") -> list[str]:
    """Return one line for each field that has a value, with the field's name and value. Lists are omitted."""
    lines: list[str] = []
    for key, value in values.items():
        name = f"{prefix}{key.replace('_', ' ')}"
        if isinstance(value, dict):
            lines += fields(value, f"{name} ")
        elif value not in (None, "") and not isinstance(value, list):
            lines += _field(name, round(value, 3) if isinstance(value, float) else value)
    return lines


def _field(label: str, value: object) -> Iterable[str]:
    for line in str(value).split("\n"):
        yield f"{label:<{_LABEL}} {printable(line)}".rstrip()
        label = ""


class Tasks(Screen[None]):
    """A screen with the first tasks of a queue in each state, and the recent history of the queue."""

    BINDINGS: ClassVar[list[BindingType]] = [_BACK, Binding("v", "revive", "revive"), Binding("enter", "", "details")]

    def __init__(self, client: rota.Client, queue: str, revive: Callable[[QueuedTask], None]) -> None:
        super().__init__()
        self._client = client
        self.queue = queue
        self._revive = revive
        self._is_loading = False

    def compose(self) -> ComposeResult:
        yield Static(Text(f"queue {printable(self.queue)}", "bold"), classes="heading")
        yield Static(id="chart")
        yield FleetTable("tasks", fleet_view.tasks, classes="-current")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.query_one(FleetTable).focus()
        self.load()

    def show(self, queue: Row, step_seconds: float) -> None:
        """Show the recent history of the queue, and request the queue's tasks again."""
        chart = fleet_view.queue_chart(queue, step_seconds, self.size.width)
        text = Text("\n").join(Text.assemble(*map(drawn, line)) for line in chart)
        self.query_one("#chart", Static).update(text)
        self.load()

    def load(self) -> None:
        """Request the tasks, unless an earlier request is still running."""
        if not self._is_loading:
            self._is_loading = True
            self._peek()

    @work(thread=True)
    def _peek(self) -> None:
        try:
            found = [task for state in LISTED for task in self._client.peek(self.queue, state, limit=MOST_TASKS)]
        except rota.RotaError as error:
            self.app.call_from_thread(self._put, None, str(error))
        else:
            self.app.call_from_thread(self._put, found)

    def _put(self, found: Sequence[QueuedTask] | None, fault: str = "") -> None:
        self._is_loading = False
        if fault:
            self.notify(printable(fault), severity="error", markup=False)
        elif self.is_mounted:
            self.query_one(FleetTable).put(found)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        if line := self.query_one(FleetTable).current():
            self._open(line.row["id"])

    @work(thread=True)
    def _open(self, task_id: str) -> None:
        found = fields_of(self._client.status(task_id, args=True))
        self.app.call_from_thread(self.app.push_screen, Details(f"task {task_id}", fields(found)))

    def action_revive(self) -> None:
        line = self.query_one(FleetTable).current()
        if line is not None and line.row["state"] == "dead":
            self._revive(line.row["task"])
        else:
            self.notify("select a dead task: only dead tasks can be revived")
