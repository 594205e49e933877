"""The demo in a terminal: `rota top` of its fleet, with what the demo does as the first line and among the events."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from textual import work

import rota
from rota_supervisor.demo.books import FleetBooks
from rota_supervisor.demo.fleet import Fleet, Interrupts
from rota_supervisor.demo.run import Demo, Outcome
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.node_http import NodeSilent
from rota_supervisor.top.top_app import Top


class Acts:
    """What the demo did, for the picture and for the lines that are left when it is gone."""

    def __init__(self) -> None:
        self.done: list[tuple[float, float, str]] = []  # Unix time, seconds since the start, words

    def happened(self, elapsed_seconds: float, what: str) -> None:
        """Take down what just happened."""
        self.done.append((time.time(), elapsed_seconds, what))

    def show(self, elapsed_seconds: float, books: FleetBooks) -> None:
        """Nothing: the picture shows how it goes."""

    def beside(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the fleet says with what the demo did."""
        events = [*(status["events"] or ()), *self._events()]
        newest = [{"level": "good", "text": f"demo: {self.done[-1][2]}", "where": "fleet"}] if self.done else []
        return {
            **status,
            "headlines": [*newest, *status["headlines"]],
            "events": sorted(events, key=lambda event: float(event["at"])),
        }

    def _events(self) -> Iterator[dict[str, Any]]:
        for number, (at, _, what) in enumerate(self.done, 1):
            # Events of the fleet are numbered from 1 on.
            yield {"n": -number, "at": at, "level": "info", "event": "demo", "text": what, "fields": {}}


class LiveView(Top):
    """Runs the demo in a thread while it shows its fleet, and leaves when that has ended."""

    def __init__(self, fleet: Fleet, client: rota.Client, interrupts: Interrupts, seconds: float) -> None:
        self._acts = Acts()
        super().__init__(lambda: self._acts.beside(_status_of(fleet)), client)
        self._demo = Demo(fleet, client, self._acts, interrupts, seconds)
        self._interrupts = interrupts
        self._outcome: Callable[[], Outcome] | None = None

    def outcome(self) -> Outcome:
        """Show the picture until the demo has ended; answers what came of it, or raises what it raised. Raises Failure
        when the picture failed, which Textual has said on standard error."""
        self.run()
        if self._outcome is None or self.return_code:
            raise Failure(ExitCode.NO, "the picture of the demo failed: with TERM=dumb it is told in lines")
        return self._outcome()

    def lines(self) -> Iterator[tuple[float, str]]:
        """What the demo did, with seconds since its start."""
        return ((elapsed, what) for _, elapsed, what in self._acts.done)

    def on_mount(self) -> None:
        self._perform()

    @work(thread=True, exit_on_error=False)
    def _perform(self) -> None:
        try:
            outcome = self._demo.run()
            self._outcome = lambda: outcome
        except BaseException as error:  # noqa: BLE001 - raised again by `outcome`, in the main thread
            self._outcome = _raising(error)
        with contextlib.suppress(RuntimeError):  # the picture has failed, and is gone
            self.call_from_thread(self.exit)

    def leave(self) -> None:
        """End the demo, which ends the picture."""
        self._interrupts.ring()

    def listen_for_signals(self) -> None:
        """Nothing: the demo hears them."""

    def on_unmount(self) -> None:
        if self._outcome is None:
            self._interrupts.ring()


def _raising(error: BaseException) -> Callable[[], Outcome]:
    def outcome() -> Outcome:
        raise error

    return outcome


def _status_of(fleet: Fleet) -> Mapping[str, Any]:
    status = fleet.status()
    if status is None:
        raise NodeSilent("the fleet does not answer yet")
    return status
