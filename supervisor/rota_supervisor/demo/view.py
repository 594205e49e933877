"""What the demo shows while it runs: a live picture in a terminal, plain lines elsewhere."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rota.durations import in_words
from rota.printable import printable
from rota_supervisor.demo.checks import Check
from rota_supervisor.demo.numbers import LagNumbers, Numbers
from rota_supervisor.demo.scenario import TIERS

STATUS_EVERY_SECONDS: Final = 2.0
_EVENTS_KEPT: Final = 12
_PICTURE_LINES: Final = 15  # of everything above the events; a picture higher than the terminal cannot be drawn over


@dataclass(frozen=True, slots=True)
class DemoProgress:
    """How far the demo is. `numbers` is None until the fleet has answered, `lags` those of the last seconds."""

    stage: str
    elapsed_seconds: float
    accepted: int
    numbers: Numbers | None = None
    lags: Mapping[str, LagNumbers] = field(default_factory=dict)


class PlainView:
    """Shows progress and events, as lines. Leave it before anything else is written."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def happened(self, elapsed_seconds: float, what: str) -> None:
        """Say what just happened."""
        self._console.print(f"{elapsed_seconds:5.1f} s  {printable(what)}", markup=False)

    def show(self, progress: DemoProgress) -> None:
        """Show the progress, every two seconds."""
        now = progress.elapsed_seconds
        if progress.numbers is not None and now >= self._next_seconds:
            self._next_seconds = now + STATUS_EVERY_SECONDS
            self._console.print(f"{now:5.1f} s  {_status_line(progress.numbers, progress.lags)}", markup=False)


class LiveView(PlainView):
    """The same as a picture that is drawn over itself, and stays as it was last when it is left."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False)
        self._events: deque[Text] = deque(maxlen=_EVENTS_KEPT)
        self._progress = DemoProgress("starting", 0.0, 0)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    def happened(self, elapsed_seconds: float, what: str) -> None:
        line = Text.assemble((f"{elapsed_seconds:5.1f} s", "dim"), f"  {printable(what)}")
        line.no_wrap, line.overflow = True, "ellipsis"
        self._events.append(line)
        self.show(self._progress)

    def show(self, progress: DemoProgress) -> None:
        self._progress = progress
        room = max(1, self._console.height - _PICTURE_LINES)
        self._live.update(Group(*_picture(progress), Text(), *list(self._events)[-room:]), refresh=True)


def view_for(stream: TextIO, *, dumb: bool, no_color: bool) -> PlainView:
    """The live picture for a terminal that can draw it, else plain lines. `dumb`: the terminal cannot."""
    if stream.isatty() and not dumb:
        return LiveView(Console(file=stream, no_color=no_color, highlight=False))
    return PlainView(Console(file=stream, no_color=True, highlight=False, soft_wrap=True, force_terminal=False))


def _status_line(numbers: Numbers, lags: Mapping[str, LagNumbers]) -> str:
    queues = numbers.queues.values()
    ready = _sum(queue.ready for queue in queues)
    scheduled = _sum(queue.scheduled for queue in queues)
    inflight = _sum(queue.inflight for queue in queues)
    late = ", ".join(f"{name} {duration(lag.p99)}" for name, lag in lags.items() if lag.p99 is not None)
    counts = f"ready {ready}, scheduled {scheduled}, in flight {inflight}, done {numbers.done:,}"
    return f"{numbers.running} workers, {counts}; lag p99: {late or 'none'}"


def _sum(counts: Iterable[int | None]) -> str:
    known = [count for count in counts if count is not None]
    return f"{sum(known):,}" if known else "?"


def _picture(progress: DemoProgress) -> list[RenderableType]:
    head = Text.assemble(("Rota demo", "bold"), f"  {progress.stage}, {progress.elapsed_seconds:.0f} s")
    numbers = progress.numbers
    if numbers is None:
        return [head]
    pool = "green" if numbers.running == numbers.desired else "yellow"
    restarts = ", ".join(f"{count} {role} ({why})" for (role, why), count in sorted(numbers.restarts.items()))
    return [
        head,
        Text(),
        _queues(numbers, progress.lags),
        Text(),
        Text.assemble("workers   ", (f"{numbers.running} of {numbers.desired}", pool), f" run, {numbers.busy} busy"),
        Text(f"restarts  {restarts or 'none'};  tasks recovered {numbers.recovered}"),
        Text(f"tasks     {progress.accepted:,} accepted, {numbers.done:,} done"),
    ]


def _queues(numbers: Numbers, lags: Mapping[str, LagNumbers]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")  # 77 columns
    for head in ("tier", "queue"):
        table.add_column(head)
    for head in ("ready", "scheduled", "in flight", "done", "lag p50", "lag p99"):
        table.add_column(head, justify="right", min_width=max(8, len(head)))
    for tier, names in enumerate(TIERS, start=1):
        for name in names:
            queue, lag = numbers.queues[name], lags.get(name, LagNumbers())
            counts = (queue.ready, queue.scheduled, queue.inflight, queue.done)
            cells = ("?" if count is None else f"{count:,}" for count in counts)
            table.add_row(str(tier) if name == names[0] else "", name, *cells, duration(lag.p50), duration(lag.p99))
    return table


def show_checks(console: Console, checks: Iterable[Check]) -> None:
    """What was proved, a line each."""
    for check in checks:
        word = Text("ok    ", "green") if check.ok else Text("FAILED", "bold red")
        console.print(Text.assemble("  ", word, f"  {check.name:<20} {printable(check.seen)}"), soft_wrap=True)


def show_lags(console: Console, lags: Mapping[str, LagNumbers]) -> None:
    """The lag of the whole run by queue."""
    console.print(f"\n  {'lag over the whole run':<26}{'p50':>10}{'p99':>12}", soft_wrap=True)
    for name, lag in lags.items():
        console.print(f"  {name:<26}{duration(lag.p50):>10}{duration(lag.p99):>12}", soft_wrap=True)


def duration(value: float | None) -> str:
    """Seconds for people, in letters that every terminal has."""
    return "-" if value is None else in_words(value)
