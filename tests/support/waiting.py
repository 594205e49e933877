"""Functions that wait for events with a deadline, instead of fixed sleeps, and that repeat an action during a test."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

T = TypeVar("T")
DEADLINE_SECONDS: Final = 30.0


def until(
    condition: Callable[[], T],
    what: str | Callable[[], object] = "",
    seconds: float = DEADLINE_SECONDS,
    *,
    pause_seconds: float = 0.005,
) -> T:
    """Wait until the condition is true, and return its value. Raises AssertionError after a generous deadline.

    `what` describes the condition in the message. It is a text or a function that returns the state at the deadline.
    `pause_seconds` is the time between two checks. Increase it if a check slows other processes down.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(pause_seconds)
    state = what() if callable(what) else what or condition
    raise AssertionError(f"not true after {seconds:g} s: {state}")


def seconds_until(condition: Callable[[], object], what: str = "") -> float:
    """Wait until the condition is true, and return how many seconds that took."""
    began = time.monotonic()
    until(condition, what)
    return time.monotonic() - began


@contextmanager
def repeating(act: Callable[[], object], pause_seconds: float, threads: int = 1) -> Iterator[None]:
    """Call a function repeatedly, in threads, for a block of code. An exception ends the thread in which it is raised,
    and fails the block.
    """
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(pause_seconds):
            act()

    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(repeat) for _ in range(threads)]
        try:
            yield
        finally:
            over.set()
    for each in running:
        each.result()
