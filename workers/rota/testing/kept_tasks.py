"""The state of tasks in the stand-in for the server: which tasks are live, which unique keys are held, and the state
and outcome of each task. For a single task, this module does the same as the Lua scripts, but it has no lanes, owners
or leases."""

import heapq
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from rota.child.slot_record import TaskRecord
from rota.durations import MICROSECONDS
from rota.protocol.body import decode_body
from rota.protocol.entry import Entry, Kind
from rota.protocol.new_tasks import FRONT, Enqueued, NewTask
from rota.protocol.outcome import (
    DeadOutcome,
    Done,
    EndedEarly,
    Release,
    RetryOutcome,
    parse_ended,
    ran_by,
)
from rota.protocol.replies import CancelStatus
from rota.protocol.task_states import State
from rota.protocol.views import TaskState

if TYPE_CHECKING:
    from rota.worker.attempt import Attempt

Accepted = Callable[[str, Sequence[tuple[NewTask, "KeptTask"]]], None]
"""A function that takes a namespace and the tasks that one call has enqueued there."""

OWNER = "testing:0:1"  # name of the owner that runs tasks in tests: node, slot and nonce
_NO_RUN = b" 0 0"


@dataclass(slots=True)
class KeptTask:
    """A task that was accepted."""

    namespace: str
    body: bytes
    entry: Entry
    is_front: bool  # whether the task was enqueued at the front
    state: State
    attempt_records: list[bytes] = field(default_factory=list)  # the records of its failed attempts
    ended: TaskState | None = None  # the final state if the task has ended or is dead, otherwise None
    # The record in which the worker's code shows the running task, or None if the task has not been run yet.
    record: TaskRecord | None = None

    @property
    def is_live(self) -> bool:
        """Whether the task still holds its id, so that the id cannot be enqueued again. A dead task holds its id until
        the task is revived or purged."""
        return self.ended is None or self.state is State.DEAD

    def found(self) -> TaskState:
        """Return what the server would report about the task."""
        return self._live_state() if self.ended is None else self.ended

    def _live_state(self) -> TaskState:
        entry = self.entry
        return TaskState(
            self.state,
            entry.queue,
            entry.due_us,
            entry.failures,
            body=self.body,
            attempt_records=b"\n".join(self.attempt_records),
            kind=entry.kind.label,
            ready_us=entry.ready_us,
        )


