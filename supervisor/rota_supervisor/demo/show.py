"""The run of the demo: one loop that produces, looks, acts and draws, until all is done and proved."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, assert_never

import rota
from rota.durations import seconds
from rota_supervisor.demo import scenario
from rota_supervisor.demo.fleet import READY_SECONDS, Fleet
from rota_supervisor.demo.interrupts import Interrupts
from rota_supervisor.demo.journal import ACCEPTED_FILE, RUNS_FILE, Accepted, JournalRuns, Mark, append, read_accepted
from rota_supervisor.demo.numbers import LagNumbers, Numbers, RecentLag, lag_of
from rota_supervisor.demo.scenario import Act, Cue
from rota_supervisor.demo.verdict import Check, Evidence, Kill, judge
from rota_supervisor.demo.view import Scene, View

_TICK_SECONDS: Final = 0.05
_SHOW_SECONDS: Final = 0.5
_ACT_SECONDS: Final = 20.0  # for what takes a fraction of a second on a machine that is not overloaded
_DRAIN_SECONDS: Final = 60.0
_IDLE_SECONDS: Final = 5.0  # a fleet that has had nothing for so long will not run what is missing
_SETTLE_SECONDS: Final = 10.0  # from the last line in the journal to books that say so
_DYING_SECONDS: Final = 2.0
_INTO_TASK_SECONDS: Final = 0.3

Acting = Generator[None, None, None]  # an act: it yields while it waits


class Interrupted(Exception):
    """Somebody asked the demo to leave."""


class NotReady(Exception):
    """The fleet runs and did not become ready."""


@dataclass(slots=True)
class Outcome:
    """What a run came to: the checks, and the lag of each queue over all of it."""

    checks: list[Check] = field(default_factory=list)
    lags: dict[str, LagNumbers] = field(default_factory=dict)
    accepted: int = 0


class Producer:
    """Enqueues through the public client and writes down what was accepted."""

    def __init__(self, client: rota.Client, fleet: Fleet) -> None:
        self._client = client
        self._journal = fleet.place.folder / ACCEPTED_FILE
        self.ids: set[str] = set()

    def enqueue(self, calls: Iterable[rota.Call[Any]]) -> list[str]:
        """Enqueue calls; answers their ids. Raises RotaError."""
        calls = list(calls)
        sent_at = time.time()
        handles = self._client.enqueue_many(calls) if calls else []
        ids = [handle.id for handle in handles]
        pairs = zip(ids, calls, strict=True)
        append(self._journal, (_accepted(task_id, call, sent_at) for task_id, call in pairs))
        self.ids.update(ids)
        return ids


def _accepted(task_id: str, call: rota.Call[Any], sent_at: float) -> Accepted:
    delay_seconds = 0.0 if call.delay is None else seconds(call.delay, "delay")
    return Accepted(task_id, call.name, call.queue or "", sent_at, delay_seconds)


class Show:
    """One run against one fleet."""

    def __init__(self, fleet: Fleet, producer: Producer, view: View, interrupts: Interrupts, seconds: float) -> None:
        self._fleet = fleet
        self._producer = producer
        self._view = view
        self._interrupts = interrupts
        self._seconds = seconds
        self._runs = JournalRuns(fleet.place.folder / RUNS_FILE)
        self._random = Random(17)  # noqa: S311 - delays, the same in each demo
        self._recent = RecentLag()
        self._numbers: Numbers | None = None
        self._idle_since: float | None = None
        self._shown_at = 0.0
        self._started_at = time.monotonic()
        self._stage = "starting"
        self._kills: list[Kill] = []
        self._checks: list[Check] = []

    def run(self) -> Outcome:
        """Everything from an unready fleet to the verdict.

        Raises Interrupted, FleetEnded, NotReady, or RotaError when the producer is refused.
        """
        self._get_ready()
        try:
            self._produce_and_act()
        except rota.RotaError:
            self._fleet.check(_DYING_SECONDS)  # when it is gone, that is what to say
            raise
        self._drain()
        return self._judge()

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._started_at

    # The stages

    def _get_ready(self) -> None:
        place = self._fleet.place
        self._say(f"starting a Valkey and a fleet of {scenario.WORKERS}, in {place.folder}")
        while not (self._fleet.is_ready() and self._scraped()):
            if self._elapsed > READY_SECONDS:
                raise NotReady(f"the fleet is not ready after {READY_SECONDS:g} s: see {place.log_file}")
            self._wait()
        self._say(f"ready after {self._elapsed:.1f} s; status page: {place.http_url}/")

    def _produce_and_act(self) -> None:
        self._stage = "producing"
        started = self._elapsed
        until = scenario.producing_seconds(self._seconds)
        cues = deque(scenario.cues(self._seconds))
        acting: Acting | None = None
        produced = 0.0
        while (now := self._elapsed - started) < until or cues or acting is not None:
            self._producer.enqueue(scenario.calls_between(produced, now, self._seconds, self._random))
            produced = now
            if acting is None and cues and cues[0].at_seconds <= now:
                acting = self._act(cues.popleft())
            if acting is not None and _is_over(acting):
                acting = None
            self._tick()

    def _drain(self) -> None:
        self._stage = "draining"
        self._say(f"producing ended with {len(self._producer.ids):,} tasks accepted; the fleet works off the rest")
        self._tick_until(lambda: self._runs.done >= self._producer.ids or self._is_idle_for_good(), _DRAIN_SECONDS)
        done = len(self._runs.done)
        self._tick_until(lambda: self._now().is_idle and self._now().done >= done, _SETTLE_SECONDS)
        self._say(f"{done:,} tasks done")

    def _judge(self) -> Outcome:
        accepted = read_accepted(self._fleet.place.folder / ACCEPTED_FILE)
        numbers = self._now()
        checks = judge(Evidence(accepted, self._runs.marks, self._kills, numbers))
        lags = {name: lag_of(queue.lag) for name, queue in numbers.queues.items()}
        return Outcome([*checks, *self._checks], lags, len(accepted))

    # The acts

    def _act(self, cue: Cue) -> Acting:
        match cue.act:
            case Act.FLOOD:
                return self._flood()
            case Act.KILL:
                return self._kill_in_mid_task()
            case Act.GROW:
                return self._resize(scenario.WORKERS, scenario.GROWN_WORKERS)
            case Act.SHRINK:
                return self._resize(scenario.GROWN_WORKERS, scenario.SHRUNK_WORKERS)
            case _:
                assert_never(cue.act)

    def _flood(self) -> Acting:
        ids = self._producer.enqueue(scenario.flood(self._seconds))
        self._say(f"{len(ids):,} sold and expired mails at once; password resets still go first")
        yield

    def _kill_in_mid_task(self) -> Acting:
        for lasting in scenario.VICTIM_SECONDS:
            if start := (yield from self._killed_at_work(lasting)):
                break
        else:
            return self._found("killed in mid-task", ok=False, seen="no worker could be met in the middle of its task")
        killed_at = time.time()
        self._kills.append(Kill(start.pid, start.task_id))
        self._say(f"kill -9 {start.pid}: a worker, in the middle of {start.task}")
        if not (yield from self._until(lambda: len(self._runs.starts(start.task_id)) > 1)):
            return self._found("killed in mid-task", ok=False, seen="its task was not started again")
        again = self._runs.starts(start.task_id)[1]
        seen = f"its task started again {1000 * (again.at - killed_at):.0f} ms later, in worker {again.pid}"
        return self._found("killed in mid-task", ok=True, seen=seen)

    def _killed_at_work(self, seconds: float) -> Generator[None, None, Mark | None]:
        """Kill the worker of a task that takes so long; answers its start, None when it was over before."""
        [task_id] = self._producer.enqueue([scenario.victim(seconds)])
        if not (yield from self._until(lambda: bool(self._runs.starts(task_id)))):
            return None
        start = self._runs.starts(task_id)[0]
        yield from self._until(lambda: time.time() > start.at + _INTO_TASK_SECONDS)
        return start if self._fleet.kill_worker(start.pid, lambda: self._still_runs(task_id)) else None

    def _still_runs(self, task_id: str) -> bool:
        self._runs.read_on()
        return task_id not in self._runs.done

    def _resize(self, before: int, after: int) -> Acting:
        name = f"resized {before} -> {after}"
        self._fleet.resize(after)
        self._say(f"edited rota.toml: workers = {after}, and kill -HUP")
        asked = time.monotonic()
        if (yield from self._until(lambda: self._scraped() and self._now().running == self._now().desired == after)):
            seen = f"{after} workers run {time.monotonic() - asked:.1f} s after the signal"
            return self._found(name, ok=True, seen=seen)
        seen = f"{self._now().running} of {self._now().desired} workers run after {_ACT_SECONDS:g} s"
        return self._found(name, ok=False, seen=seen)

    def _found(self, name: str, *, ok: bool, seen: str) -> None:
        self._checks.append(Check(name, ok, seen))
        self._say(seen)

    def _until(self, condition: Callable[[], bool]) -> Generator[None, None, bool]:
        """Let ticks go by until the condition holds; False when it takes too long."""
        deadline = time.monotonic() + _ACT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                return False
            yield
        return True

    # Ticks

    def _tick_until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            self._tick()

    def _tick(self) -> None:
        self._fleet.check()
        self._runs.read_on()
        now = time.monotonic()
        if now - self._shown_at > _SHOW_SECONDS:
            self._shown_at = now
            self._scraped()
            accepted, lags = len(self._producer.ids), self._recent.by_queue()
            self._view.show(Scene(self._stage, self._elapsed, accepted, self._numbers, lags))
        self._wait()

    def _wait(self) -> None:
        if self._interrupts.wait(_TICK_SECONDS):
            raise Interrupted

    def _scraped(self) -> bool:
        """Look at the fleet's metrics; False when it did not answer, and what it said last still stands."""
        numbers = self._fleet.numbers()
        if numbers is None:
            return False
        self._numbers = numbers
        self._idle_since = (self._idle_since or time.monotonic()) if numbers.is_idle else None
        self._recent.add(time.monotonic(), numbers)
        return True

    def _is_idle_for_good(self) -> bool:
        return self._idle_since is not None and time.monotonic() - self._idle_since > _IDLE_SECONDS

    def _now(self) -> Numbers:
        assert self._numbers is not None, "the fleet has answered before it was called ready"
        return self._numbers

    def _say(self, what: str) -> None:
        self._view.happened(self._elapsed, what)


def _is_over(acting: Acting) -> bool:
    try:
        next(acting)
    except StopIteration:
        return True
    return False
