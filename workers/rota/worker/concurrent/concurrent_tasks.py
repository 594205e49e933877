"""The tasks that a concurrent worker runs: their indexes, the steps of their coroutines, and their stacks.

Each coroutine of a task, and each coroutine that the task starts, is driven by `_Stepped`. While a step runs, the slot
shows the task's index. If the loop is blocked, the master then knows which task's stack to request.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident, main_thread
from types import FrameType
from typing import Any, Final

from rota.child.slot_record import TaskRecord
from rota.child.slots import Slot, boottime_ns
from rota.errors import Cancelled, TimeLimit
from rota.protocol.entry import Entry
from rota.soft_limit import Ending, soft_limit
from rota.tasks.claimed_call import MayStart, Runnable
from rota.telemetry import log, log_events
from rota.worker.application import NoCopies, TaskBoundary
from rota.worker.attempt import Attempt, AttemptMaker
from rota.worker.claims import Claimed
from rota.worker.executor import Attempted
from rota.worker.redis_times import times_of

LONG_SECONDS: Final = 0.1
_OWN: Final = str(Path(__file__).parent.parent)
_MAX_FRAMES: Final = 20  # only the innermost frames are logged, because a log line has at most 4,096 bytes


class RunningTask:
    """A task that the loop runs, with the slot record of its index. `attempt` is None until the slot shows the task.
    `ending` is the exception with which the loop ends the task's coroutine."""

    __slots__ = ("_is_awaited", "_limited_ns", "attempt", "driver", "ending", "entry", "record")

    def __init__(self, entry: Entry, record: TaskRecord) -> None:
        self.entry = entry
        self.record = record
        self.attempt: Attempt | None = None
        self.ending: Ending | None = None
        self.driver: asyncio.Task[Any] | None = None
        self._is_awaited = False
        self._limited_ns = 0

    @property
    def is_shown(self) -> bool:
        """Whether the slot shows this task. It does so from the first step of the task until the task ends."""
        return self.attempt is not None and self.record.number == self.attempt.number

    def opened(self, attempt: Attempt) -> None:
        """Store the attempt. This is called when the slot begins to show the task."""
        self.attempt = attempt
        attempt.extend_soft_limit = _extend_here
        self.record.enter_step()

    def enter_step(self) -> None:
        """Mark in the slot that a step of this task begins. The step may also belong to a coroutine that the task
        started. If that coroutine has outlived the task, nothing is marked."""
        if self.is_shown:
            self.record.enter_step()

    def leave_step(self) -> None:
        """Mark in the slot that the step has ended."""
        self.record.leave_step()

    async def wait_for(self, coroutine: Any) -> Any:
        """Await a coroutine. If the task is cancelled or reaches its soft limit, the coroutine is cancelled through its
        loop, as `asyncio.timeout` does. Raises Cancelled or TimeLimit in that case."""
        self._is_awaited = True
        try:
            self.raise_ending()  # a signal that came earlier had no effect, because no coroutine was awaited yet
            return await coroutine
        except asyncio.CancelledError as error:
            if self.ending is None:
                raise
            raise self.ending from error
        finally:
            self._is_awaited = False

    def raise_ending(self) -> None:
        """Cancel the awaited coroutine if the task was cancelled or its soft deadline has passed. The coroutine is
        interrupted once for the cancellation, and once for each deadline."""
        attempt = self.attempt
        if not self._is_awaited or attempt is None or isinstance(self.ending, Cancelled):
            return
        deadline_ns = attempt.soft_deadline_ns
        if attempt.is_cancelled():
            self._end(Cancelled("the task was cancelled"))
        elif deadline_ns != self._limited_ns and deadline_ns <= boottime_ns():
            self._limited_ns = deadline_ns
            self._end(TimeLimit("the soft time limit has passed"))

    def _end(self, ending: Ending) -> None:
        assert self.driver is not None
        self.ending = ending
        self.driver.cancel()


def _extend_here(deadline_ns: int) -> None:
    # `soft_limit` is only for plain functions, which run in the loop's thread. The deadline of a coroutine is checked
    # by `raise_ending`.
    if get_ident() == main_thread().ident:
        soft_limit.extend(deadline_ns)


_stepping: ContextVar[RunningTask] = ContextVar("rota_stepping")


