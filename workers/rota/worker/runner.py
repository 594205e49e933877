"""Calls a task's function, and awaits the coroutine that it gives, if it does, in this process's event loop."""

import contextlib
import contextvars
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from rota.errors import TimeLimit
from rota.soft_limit import soft_limit

if TYPE_CHECKING:
    import asyncio

    from rota.client.tasks import Task


class Runner:
    """The event loop is made for the first async task and kept, with what tasks left open in it, to the end."""

    def __init__(self) -> None:
        self._loop: asyncio.Runner | None = None

    def call(
        self, task: "Task[..., Any]", args: tuple[Any, ...], kwargs: dict[str, Any], soft_deadline_ns: int
    ) -> None:
        """Call the function and wait for its end. Raises what it raises, and TimeLimit once its soft deadline
        (CLOCK_BOOTTIME, 0 for none) has passed."""
        if soft_deadline_ns:
            answer = soft_limit.call(soft_deadline_ns, task.function, args, kwargs)
        else:
            answer = task.function(*args, **kwargs)
        # By the answer: a plain wrapper round an `async def` gives a coroutine as well.
        if answer is not None and isinstance(answer, Coroutine):
            self._await(_limited(answer) if soft_deadline_ns else answer)

    def close(self) -> None:
        """Cancel what tasks left running in the loop, and close it."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _await(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        if self._loop is None:
            import asyncio  # noqa: PLC0415 - 5 MB that a worker without async tasks does not pay

            self._loop = asyncio.Runner()
        # The runner's own context is that of its first task: each task gets the one it runs in.
        self._loop.run(coroutine, context=contextvars.copy_context())


async def _limited(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Await it under its soft limit, which cancels it through its loop, as `asyncio.timeout` does."""
    import asyncio  # noqa: PLC0415 - the loop that runs this has loaded it

    loop, task, told = asyncio.get_running_loop(), asyncio.current_task(), False

    def cancel() -> None:
        nonlocal told
        if task is not None and soft_limit.is_over():  # it has not beaten since
            told = True
            task.cancel()

    def tell_loop() -> None:
        # Between two of its steps: a task that is cancelled in its last one would be, whatever it returned.
        with contextlib.suppress(RuntimeError):  # the application closed the loop
            loop.call_soon_threadsafe(cancel)

    try:
        await soft_limit.wait_for(coroutine, tell_loop)
    except asyncio.CancelledError as error:
        if not told:
            raise
        raise TimeLimit("the soft time limit has passed") from error
