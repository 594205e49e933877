"""`rota top --once`: the same as text, for a pipe, a ticket, or a terminal where Textual is not installed."""

from collections.abc import Iterator

from rota_supervisor.top import summary
from rota_supervisor.top.tables import Cell, Row, Table
from rota_supervisor.top.views import TABLES

_MOST_HEADLINES = 20
_MOST_EVENTS = 10


def plain(status: Row, width: int) -> str:
    """Return all that is known, as text of lines of about `width` columns."""
    head = ["".join(cell.text for cell in line).rstrip() for line in summary.lines(status, width, _MOST_HEADLINES)]
    tables = [make(status, width) for make in TABLES.values()]
    return "\n".join([*head, *(line for table in tables if table.lines for line in ("", *_table(table, width)))])


def _table(table: Table, width: int) -> Iterator[str]:
    lines = table.lines[:_MOST_EVENTS] if table.name == "events" else table.lines
    rows = [tuple(map(Cell, table.heads)), *(line.cells for line in lines)]
    widths = [max(len(row[at].text) for row in rows) for at in range(len(table.heads))]
    for row in rows:
        cells = zip(row, widths, table.right, strict=True)
        yield "  ".join(cell.text.rjust(most) if right else cell.text.ljust(most) for cell, most, right in cells)[
            :width
        ].rstrip()
