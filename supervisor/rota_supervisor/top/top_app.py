"""The view of `rota top`, drawn by Textual: the lines at the top, and below them as many tables as fit."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

import rota
from rota.client.queues import QueuedTask
from rota.display_text import printable
from rota.protocol.task_states import State
from rota_supervisor.layout import Role
from rota_supervisor.node_http import NodeUnreachable
from rota_supervisor.top import fleet_view
from rota_supervisor.top.screens import Confirm, Details, FleetTable, Tasks, drawn, fields
from rota_supervisor.top.tables import Cell, Row

POLL_SECONDS: Final = 1.0
_NAMES: Final = tuple(fleet_view.TABLES)
_TOGETHER: Final = ("queues", "workers", "events")  # these tables fit together into a terminal of the usual height
_MAX_PROBLEMS: Final = 3
_KEYS: Final = {
    "tab, 1 to 5": "select the next table, or the table with the number of the key",
    "up, down": "select a row",
    "enter": "show the tasks of a queue, the details of a task, or all fields of another row",
    "s, r": "sort by the next column, or reverse the order",
    "/": "show only the rows that contain a text; esc shows all rows",
    "p": "pause or resume the queue",
    "v": "revive the dead tasks of the queue, or the selected task",
    "q, ctrl-c": "quit",
}
_TALL: Final = 40  # more than one problem is shown only if the terminal has at least this many lines


class Top(App[None]):
    """The view of a fleet.

    `read` is called in a thread, and returns the reply of /status.json or raises NodeUnreachable. `client` controls the
    fleet and lists its tasks."""

    CSS_PATH = Path(__file__).with_name("top.tcss")
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (140, "-wide")]  # noqa: RUF012 - declared like this by Textual
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-medium"), (_TALL, "-tall")]  # noqa: RUF012 - declared like this by Textual
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("tab", "next_table", "table", priority=True),
        Binding("shift+tab", "next_table(-1)", show=False, priority=True),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("escape", "unfilter", show=False),
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "reverse", show=False),
        Binding("p", "pause", "pause/resume"),
        Binding("v", "revive", "revive"),
        Binding("question_mark", "help", "keys", key_display="?"),
        *(Binding(str(at), f"table('{name}')", name, show=False) for at, name in enumerate(_NAMES, 1)),
    ]

    def __init__(self, read: Callable[[], Row], client: rota.Client) -> None:
        super().__init__(ansi_color=True)
        self._read = read
        self.client = client
        self._status: Row | None = None
        self._fault = ""
        self._is_polling = False

    def compose(self) -> ComposeResult:
        yield Static(id="summary")
        with Grid(id="tables"):
            for name, make in fleet_view.TABLES.items():
                yield FleetTable(name, make)
        yield Input(placeholder="show only the rows that contain this text", id="filter")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.theme = "ansi-dark"
        self.listen_for_signals()
        self.action_table("queues")
        self.set_interval(POLL_SECONDS, self._poll)
        self._poll()

    def listen_for_signals(self) -> None:
        """Make the SIGTERM signal restore the terminal and exit."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.leave)

    def leave(self) -> None:
        """Exit."""
        self.exit()

    async def action_quit(self) -> None:
        self.leave()

    # The content

    def _poll(self) -> None:
        if not self._is_polling:  # Do not query a slow node again before it has replied.
            self._is_polling = True
            self._query_node()

    @work(thread=True)
    def _query_node(self) -> None:
        try:
            status = self._read()
        except NodeUnreachable as error:
            self.call_from_thread(self._show, None, str(error))
        else:
            self.call_from_thread(self._show, status, "")

    def _show(self, status: Row | None, fault: str) -> None:
        self._is_polling = False
        self._status = status or self._status
        self._fault = fault
        self._draw()

    def _draw(self) -> None:
        self._draw_summary()
        if self._status is not None:
            for table in self._main.query(FleetTable):
                table.put(self._status)
            self._draw_queue(self._status)

    def _draw_summary(self) -> None:
        lines: list[list[Cell]] = []
        if self._fault:
            lines.append([Cell(f"{fleet_view.MARKS['bad']} {printable(self._fault)}", level="bad")])
        if self._status is not None:
            room = _MAX_PROBLEMS if self.size.height >= _TALL else 1
            lines += fleet_view.lines(self._status, self.size.width, room)
        text = Text("\n").join(Text.assemble(*map(drawn, line)) for line in lines or [[Cell("loading ...")]])
        self._main.query_one("#summary", Static).update(text)

    def _draw_queue(self, status: Row) -> None:
        if isinstance(self.screen, Tasks) and self.screen.is_mounted:
            name = self.screen.queue
            row = next((row for row in status["queues"] if row["name"] == name), None)
            if row is not None:
                self.screen.show(row, fleet_view.step_of(status))

    def on_resize(self) -> None:
        self._draw_summary()

    # Tables

    @property
    def _main(self) -> Screen[Any]:
        return self.screen_stack[0]

    @property
    def _table(self) -> FleetTable:
        return self._main.query_one(".-current", FleetTable)

    def action_table(self, name: str) -> None:
        self._main.query_one("#tables").set_class(name in _TOGETHER, "-together")
        for each in self._main.query(FleetTable):
            each.set_class(each.id == name, "-current")
        self._table.focus()

    def action_next_table(self, step: int = 1) -> None:
        at = _NAMES.index(str(self._table.id))
        self.action_table(_NAMES[(at + step) % len(_NAMES)])

    def on_descendant_focus(self) -> None:
        if isinstance(self.focused, FleetTable) and not self.focused.has_class("-current"):
            self.action_table(str(self.focused.id))

    def action_sort(self) -> None:
        self._table.sort_by_next()
        self._table.draw()

    def action_reverse(self) -> None:
        self._table.is_reversed = not self._table.is_reversed
        self._table.draw()

    def action_filter(self) -> None:
        field = self._main.query_one("#filter", Input)
        field.value = self._table.wanted
        field.add_class("-open")
        field.focus()

    def action_unfilter(self) -> None:
        field = self._main.query_one("#filter", Input)
        field.value = ""
        field.remove_class("-open")
        self._table.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._table.wanted = event.value
        self._table.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.remove_class("-open")
        self._table.focus()

    # Details and control

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        line = self._table.current()
        if event.data_table is not self._table or line is None:
            return
        if self._table.id == "queues":
            self.push_screen(Tasks(self.client, str(line.row["name"]), self._revive_one))
        else:
            self.push_screen(Details(f"{self._table.id}: {line.key}", [*self._hints(line.row), *fields(line.row)]))

    def _hints(self, row: Row) -> list[str]:
        """Return hints on how to find out more about the process in a row, or an empty list if the row is not that of a
        process."""
        if self._status is None or "phase" not in row:
            return []
        masters = [each["pid"] for each in self._status["processes"] if each["role"] == Role.MASTER]
        hints = [f"kill -USR1 {pid} writes the stack of every worker to the log" for pid in masters]
        if task := row["task"]:
            hints.append(f"rota task show {printable(task['id'])} shows its attempts")
        return [*hints, ""]

    def _current_queue(self) -> Row | None:
        line = self._table.current() if self._table.id == "queues" else None
        return None if line is None else line.row

    def action_pause(self) -> None:
        queue = self._current_queue()
        if queue is None or queue["state"] is None:
            self.notify("select a queue first")
            return
        name = str(queue["name"])
        is_paused = queue["state"]["paused"]
        verb, do = ("Resume", self.client.resume) if is_paused else ("Pause", self.client.pause)
        what = (
            "no tasks are claimed from the queue until it is resumed"
            if not is_paused
            else "workers claim from the queue again"
        )
        self._confirm(
            f"{verb} queue {name}? Then {what}.", lambda: f"{verb.lower()}d {name}" if do(name) else "no change"
        )

    def action_revive(self) -> None:
        queue = self._current_queue()
        if queue is None or not (queue["state"] or {}).get("dead"):
            self.notify("select a queue with dead tasks first")
            return
        name = str(queue["name"])

        def revive() -> str:
            dead = self.client.peek(name, State.DEAD)
            return f"revived {sum(self.client.revive(task.id) for task in dead)} of {len(dead)} tasks of {name}"

        self._confirm(f"Revive the dead tasks of queue {name}? At most 100 at once, the latest first.", revive)

    def _revive_one(self, task: QueuedTask) -> None:
        def revive() -> str:
            return f"revived {task.id}" if self.client.revive(task.id) else f"{task.id} is no longer dead"

        self._confirm(f"Revive {task.name} {task.id}?", revive)

    def _confirm(self, question: str, do: Callable[[], str]) -> None:
        def on_reply(yes: bool | None) -> None:
            if yes:
                self.steer(do)

        self.push_screen(Confirm(question), on_reply)

    @work(thread=True)
    def steer(self, do: Callable[[], str]) -> None:
        """Run an action in a thread, and show the text that it returns."""
        try:
            text = do()
            severity = "information"
        except rota.RotaError as error:
            text = str(error)
            severity = "error"
        self.call_from_thread(self._show_result, text, severity)

    def _show_result(self, text: str, severity: Any) -> None:
        self.notify(printable(text), severity=severity, markup=False)
        self._poll()

    def action_help(self) -> None:
        self.push_screen(Details("keys", [*fields(_KEYS)]))
