"""What the server would know of each task: which are live, which unique keys are held, how tasks stand and ended. What
the scripts do to one task is done here to one, without lanes, owners and leases."""

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
    CancelledOutcome,
    DeadOutcome,
    Done,
    Expired,
    Release,
    RetryOutcome,
    parse_ended,
    ran_by,
)
from rota.protocol.replies import CancelWord
from rota.protocol.task_states import State
from rota.protocol.views import TaskState

if TYPE_CHECKING:
    from rota.worker.attempt import Attempt

Accepted = Callable[[str, Sequence[tuple[NewTask, "KeptTask"]]], None]
"""Takes the tasks of one call that were accepted, with their namespace."""

OWNER = "testing:0:1"  # node, slot and life of what runs tasks in tests
_NO_RUN = b" 0 0"


@dataclass(slots=True)
class KeptTask:
    """A task that was accepted. `state`: where it stands. `ended`: what is known once it has ended, is dead, or
    unknown. `record`: where a worker's code says what it runs, once it was run."""

    namespace: str
    body: bytes
    entry: Entry
    is_front: bool
    state: State
    accounts: list[bytes] = field(default_factory=list)
    ended: TaskState | None = None
    record: TaskRecord | None = None

    @property
    def is_live(self) -> bool:
        """Whether its id is taken: a dead task is kept until somebody revives or purges it."""
        return self.ended is None or self.state is State.DEAD

    def found(self) -> TaskState:
        """What the server would answer about it."""
        return self._standing() if self.ended is None else self.ended

    def _standing(self) -> TaskState:
        entry = self.entry
        return TaskState(
            self.state,
            entry.queue,
            entry.due_us,
            entry.failures,
            body=self.body,
            accounts=b"\n".join(self.accounts),
            kind=entry.kind.label,
            ready_us=entry.ready_us,
        )