@dataclass(frozen=True, slots=True)
class ConcurrentExecutor:
    """Runs attempts as `Executor` does, but awaits instead of blocking, so that many attempts can run at once."""

    maker: AttemptMaker
    check_start: Callable[[Attempt], Awaitable[MayStart]]

    async def attempt(self, running: RunningTask, claimed: Claimed) -> Attempted:
        """Run a claimed task, unless it may not start. The slot shows the task until it ends. If the task raises an
        exception, the exception is not passed on but decides the outcome."""
        maker = self.maker
        anchor = claimed.anchor
        at_ns = boottime_ns()
        attempt = maker.open(running.record, claimed, at_ns)
        running.opened(attempt)
        if attempt.needs_permission:
            permission = await self.check_start(attempt)
            if not attempt.may_start(permission):
                return permission.refusal
            at_ns = boottime_ns()
        ready = maker.start(attempt, anchor, at_ns, at_ns)
        if ready is None:
            return attempt
        with TaskBoundary(attempt.current, maker.no_copies) as boundary:
            if maker.hooks.around:
                with maker.hooks.wrapped(attempt.current()), maker.no_copies:
                    attempt.called(times_of(attempt.entry, anchor, boottime_ns()))
                    await self._call(running, ready, attempt)
            else:
                await self._call(running, ready, attempt)
        if boundary.exception is not None:
            maker.failed(attempt, ready, boundary.exception)
        return attempt

    async def _call(self, running: RunningTask, ready: Runnable, attempt: Attempt) -> None:
        self.maker.started(attempt.entry, attempt.times)
        started = time.monotonic()
        try:
            value = soft_limit.call(attempt.soft_deadline_ns, ready.task.function, ready.args, ready.kwargs)
            if isinstance(value, Coroutine):
                value = await running.wait_for(value)
        finally:
            attempt.runtime_seconds = time.monotonic() - started
        if ready.settings.options.result_ttl:
            self.maker.keep_result(attempt, ready, value)


class StepWatcher:
    """Records in `current` the task whose step the loop is running. After each step that takes longer than
    `LONG_SECONDS`, the watcher calls `blocked` with the task and the duration."""

    def __init__(self, no_copies: NoCopies, blocked: Callable[[RunningTask, float], None]) -> None:
        self.current: RunningTask | None = None
        self.no_copies = no_copies
        self.blocked = blocked

    def is_cancelled(self) -> bool:
        """Whether the task whose step runs was cancelled."""
        return self.current is not None and self.current.record.is_cancelled()

    def drive(self, coroutine: Coroutine[Any, Any, Any], running: RunningTask) -> asyncio.Task[Any]:
        """Run the coroutine of an attempt in an asyncio task whose steps are watched."""
        return asyncio.Task(_Stepped(coroutine, running, self))

    def make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        """Create an asyncio task, as the loop's task factory. If a Rota task starts the coroutine, the coroutine's
        steps are watched as steps of that Rota task."""
        running = _stepping.get(None)
        return asyncio.Task(coroutine if running is None else _Stepped(coroutine, running, self), loop=loop, **options)


def belong_to(running: RunningTask) -> None:
    """Record that the calling coroutine belongs to this task, and so does every coroutine that it starts."""
    _stepping.set(running)


class _Stepped(Coroutine[Any, Any, Any]):
    """Wraps a coroutine, and reports the beginning and the end of each of its steps to the StepWatcher."""

    __slots__ = ("_coroutine", "_steps", "_task")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], running: RunningTask, steps: StepWatcher) -> None:
        self._coroutine = coroutine
        self._task = running
        self._steps = steps

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        # asyncio reads these attributes when it shows the name and the stack of a coroutine.
        return getattr(self._coroutine, name)

    def _step(self, step: Callable[..., Any], *given: Any) -> Any:
        running = self._task
        steps = self._steps
        steps.current = running
        running.enter_step()
        started = time.monotonic()
        try:
            return step(*given)
        except StopIteration:
            raise
        except (SystemExit, KeyboardInterrupt) as error:
            steps.no_copies.leave_if_copy(error)
            # This exception would end the whole asyncio loop, and all other tasks with it.
            raise RuntimeError(f"a coroutine of the task exited with {error!r}") from error
        except BaseException as error:
            steps.no_copies.leave_if_copy(error)
            raise
        finally:
            steps.no_copies.leave_if_copy(None)
            seconds = time.monotonic() - started
            running.leave_step()
            steps.current = None
            if seconds > LONG_SECONDS:
                steps.blocked(running, seconds)


class StackLogger:
    """Logs the stacks of the running tasks once for each request from the master."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._logged = slot.stacks_requested

    def log_if_requested(self, tasks: Iterable[RunningTask]) -> None:
        """Log the stacks of these tasks if the master has requested them since the last call."""
        requested = self._slot.stacks_requested
        if requested != self._logged:
            self._logged = requested
            for task in tasks:
                _log_stack(task)


def _log_stack(running: RunningTask) -> None:
    attempt = running.attempt
    driver = running.driver
    if attempt is None or driver is None:
        return
    task_index = running.record.task_index
    stack = stack_of(driver.get_coro())
    log.logger().info(
        log_events.WORKER_STACK, task=attempt.name, task_id=running.entry.id, place=task_index, stack=stack
    )


def stack_of(awaitable: Any) -> str:
    """Return the stack of a coroutine as one line. The stack is the chain of awaited calls, with the innermost call
    first. Rota's own outermost frames are left out."""
    frames: list[str] = []
    while (frame := _frame_of(awaitable)) is not None:
        code = frame.f_code
        if frames or not code.co_filename.startswith(_OWN):
            frames.append(f"{code.co_name} ({code.co_filename}:{frame.f_lineno})")
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)
    return " < ".join(frames[: -_MAX_FRAMES - 1 : -1]) or "no Python frames: in a thread, or not started"


def _frame_of(awaitable: Any) -> FrameType | None:
    return getattr(awaitable, "cr_frame", None) or getattr(awaitable, "gi_frame", None)
