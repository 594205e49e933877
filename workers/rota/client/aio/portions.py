"""Much work in an event loop, with room for others between."""

import asyncio
from collections.abc import Iterable
from typing import Final, TypeVar

T = TypeVar("T")

_AT_ONCE: Final = 100  # calls that are prepared: some milliseconds


async def in_portions(things: Iterable[T]) -> list[T]:
    """All of them; the loop goes on after each hundred."""
    made: list[T] = []
    for thing in things:
        made.append(thing)
        if len(made) % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return made
