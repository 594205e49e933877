"""Waiting for what a benchmark measures."""

import time
from collections.abc import Callable

DEADLINE_SECONDS = 300.0
LOOK_SECONDS = 0.002


def wait_until(done: Callable[[], bool]) -> None:
    """Look every 2 ms until it is done. Raises TimeoutError after 5 minutes."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("the benchmark did not come to its end in 5 minutes")
        time.sleep(LOOK_SECONDS)