class KeptTasks:
    """The tasks of all namespaces. `now_us` returns the current time. `on_end` is called for each task that has ended
    or is dead."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us
        self.on_end: Callable[[KeptTask, State], None] = lambda _kept, _how: None
        self._tasks: dict[tuple[str, str], KeptTask] = {}
        self._keys: dict[tuple[str, str], tuple[KeptTask, float]] = {}

    def clear(self) -> None:
        """Remove all tasks and keys."""
        self._tasks.clear()
        self._keys.clear()

    def accept(self, namespace: str, new: NewTask, kind: Kind | None = None) -> tuple[Enqueued, KeptTask | None]:
        """Accept a task. Returns the server's reply, and the accepted task, or None if it is a duplicate. `kind` is
        given only for a task that was not enqueued by a call, for example a periodic task."""
        live = self.find(namespace, new.id)
        if live is not None and live.is_live:
            return Enqueued(duplicate=True), None
        if holder := self._holder(namespace, new.unique_key):
            return Enqueued(duplicate=True, holder=holder), None
        now_us = self.now_us()
        kept = KeptTask(namespace, new.body, _new_entry(new, kind, now_us), new.due.endswith(FRONT), State.READY)
        if kept.entry.due_us > now_us:
            kept.state = State.SCHEDULED
        self._tasks[namespace, new.id] = kept
        if new.unique_key:
            until_us = now_us + new.hold_ms * 1000 if new.hold_ms else float("inf")
            self._keys[namespace, new.unique_key] = kept, until_us
        return Enqueued(), kept

    def find(self, namespace: str, task_id: str) -> KeptTask | None:
        """Return the latest task that was accepted with this id, or None if there is none."""
        return self._tasks.get((namespace, task_id))

    def state_of(self, namespace: str, task_id: str) -> TaskState:
        """Return the state of the task with this id."""
        kept = self.find(namespace, task_id)
        return TaskState(State.UNKNOWN) if kept is None else kept.found()

    def promote(self, kept: KeptTask) -> None:
        """Make a task ready. If the task was due in the future, it is due now instead."""
        kept.state = State.READY
        now_us = self.now_us()
        self._become(kept, due_us=min(kept.entry.due_us, now_us), ready_us=now_us)

    def cancel(self, namespace: str, task_id: str) -> CancelStatus:
        """Cancel a task: end the task if it is waiting, or notify it if it is running."""
        kept = self.find(namespace, task_id)
        if kept is None or not kept.is_live:
            return CancelStatus.UNKNOWN
        if kept.state is State.DEAD:
            return CancelStatus.DEAD
        if kept.state is State.RUNNING and kept.record is not None:
            kept.record.cancelled = kept.record.number
            return CancelStatus.RUNNING
        # `lua/cancel.lua` does not know the times of ready tasks, so the entry is stored without these times here too.
        due_us = kept.entry.due_us if kept.state is State.SCHEDULED else 0
        self._become(kept, due_us=due_us, ready_us=0)
        self._end(kept, State.CANCELLED, _NO_RUN + ran_by(0, decode_body(kept.body).name), "-")
        return CancelStatus.CANCELLED

    def settle(self, kept: KeptTask, attempt: "Attempt") -> None:
        """Apply the outcome of an attempt, as `lua/shared/settle.lua` does."""
        run = attempt.settlement().run
        outcome = attempt.outcome
        match outcome:
            case Done():
                self._end(kept, State.DONE, run, result=outcome.result if outcome.result_ttl_ms else None)
            case EndedEarly(label=label):
                self._end(kept, State(label), run)
            case RetryOutcome(delay_us, failed):
                self._fail(kept, failed, State.SCHEDULED)
                self._become(kept, kind=Kind.RETRY, due_us=self.now_us() + delay_us, ready_us=0)
            case DeadOutcome(record):
                self._fail(kept, record, State.DEAD)
                self._end_dead(kept)
            case Release():
                kept.state = State.READY
            case _:
                assert_never(outcome)

    def _fail(self, kept: KeptTask, record: bytes, state: State) -> None:
        kept.attempt_records.append(record)
        kept.state = state
        self._become(kept, failures=kept.entry.failures + 1)

    def _become(self, kept: KeptTask, **changes: Any) -> None:
        kept.entry = _written(kept.entry._replace(**changes))

    def _end_dead(self, kept: KeptTask) -> None:
        entry = kept.entry
        self._free_keys(kept)
        kept.ended = TaskState(
            State.DEAD,
            entry.queue,
            entry.due_us,
            entry.failures,
            body=kept.body,
            attempt_records=b"\n".join(kept.attempt_records),
            ended_us=self.now_us(),
            kind=entry.kind.label,
            ready_us=entry.ready_us,
        )
        self.on_end(kept, State.DEAD)

    def _end(self, kept: KeptTask, how: State, run: bytes, owner: str = OWNER, result: bytes | None = None) -> None:
        # Without a record of the run, the server would not remember the end of the task.
        kept.state = how if run else State.UNKNOWN
        self._free_keys(kept)
        kept.ended = TaskState(kept.state, result=result)
        if run:
            head = f"{how} {self.now_us()} {owner} ".encode()
            record = b"\n".join([head + kept.entry.text + run, *kept.attempt_records])
            kept.ended = TaskState(how, result=result, ended=parse_ended(record))
        self.on_end(kept, how)

    def _free_keys(self, kept: KeptTask) -> None:
        self._keys = {key: held for key, held in self._keys.items() if held[0] is not kept}

    def _holder(self, namespace: str, key: str) -> str:
        held = self._keys.get((namespace, key)) if key else None
        return held[0].entry.id if held is not None and self.now_us() < held[1] else ""


class WaitingTasks:
    """The tasks that later calls of `drain` can run: the ready tasks in order, and the tasks that are not due yet."""

    def __init__(self, kept_tasks: KeptTasks) -> None:
        self._kept_tasks = kept_tasks
        self._ready: deque[KeptTask] = deque()
        self._scheduled: list[_Due] = []
        self._numbers = count()

    def clear(self) -> None:
        """Remove all tasks."""
        self._ready.clear()
        self._scheduled.clear()

    def add(self, kept: KeptTask) -> None:
        """Add a task at the end, or at the front if it was enqueued with `front`."""
        if kept.state is State.SCHEDULED:
            heapq.heappush(self._scheduled, _Due(kept.entry.due_us, next(self._numbers), kept))
        elif kept.is_front:
            self._ready.appendleft(kept)
        else:
            self._ready.append(kept)

    def next(self, now_us: int) -> KeptTask | None:
        """Remove and return the next task that is ready at this time, or None if there is none."""
        while self._scheduled and self._scheduled[0].due_us <= now_us:
            kept = heapq.heappop(self._scheduled).kept
            if kept.state is State.SCHEDULED:
                self._kept_tasks.promote(kept)
                self.add(kept)
        while self._ready:
            kept = self._ready.popleft()
            if kept.state is State.READY:  # if it is not ready, it was cancelled while it waited
                return kept
        return None

    def put_back(self, kept: KeptTask) -> None:
        """Put a task back at the front, so that it is next."""
        self._ready.appendleft(kept)


class _Due(NamedTuple):
    due_us: int
    number: int
    kept: KeptTask


def _new_entry(new: NewTask, kind: Kind | None, now_us: int) -> Entry:
    due_us = _due_us(new.due, now_us)
    waits = due_us > now_us
    came = Kind.DELAYED if waits else Kind.IMMEDIATE
    return _written(Entry(b"", new.id, new.queue, kind or came, due_us, 0 if waits else now_us, 0, 0, 0, 0, "-"))


def _due_us(due: str, now_us: int) -> int:
    text = due.removesuffix(FRONT)
    if not text:
        return now_us
    if text[0] == "+":
        return now_us + int(text[1:])
    at_us = int(text[1:])
    # The application may have computed this time from the real clock, which has advanced since the test's clock was
    # set. So a time before the real time counts as now.
    return now_us if at_us <= time.time() * MICROSECONDS else at_us


def _written(entry: Entry) -> Entry:
    """Return a copy of the entry, with its `text` computed from its other fields."""
    kind = entry.kind.value
    counters = f"{entry.failures} 0 0 0 -"
    text = f"{entry.id} {entry.queue} {kind} {entry.due_us} {entry.ready_us} {counters}"
    return entry._replace(text=text.encode())
