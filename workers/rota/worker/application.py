"""Calls into the application's code, which may raise any exception and may fork."""

import contextlib
import contextvars
import mmap
import os
import sys
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from rota.soft_limit import Ending, SoftLimit, soft_limit
from rota.tasks.hooks import CurrentTask, reset_running, set_running
from rota.telemetry import log, log_events

if TYPE_CHECKING:
    import asyncio

    from rota.tasks.registry import TaskDefinition

_EXIT_RAISED: Final = 1
_MADV_WIPEONFORK: Final = 18  # Linux has had this flag since 4.14, but mmap has no name for it


class NoCopies:
    """A context manager around a call of the application's code. If the code forks, the forked copy exits at the end of
    the `with` block.

    The copy calls `os._exit` with Python's usual exit code. If it continued after the block, it would be a second
    worker with the same owner. It would also flush buffers and run exit handlers that belong to this process. The class
    recognises a copy by a memory page that the kernel wipes in every forked process. Comparing process ids instead
    would take a system call after each task, which makes short tasks a tenth slower.
    """

    __slots__ = ("page",)

    def __init__(self) -> None:
        self.page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.page.madvise(_MADV_WIPEONFORK)
        self.page[0] = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if not self.page[0]:
            _leave(error)

    def leave_if_copy(self, error: BaseException | None) -> None:
        """End this process if it is a forked copy, with the exit code that fits `error`, the exception that the block
        raised."""
        if not self.page[0]:
            _leave(error)


class TaskBoundary:
    """A context manager that makes a task the current task inside its `with` block. If the block raises an exception,
    even SystemExit, the exception is caught and stored in `exception`. A forked copy of this process exits at the end
    of the block."""

    __slots__ = ("_current", "_page", "_token", "exception")

    def __init__(self, current: Callable[[], CurrentTask], no_copies: NoCopies) -> None:
        self._current = current
        self._page = no_copies.page

    def __enter__(self) -> Self:
        self._token = set_running(self._current)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if not self._page[0]:
            _leave(error)
        reset_running(self._token)
        self.exception = error
        return True


def _leave(error: BaseException | None) -> None:
    code = _EXIT_RAISED
    try:
        code = _exit_code(error)
    finally:
        os._exit(code)


def _exit_code(error: BaseException | None) -> int:
    match error:
        case None | SystemExit(code=None):
            return 0
        case SystemExit(code=int(code)):
            return code & 0xFF
        case SystemExit(code=text):
            print(text, file=sys.stderr)  # noqa: T201 - sys.exit("...") prints it too
        case _:
            sys.excepthook(type(error), error, error.__traceback__)
    return _EXIT_RAISED


def call_hook(hook: Callable[..., object], *args: Any) -> str:
    """Call a hook. If it fails, log the error and return a message without the error's text; otherwise return ""."""
    try:
        with NoCopies():
            hook(*args)
    except BaseException as error:  # noqa: BLE001 - the application's code may raise anything; this reports it
        name = f"{hook.__module__}.{hook.__qualname__}"
        log.logger().error(log_events.HOOK_FAILED, hook=name, exc_info=error)
        return f"{name} raised {type(error).__name__}"
    return ""


class Runner:
    """Calls a task's function. If the function returns a coroutine, the runner awaits the coroutine.

    The event loop is created for the first async task. The loop, with everything that tasks leave running in it, is
    kept until the worker ends. `limit` interrupts a call if its task is cancelled or reaches its soft time limit.
    """

    def __init__(self, limit: SoftLimit = soft_limit) -> None:
        self._limit = limit
        self._loop: asyncio.Runner | None = None

    def call(
        self, task: "TaskDefinition[..., Any]", args: tuple[Any, ...], kwargs: dict[str, Any], soft_deadline_ns: int
    ) -> Any:
        """Call the function and return its value. Raises the function's exception, Cancelled if the task was cancelled,
        or TimeLimit after the soft deadline (CLOCK_BOOTTIME, 0 for none)."""
        value = self._limit.call(soft_deadline_ns, task.function, args, kwargs)
        # Check the value, not the function, because a plain wrapper around an `async def` also returns a coroutine.
        if value is not None and isinstance(value, Coroutine):
            return self._await(_limited(self._limit, value))
        return value

    def close(self) -> None:
        """Cancel the asyncio tasks that Rota tasks left behind in the loop, and close the loop."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _await(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None:
            import asyncio  # noqa: PLC0415 - takes 5 MB, which a worker without async tasks does not need

            self._loop = asyncio.Runner()
        # Give each task its own copy of the current context. Otherwise all tasks would share the context of the asyncio
        # runner.
        return self._loop.run(coroutine, context=contextvars.copy_context())


async def _limited(limit: SoftLimit, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await the coroutine. To end the coroutine, `limit` cancels it through its loop, as `asyncio.timeout` does."""
    import asyncio  # noqa: PLC0415 - the loop that runs this has loaded it

    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    cause: Ending | None = None

    def cancel(ending: Ending) -> None:
        nonlocal cause
        if task is not None and limit.is_due(ending):
            cause = ending
            task.cancel()

    def cancel_soon(ending: Ending) -> None:
        # Let the loop cancel the task between two of its steps. A task that is cancelled during its last step would end
        # as cancelled, although it returns a value.
        with contextlib.suppress(RuntimeError):  # the application has closed the loop
            loop.call_soon_threadsafe(cancel, ending)

    try:
        return await limit.wait_for(coroutine, cancel_soon)
    except asyncio.CancelledError as error:
        if cause is None:
            raise
        raise cause from error
