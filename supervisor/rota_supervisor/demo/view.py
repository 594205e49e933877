"""What the demo shows while it runs: a live picture in a terminal, plain lines elsewhere."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rota.printable import printable
from rota_supervisor.demo.numbers import LagNumbers, Numbers
from rota_supervisor.demo.scenario import TIERS
from rota_supervisor.demo.verdict import Check
from rota_supervisor.exporter import page

STATUS_EVERY_SECONDS: Final = 2.0
_HAPPENINGS_KEPT: Final = 12
_PICTURE_LINES: Final = 15  # of everything above what happened; a picture higher than the terminal cannot be drawn over


@dataclass(frozen=True, slots=True)
class Scene:
    """One moment of the demo. `numbers` is None until the fleet has answered, `lags` those of the last seconds."""

    stage: str
    elapsed_seconds: float
    accepted: int
    numbers: Numbers | None = None
    lags: Mapping[str, LagNumbers] = field(default_factory=dict)


class View(Protocol):
    """Shows scenes and says what happened. Leave it before anything else is written."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def happened(self, elapsed_seconds: float, what: str) -> None:
        """Say what just happened."""

    def show(self, scene: Scene) -> None:
        """Show a moment."""


def view_for(stream: TextIO, *, dumb: bool, no_color: bool) -> View:
    """The live picture for a terminal that can draw it, else plain lines. `dumb`: the terminal cannot."""
    if stream.isatty() and not dumb:
        return LiveView(Console(file=stream, no_color=no_color, highlight=False))
    return PlainView(Console(file=stream, no_color=True, highlight=False, soft_wrap=True, force_terminal=False))


class PlainView:
    """A line for what happens, and one for how it goes now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def happened(self, elapsed_seconds: float, what: str) -> None:
        """One line."""
        self._console.print(f"{elapsed_seconds:5.1f} s  {printable(what)}", markup=False)

    def show(self, scene: Scene) -> None:
        """One line every two seconds."""
        if scene.numbers is None or scene.elapsed_seconds < self._next_seconds:
            return
        self._next_seconds = scene.elapsed_seconds + STATUS_EVERY_SECONDS
        self._console.print(f"{scene.elapsed_seconds:5.1f} s  {status_line(scene.numbers, scene.lags)}", markup=False)


def status_line(numbers: Numbers, lags: Mapping[str, LagNumbers]) -> str:
    """The fleet in a line."""
    queues = numbers.queues.values()
    waiting = [f"{word} {_sum(counts)}" for word, counts in (
        ("ready", [queue.ready for queue in queues]),
        ("scheduled", [queue.scheduled for queue in queues]),
        ("in flight", [queue.inflight for queue in queues]),
    )]  # fmt: skip
    late = ", ".join(f"{name} {duration(lag.p99)}" for name, lag in lags.items() if lag.p99 is not None)
    return f"{numbers.running} workers, {', '.join(waiting)}, done {numbers.done:,}; lag p99: {late or 'none'}"


def _sum(counts: Iterable[int | None]) -> str:
    known = [count for count in counts if count is not None]
    return f"{sum(known):,}" if known else "?"


class LiveView:
    """A picture that is drawn over itself, and stays as it was last when it is left."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._happenings: deque[Text] = deque(maxlen=_HAPPENINGS_KEPT)
        self._scene = Scene("starting", 0.0, 0)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def happened(self, elapsed_seconds: float, what: str) -> None:
        """Add it to what is shown below the numbers."""
        line = Text.assemble((f"{elapsed_seconds:5.1f} s", "dim"), f"  {printable(what)}")
        line.no_wrap, line.overflow = True, "ellipsis"
        self._happenings.append(line)
        self._draw()

    def show(self, scene: Scene) -> None:
        """Draw a moment."""
        self._scene = scene
        self._draw()

    def _draw(self) -> None:
        room = max(1, self._live.console.height - _PICTURE_LINES)
        happenings = list(self._happenings)[-room:]
        self._live.update(Group(*_picture(self._scene), Text(), *happenings), refresh=True)


def _picture(scene: Scene) -> list[RenderableType]:
    head = Text.assemble(("Rota demo", "bold"), f"  {scene.stage}, {scene.elapsed_seconds:.0f} s")
    if scene.numbers is None:
        return [head]
    return [head, Text(), _queues(scene.numbers, scene.lags), Text(), *_fleet(scene, scene.numbers)]


def _queues(numbers: Numbers, lags: Mapping[str, LagNumbers]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")  # 77 columns
    for head in ("tier", "queue"):
        table.add_column(head)
    for head in ("ready", "scheduled", "in flight", "done", "lag p50", "lag p99"):
        table.add_column(head, justify="right", min_width=max(8, len(head)))
    for tier, names in enumerate(TIERS, start=1):
        for name in names:
            table.add_row(str(tier) if name == names[0] else "", name, *_queue(numbers, lags, name))
    return table


def _queue(numbers: Numbers, lags: Mapping[str, LagNumbers], name: str) -> list[str]:
    queue, lag = numbers.queues[name], lags.get(name, LagNumbers(None, None))
    counts = (queue.ready, queue.scheduled, queue.inflight, queue.done)
    return [*("?" if count is None else f"{count:,}" for count in counts), duration(lag.p50), duration(lag.p99)]


def _fleet(scene: Scene, numbers: Numbers) -> list[Text]:
    pool = "green" if numbers.running == numbers.desired else "yellow"
    restarts = ", ".join(f"{count} {role} ({why})" for (role, why), count in sorted(numbers.restarts.items()))
    return [
        Text.assemble("workers   ", (f"{numbers.running} of {numbers.desired}", pool), f" run, {numbers.busy} busy"),
        Text(f"restarts  {restarts or 'none'};  tasks recovered {numbers.recovered}"),
        Text(f"tasks     {scene.accepted:,} accepted, {numbers.done:,} done"),
    ]


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
    return "-" if value is None else page.seconds(value)
