"""Waiting for what is to happen, with a deadline, instead of for a time; and what goes on beside it meanwhile."""

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
    """Wait until the condition is true; returns its value. Raises AssertionError after a generous deadline.

    `what`: for the message, in words, or a function that returns how things stand then. `pause_seconds`: between two
    looks; longer where a look takes others' time.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(pause_seconds)
    stands = what() if callable(what) else what or condition
    raise AssertionError(f"still not so after {seconds:g} s: {stands}")


def seconds_until(condition: Callable[[], object], what: str = "") -> float:
    """How long it takes until the condition is true, as far as asking again and again can tell."""
    began = time.monotonic()
    until(condition, what)
    return time.monotonic() - began


@contextmanager
def repeating(act: Callable[[], object], pause_seconds: float, threads: int = 1) -> Iterator[None]:
    """Do it again and again, in threads, for a block of code. What it raises ends its thread and fails the block."""
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
