"""What the demo says, in lines: what happens while it runs, and at its end what was proved."""

from collections.abc import Iterable, Mapping
from typing import Final

from rich.console import Console
from rich.text import Text

from rota.durations import in_words
from rota.printable import printable
from rota_supervisor.demo.books import FleetBooks, LagNumbers
from rota_supervisor.demo.checks import Check

STATUS_EVERY_SECONDS: Final = 2.0


class PlainLines:
    """Says what happens at once, and how it goes every two seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_seconds = 0.0

    def happened(self, elapsed_seconds: float, what: str) -> None:
        """Say what just happened."""
        self._console.print(f"{elapsed_seconds:5.1f} s  {printable(what)}", markup=False, soft_wrap=True)

    def show(self, elapsed_seconds: float, books: FleetBooks) -> None:
        """Say how it goes, if it is time to."""
        if elapsed_seconds >= self._next_seconds:
            self._next_seconds = elapsed_seconds + STATUS_EVERY_SECONDS
            self._console.print(f"{elapsed_seconds:5.1f} s  {_status_line(books)}", markup=False, soft_wrap=True)


def _status_line(books: FleetBooks) -> str:
    queues = books.queues.values()
    ready = _sum(queue.ready for queue in queues)
    scheduled = _sum(queue.scheduled for queue in queues)
    inflight = _sum(queue.inflight for queue in queues)
    late = ", ".join(f"{name} {_duration(each.lag.p99)}" for name, each in books.queues.items() if each.lag.p99)
    counts = f"ready {ready}, scheduled {scheduled}, in flight {inflight}, done {books.done:,}"
    return f"{books.running} workers, {counts}; lag p99: {late or 'none'}"


def _sum(counts: Iterable[int | None]) -> str:
    known = [count for count in counts if count is not None]
    return f"{sum(known):,}" if known else "?"


def show_checks(console: Console, checks: Iterable[Check]) -> None:
    """What was proved, a line each."""
    for check in checks:
        word = Text("ok    ", "green") if check.ok else Text("FAILED", "bold red")
        console.print(Text.assemble("  ", word, f"  {check.name:<20} {printable(check.seen)}"), soft_wrap=True)


def show_lags(console: Console, lags: Mapping[str, LagNumbers]) -> None:
    """The lag of the run by queue."""
    console.print(f"\n  {'lag of the last minutes':<26}{'p50':>10}{'p99':>12}", soft_wrap=True)
    for name, lag in lags.items():
        console.print(f"  {name:<26}{_duration(lag.p50):>10}{_duration(lag.p99):>12}", soft_wrap=True)


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else in_words(seconds)