class Books:
    """The tasks of all namespaces, at the time that `now_us` returns. `on_end` is told of each that has ended, or is
    dead."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us
        self.on_end: Callable[[KeptTask, State], None] = lambda _kept, _how: None
        self._tasks: dict[tuple[str, str], KeptTask] = {}
        self._keys: dict[tuple[str, str], tuple[KeptTask, float]] = {}

    def clear(self) -> None:
        """Forget all."""
        self._tasks.clear()
        self._keys.clear()

    def accept(self, namespace: str, new: NewTask, kind: Kind | None = None) -> tuple[Enqueued, KeptTask | None]:
        """Take a task; None with the word when it is a duplicate. `kind`: of one that no call enqueued."""
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
        """The task of that id that was accepted last."""
        return self._tasks.get((namespace, task_id))

    def state_of(self, namespace: str, task_id: str) -> TaskState:
        """Where an id stands."""
        kept = self.find(namespace, task_id)
        return TaskState(State.UNKNOWN) if kept is None else kept.found()

    def promote(self, kept: KeptTask) -> None:
        """Its due time has come, or is not waited for."""
        kept.state, now_us = State.READY, self.now_us()
        self._become(kept, due_us=min(kept.entry.due_us, now_us), ready_us=now_us)

    def cancel(self, namespace: str, task_id: str) -> CancelWord:
        """End one that waits; tell one that runs."""
        kept = self.find(namespace, task_id)
        if kept is None or not kept.is_live:
            return CancelWord.UNKNOWN
        if kept.state is State.DEAD:
            return CancelWord.DEAD
        if kept.state is State.RUNNING and kept.record is not None:
            kept.record.cancelled = kept.record.number
            return CancelWord.RUNNING
        # As `lua/cancel.lua` finds it: of what is ready it knows no times.
        due_us = kept.entry.due_us if kept.state is State.SCHEDULED else 0
        self._become(kept, due_us=due_us, ready_us=0)
        self._end(kept, State.CANCELLED, _NO_RUN + ran_by(0, decode_body(kept.body).name), "-")
        return CancelWord.CANCELLED

    def settle(self, kept: KeptTask, attempt: "Attempt") -> None:
        """What an attempt came to, as `lua/shared/settle.lua` has it."""
        account, outcome = attempt.settlement().account, attempt.outcome
        match outcome:
            case Done():
                self._end(kept, State.DONE, account, result=outcome.result if outcome.result_ttl_ms else None)
            case CancelledOutcome():
                self._end(kept, State.CANCELLED, account)
            case Expired():
                self._end(kept, State.EXPIRED, account)
            case RetryOutcome(delay_us, failed):
                self._fail(kept, failed, State.SCHEDULED)
                self._become(kept, kind=Kind.RETRY, due_us=self.now_us() + delay_us, ready_us=0)
            case DeadOutcome(epitaph):
                self._fail(kept, epitaph, State.DEAD)
                self._end_dead(kept)
            case Release():
                kept.state = State.READY
            case _:
                assert_never(outcome)

    def _fail(self, kept: KeptTask, account: bytes, state: State) -> None:
        kept.accounts.append(account)
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
            accounts=b"\n".join(kept.accounts),
            ended_us=self.now_us(),
            kind=entry.kind.label,
            ready_us=entry.ready_us,
        )
        self.on_end(kept, State.DEAD)

    def _end(self, kept: KeptTask, how: State, account: bytes, owner: str = OWNER, result: bytes | None = None) -> None:
        # Without an account its end is not to be remembered.
        kept.state = how if account else State.UNKNOWN
        self._free_keys(kept)
        kept.ended = TaskState(kept.state, result=result)
        if account:
            head = f"{how} {self.now_us()} {owner} ".encode()
            record = b"\n".join([head + kept.entry.text + account, *kept.accounts])
            kept.ended = TaskState(how, result=result, ended=parse_ended(record))
        self.on_end(kept, how)

    def _free_keys(self, kept: KeptTask) -> None:
        self._keys = {key: held for key, held in self._keys.items() if held[0] is not kept}

    def _holder(self, namespace: str, key: str) -> str:
        held = self._keys.get((namespace, key)) if key else None
        return held[0].entry.id if held is not None and self.now_us() < held[1] else ""


class WaitingTasks:
    """What waits to be drained: what is ready, in its order, and what is due later."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._ready: deque[KeptTask] = deque()
        self._scheduled: list[_Due] = []
        self._numbers = count()

    def clear(self) -> None:
        """Nothing waits."""
        self._ready.clear()
        self._scheduled.clear()

    def add(self, kept: KeptTask) -> None:
        """It waits from now on: behind the others, or before them if it was enqueued so."""
        if kept.state is State.SCHEDULED:
            heapq.heappush(self._scheduled, _Due(kept.entry.due_us, next(self._numbers), kept))
        elif kept.is_front:
            self._ready.appendleft(kept)
        else:
            self._ready.append(kept)

    def next(self, now_us: int) -> KeptTask | None:
        """Take the next that is ready by now; None when none is."""
        while self._scheduled and self._scheduled[0].due_us <= now_us:
            kept = heapq.heappop(self._scheduled).kept
            if kept.state is State.SCHEDULED:
                self._books.promote(kept)
                self.add(kept)
        while self._ready:
            kept = self._ready.popleft()
            if kept.state is State.READY:  # else it was cancelled
                return kept
        return None

    def put_back(self, kept: KeptTask) -> None:
        """It is the next one again."""
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
    # The application reads a clock that went on since this one was last moved.
    return now_us if at_us <= time.time() * MICROSECONDS else at_us


def _written(entry: Entry) -> Entry:
    """With the text of what its fields say."""
    kind, counters = entry.kind.value, f"{entry.failures} 0 0 0 -"
    text = f"{entry.id} {entry.queue} {kind} {entry.due_us} {entry.ready_us} {counters}"
    return entry._replace(text=text.encode())
