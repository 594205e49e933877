"""Calls a task's function, and awaits the coroutine that it gives, if it does, in this process's event loop."""

import contextvars
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from rota.tasks import Task


class Runner:
    """The event loop is made for the first async task and kept, with what tasks left open in it, to the end."""

    def __init__(self) -> None:
        self._loop: asyncio.Runner | None = None

    def call(self, task: "Task[..., Any]", args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call the function and wait for its end. Raises what it raises."""
        answer = task.function(*args, **kwargs)
        if answer is not None and isinstance(
            answer, Coroutine
        ):  # by the answer: a plain wrapper round an `async def` gives one as well
            self._await(answer)

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
