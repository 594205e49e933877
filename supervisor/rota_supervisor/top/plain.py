"""`rota top --once`: the same as text, for a pipe, a ticket, or a terminal where Textual is not installed."""

import textwrap
from collections.abc import Iterator

from rota_supervisor.top import summary
from rota_supervisor.top.tables import Row, Table
from rota_supervisor.top.views import TABLES

_MOST_HEADLINES = 20
_MOST_EVENTS = 10


def plain(status: Row, width: int) -> str:
    """Return all that is known, as text of lines of about `width` columns."""
    said = ("".join(cell.text for cell in line) for line in summary.lines(status, width, _MOST_HEADLINES))
    head = [line for each in said for line in textwrap.wrap(each, width, drop_whitespace=False)]
    tables = [make(status).fitted(width) for make in TABLES.values()]
    return "\n".join([*head, *(line for table in tables if table.lines for line in ("", *_table(table, width)))])


def _table(table: Table, width: int) -> Iterator[str]:
    lines = table.lines[:_MOST_EVENTS] if table.name == "events" else table.lines
    for row in (table.heads, *([cell.text for cell in line.cells] for line in lines)):
        cells = zip(row, table.widths, table.right, strict=True)
        yield "  ".join(text.rjust(most) if right else text.ljust(most) for text, most, right in cells)[:width].rstrip()
