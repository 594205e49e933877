"""The master's notice: pools whose starts are held back, left in its slot for the exporter to read; and the words in
which both show the state of a fleet and of its pools.

Two copies and a number that says which one holds, written last: who reads meanwhile finds the one before, and looks
again when a second notice came in the meantime.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from rota.child.slots import Phase
from rota_supervisor.layout import Role

Json = dict[str, Any]

_WORD: Final = 8
_MOST_WORDS: Final = 300  # characters of an error

# What the master's phase says of its fleet.
FLEET_STATES: Final = {
    Phase.BOOTING: "starting",
    Phase.IDLE: "running",
    Phase.QUIET: "quiet",
    Phase.DRAINING: "draining",
}


class PoolState(StrEnum):
    """The state of a pool. BACKOFF: starts fail in a row, the next one waits. FATAL: the budget is spent, a person is
    needed; one probe goes on after each pause, so that it mends itself when the cause is gone."""

    RUNNING = "running"
    BACKOFF = "backoff"
    FATAL = "fatal"


class Held(NamedTuple):
    """A pool in back-off. `state`: backoff or fatal; `failures`: how many in a row; `next_try_at`: seconds of
    CLOCK_BOOTTIME; `words`: how its last child ended."""

    role: str
    pool: str
    state: str
    failures: int
    next_try_at: float
    words: str

    def row(self, now: float) -> Json:
        """For people: the control socket and `/status.json` show it so."""
        return {
            "role": self.role,
            "pool": self.pool,
            "state": self.state,
            "failures_in_a_row": self.failures,
            "next_try_seconds": round(max(0.0, self.next_try_at - now), 1),
            "last_error": self.words,
        }


def states_of_pools(rows: Iterable[Json]) -> Mapping[str, str]:
    """Return the state of each pool of workers by these rows; whoever has none is running."""
    held = {row["pool"]: row["state"] for row in rows if row["role"] == Role.WORKER}
    return defaultdict(lambda: PoolState.RUNNING.value, held)


def sentence(row: Json) -> str:
    """Such a row in words."""
    what = f"pool {row['pool']}" if row["role"] == Role.WORKER else f"the {row['role']}"
    failed = f"{row['failures_in_a_row']} failures in a row"
    next_try = f"next try in {row['next_try_seconds']:g} s"
    return f"{what} is in {row['state']}: {failed}, {next_try}; last: {row['last_error'] or 'unknown'}"


class Notice:
    """The notice in the spare part of the master's slot."""

    def __init__(self, area: memoryview) -> None:
        self._bytes = area
        self._words = area.cast("q")
        self._copy_bytes = (len(area) - _WORD) // 2 // _WORD * _WORD

    def write(self, held: Iterable[Held]) -> None:
        """Put up another one: master's side. What does not fit is left out at the end."""
        rows = [[*each[:-1], each.words[:_MOST_WORDS]] for each in held]
        while len(raw := json.dumps(rows).encode()) > self._copy_bytes - _WORD:
            rows.pop()
        number = self._words[0] + 1
        at = self._place_of(number)
        self._bytes[at + _WORD : at + _WORD + len(raw)] = raw
        self._words[at // _WORD] = len(raw)
        self._words[0] = number

    def read(self) -> tuple[Held, ...]:
        """What is up now."""
        while True:
            number = self._words[0]
            if number == 0:
                return ()
            at = self._place_of(number)
            raw = bytes(self._bytes[at + _WORD : at + _WORD + self._words[at // _WORD]])
            if self._words[0] == number:
                return tuple(Held(*row) for row in json.loads(raw))

    def _place_of(self, number: int) -> int:
        return _WORD + (number & 1) * self._copy_bytes
