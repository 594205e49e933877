"""Conditions, by which queues open and close, as the scripts take them: see rota/lua/shared/condition.lua."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

MOST_CHARACTERS = 2000  # of a chunk: compiling one takes the server some 30 ns a character
Interval = tuple[int, int]
"""From when to when something is open, Unix time in microseconds; the end is no part of it."""


class Condition(NamedTuple):
    """A condition by its name. `text` of the kind `hours`: see `text_of_hours`; of the kind `lua`: the chunk."""

    name: str
    kind: Literal["hours", "lua"]
    text: str


def text_of_hours(known_until_us: int, intervals: Iterable[Interval]) -> str:
    """When something is open, in order, as far as that is known."""
    return "".join([str(known_until_us), *(f" {start}-{end}" for start, end in intervals)])
