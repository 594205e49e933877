"""Where coroutines are: what a worker of many tasks writes to its log when its master asks."""

from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from rota.child.slots import Slot
from rota.telemetry import events, log
from rota.worker.concurrent.in_hand import InHand

_OWN: Final = str(Path(__file__).parent.parent)
_MOST_FRAMES: Final = 20  # of the innermost: a line of the log has 4,096 bytes


class StackTeller:
    """Answers each question once."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._answered = slot.stacks_asked

    def look(self, hands: Iterable[InHand]) -> None:
        """Write where these tasks are, if that was asked."""
        asked = self._slot.stacks_asked
        if asked != self._answered:
            self._answered = asked
            for hand in hands:
                _tell(hand)


def _tell(hand: InHand) -> None:
    attempt, driver = hand.attempt, hand.driver
    if attempt is None or driver is None:
        return
    place, stack = hand.record.place, stack_of(driver.get_coro())
    log.logger().info(events.WORKER_STACK, task=attempt.name, task_id=hand.entry.id, place=place, stack=stack)


def stack_of(awaitable: Any) -> str:
    """The chain of what a coroutine awaits, the innermost call first, without what is Rota's own at its beginning."""
    frames: list[str] = []
    while (frame := _frame_of(awaitable)) is not None:
        code = frame.f_code
        if frames or not code.co_filename.startswith(_OWN):
            frames.append(f"{code.co_name} ({code.co_filename}:{frame.f_lineno})")
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)
    return " < ".join(frames[: -_MOST_FRAMES - 1 : -1]) or "in a thread, or not begun"


def _frame_of(awaitable: Any) -> FrameType | None:
    return getattr(awaitable, "cr_frame", None) or getattr(awaitable, "gi_frame", None)
