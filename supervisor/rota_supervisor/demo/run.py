"""The run of the demo: one loop that produces, looks, acts and draws, until all is done and proved."""

import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol, assert_never

import rota
from rota.durations import seconds as in_seconds
from rota_supervisor.demo import journal, scenario
from rota_supervisor.demo.books import FleetBooks, LagNumbers
from rota_supervisor.demo.checks import Check, Evidence, check_run
from rota_supervisor.demo.fleet import READY_SECONDS, Fleet, Interrupts
from rota_supervisor.demo.scenario import Act
from rota_supervisor.exits import ExitCode, Failure

_TICK_SECONDS: Final = 0.05
_SHOW_SECONDS: Final = 0.5
_ACT_SECONDS: Final = 20.0  # for what takes a fraction of a second on a machine that is not overloaded
_DRAIN_SECONDS: Final = 60.0
_IDLE_SECONDS: Final = 5.0  # a fleet that has had nothing for so long will not run what is missing
_SETTLE_SECONDS: Final = 10.0  # from the last line in the journal to books that say so
_DYING_SECONDS: Final = 2.0
_INTO_TASK_SECONDS: Final = 0.3
_OVER: Final = object()

Acting = Generator[None]  # an act: it yields while it waits


class Interrupted(Exception):
    """Somebody asked the demo to leave."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to: the checks, the lag of each queue in its last minutes, and how many tasks it was."""

    checks: list[Check]
    lags: dict[str, LagNumbers]
    accepted: int


class View(Protocol):
    """What shows how the demo goes."""

    def happened(self, elapsed_seconds: float, what: str) -> None: ...

    def show(self, elapsed_seconds: float, books: FleetBooks) -> None: ...


