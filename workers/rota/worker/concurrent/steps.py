"""The steps of coroutines: whose they are, and how long each holds up all others.

Each coroutine that a task's attempt is made of, and each that the task starts beside it, is driven through `Stepped`.
While a step runs, the slot names its place: when the loop does not come back, the master knows whom to ask for a stack.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from rota.worker.application import NoCopies

if TYPE_CHECKING:
    from rota.worker.concurrent.in_hand import InHand

LONG_SECONDS: Final = 0.1
_stepping: ContextVar["InHand"] = ContextVar("rota_stepping")


class Steps:
    """Watches all steps. `current`: the task whose step runs now. `blocked` is told of each that takes long, and how
    long it took."""

    def __init__(self, alone: NoCopies, blocked: Callable[["InHand", float], None]) -> None:
        self.current: InHand | None = None
        self.alone = alone
        self.blocked = blocked

    def is_cancelled(self) -> bool:
        """Whether the task whose step runs was cancelled."""
        return self.current is not None and self.current.record.is_cancelled()

    def drive(self, coroutine: Coroutine[Any, Any, Any], hand: "InHand") -> "asyncio.Task[Any]":
        """Run an attempt's own coroutine."""
        return asyncio.Task(_Stepped(coroutine, hand, self))

    def make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> "asyncio.Task[Any]":
        """The loop's task factory: what a task starts is its own."""
        hand = _stepping.get(None)
        return asyncio.Task(coroutine if hand is None else _Stepped(coroutine, hand, self), loop=loop, **options)


def belong_to(hand: "InHand") -> None:
    """The coroutine that calls this is of that task, and what it starts is."""
    _stepping.set(hand)


class _Stepped(Coroutine[Any, Any, Any]):
    """A coroutine whose steps are watched."""

    __slots__ = ("_coroutine", "_hand", "_steps")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], hand: "InHand", steps: Steps) -> None:
        self._coroutine = coroutine
        self._hand = hand
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
        # What asyncio shows of a coroutine: its name, its frame.
        return getattr(self._coroutine, name)

    def _step(self, step: Callable[..., Any], *given: Any) -> Any:
        hand, steps = self._hand, self._steps
        steps.current = hand
        hand.enter_step()
        began = time.monotonic()
        try:
            return step(*given)
        except StopIteration:
            raise
        except (SystemExit, KeyboardInterrupt) as error:
            steps.alone.leave_if_copy(error)
            # asyncio would end the whole loop with it, and so all other tasks.
            raise RuntimeError(f"a coroutine of the task left by {error!r}") from error
        except BaseException as error:
            steps.alone.leave_if_copy(error)
            raise
        finally:
            steps.alone.leave_if_copy(None)
            seconds = time.monotonic() - began
            hand.leave_step()
            steps.current = None
            if seconds > LONG_SECONDS:
                steps.blocked(hand, seconds)