class Demo:
    """One run against one fleet. What it enqueues goes through the public client, and into a journal once accepted."""

    def __init__(self, fleet: Fleet, client: rota.Client, view: View, interrupts: Interrupts, seconds: float) -> None:
        self._fleet = fleet
        self._client = client
        self._view = view
        self._interrupts = interrupts
        self._seconds = seconds
        self._accepted_file = fleet.place.folder / journal.ACCEPTED_FILE
        self._accepted: set[str] = set()
        self._runs = journal.JournalRuns(fleet.place.folder / journal.RUNS_FILE)
        self._random = Random(17)  # noqa: S311 - delays, the same in each demo
        self._books: FleetBooks | None = None
        self._idle_since: float | None = None
        self._shown_at = 0.0
        self._started_at = time.monotonic()
        self._kills: list[journal.Mark] = []
        self._checks: list[Check] = []

    def run(self) -> Outcome:
        """Run everything from an unready fleet to the checks.

        Raises Interrupted, Failure when the fleet ends or is never ready, or RotaError when an enqueue is refused.
        """
        self._get_ready()
        try:
            self._produce_and_act()
        except rota.RotaError:
            self._fleet.check(_DYING_SECONDS)  # when it is gone, that is what to say
            raise
        self._drain()
        return self._outcome()

    # The stages

    def _get_ready(self) -> None:
        place = self._fleet.place
        self._say(f"starting a Valkey and a fleet of {scenario.WORKERS}, in {place.folder}")
        while not (self._fleet.is_ready() and self._looked()):
            if self._elapsed > READY_SECONDS:
                message = f"the fleet is not ready after {READY_SECONDS:g} s: see {place.log_file}"
                raise Failure(ExitCode.NO, message)
            self._wait()
        self._say(f"ready after {self._elapsed:.1f} s; status page: {place.http_url}/")

    def _produce_and_act(self) -> None:
        started = self._elapsed
        until = scenario.producing_seconds(self._seconds)
        acts = self._acts(started)
        is_acting = True
        produced = 0.0
        while (now := self._elapsed - started) < until or is_acting:
            self._enqueue(scenario.calls_between(produced, now, self._seconds, self._random))
            produced = now
            is_acting = next(acts, _OVER) is not _OVER
            self._tick()

    def _drain(self) -> None:
        self._say(f"producing ended with {len(self._accepted):,} tasks accepted; the fleet works off the rest")
        for _ in self._until(lambda: self._runs.done >= self._accepted or self._is_idle_for_good(), _DRAIN_SECONDS):
            self._tick()
        done = len(self._runs.done)
        for _ in self._until(lambda: self._now.is_idle and self._now.done >= done, _SETTLE_SECONDS):
            self._tick()
        self._say(f"{done:,} tasks done")

    def _outcome(self) -> Outcome:
        accepted = journal.read_accepted(self._accepted_file)
        checks = check_run(Evidence(accepted, self._runs.marks, self._kills, self._now))
        lags = {name: queue.lag for name, queue in self._now.queues.items()}
        return Outcome([*checks, *self._checks], lags, len(accepted))

    def _enqueue(self, calls: Iterable[rota.Call[Any]]) -> list[str]:
        """Enqueue calls and write down what was accepted; answers the ids. Raises RotaError."""
        calls = list(calls)
        sent_at = time.time()
        handles = self._client.enqueue_many(calls) if calls else []
        accepted = [
            journal.Accepted(handle.id, call.name, call.queue or "", sent_at, in_seconds(call.delay or 0.0, "delay"))
            for handle, call in zip(handles, calls, strict=True)
        ]
        journal.append(self._accepted_file, accepted)
        ids = [handle.id for handle in handles]
        self._accepted.update(ids)
        return ids

    # The acts

    def _acts(self, started: float) -> Acting:
        for at_seconds, act in scenario.cues(self._seconds):
            while self._elapsed - started < at_seconds:
                yield
            match act:
                case Act.FLOOD:
                    self._flood()
                case Act.KILL:
                    yield from self._kill_in_mid_task()
                case Act.GROW:
                    yield from self._resize(scenario.WORKERS, scenario.GROWN_WORKERS)
                case Act.SHRINK:
                    yield from self._resize(scenario.GROWN_WORKERS, scenario.SHRUNK_WORKERS)
                case _:
                    assert_never(act)

    def _flood(self) -> None:
        ids = self._enqueue(scenario.flood(self._seconds))
        self._say(f"{len(ids):,} sold and expired mails at once; password resets still go first")

    def _kill_in_mid_task(self) -> Acting:
        for lasting in scenario.VICTIM_SECONDS:
            if start := (yield from self._killed_at_work(lasting)):
                break
        else:
            return self._found("killed in mid-task", ok=False, seen="no worker could be met in the middle of its task")
        killed_at = time.time()
        self._kills.append(start)
        self._say(f"kill -9 {start.pid}: a worker, in the middle of {start.task}")
        if not (yield from self._until(lambda: len(self._runs.starts(start.task_id)) > 1)):
            return self._found("killed in mid-task", ok=False, seen="its task was not started again")
        again = self._runs.starts(start.task_id)[1]
        seen = f"its task started again {1000 * (again.at - killed_at):.0f} ms later, in worker {again.pid}"
        return self._found("killed in mid-task", ok=True, seen=seen)

    def _killed_at_work(self, seconds: float) -> Generator[None, None, journal.Mark | None]:
        """Kill the worker of a task that takes so long; answers its start, None when it was over before."""
        [task_id] = self._enqueue([scenario.victim(seconds)])
        if not (yield from self._until(lambda: bool(self._runs.starts(task_id)))):
            return None
        start = self._runs.starts(task_id)[0]
        yield from self._until(lambda: time.time() > start.at + _INTO_TASK_SECONDS)
        return start if self._fleet.kill_worker(start.pid, lambda: self._still_runs(task_id)) else None

    def _still_runs(self, task_id: str) -> bool:
        self._runs.read_on()
        return task_id not in self._runs.done

    def _resize(self, before: int, after: int) -> Acting:
        self._fleet.resize(after)
        self._say(f"edited rota.toml: workers = {after}, and kill -HUP")
        asked = time.monotonic()
        ok = yield from self._until(lambda: self._looked() and self._now.running == self._now.desired == after)
        seen = f"{after} workers run {time.monotonic() - asked:.1f} s after the signal"
        if not ok:
            seen = f"{self._now.running} of {self._now.desired} workers run after {_ACT_SECONDS:g} s"
        self._found(f"resized {before} -> {after}", ok=ok, seen=seen)

    def _found(self, name: str, *, ok: bool, seen: str) -> None:
        self._checks.append(Check(name, ok, seen))
        self._say(seen)

    def _until(self, condition: Callable[[], bool], seconds: float = _ACT_SECONDS) -> Generator[None, None, bool]:
        """Yield until the condition holds; answers False when it takes too long."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            yield
        return True

    # Ticks

    def _tick(self) -> None:
        self._fleet.check()
        self._runs.read_on()
        now = time.monotonic()
        if now - self._shown_at > _SHOW_SECONDS:
            self._shown_at = now
            self._looked()
            self._view.show(self._elapsed, self._now)
        self._wait()

    def _wait(self) -> None:
        if self._interrupts.wait(_TICK_SECONDS):
            raise Interrupted

    def _looked(self) -> bool:
        """Look at the fleet; False when it did not answer, and what it said last still stands."""
        books = self._fleet.books()
        if books is None:
            return False
        self._books = books
        self._idle_since = (self._idle_since or time.monotonic()) if books.is_idle else None
        return True

    def _is_idle_for_good(self) -> bool:
        return self._idle_since is not None and time.monotonic() - self._idle_since > _IDLE_SECONDS

    @property
    def _now(self) -> FleetBooks:
        assert self._books is not None, "the fleet has answered before it was called ready"
        return self._books

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._started_at

    def _say(self, what: str) -> None:
        self._view.happened(self._elapsed, what)
