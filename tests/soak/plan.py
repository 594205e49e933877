"""The plan of the nemesis: all faults with their times. They are drawn in advance, so that the seed determines all of
them. This module does no I/O.

Storms alternate with calms. In a storm, all faults of the profile happen at random. In a calm, nothing happens at
first. Then either workers are killed one by one, or a node is lost. A calm has no other faults, so the time until the
affected tasks run again can be measured.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Final

from soak.faults import KINDS, PROFILES, TARGETS, Fault, FaultScope

FIRST_SECONDS: Final = 1.0
GAP_SECONDS: Final = 1.3  # the average time between the starts of two successive faults
_REST_SECONDS: Final = 1.0  # the shortest time between two faults with the same scope and target
# How long a node is lost in a calm: for one lease, and then for 3 s in which the recovery of its tasks is observed.
_LOSS_SECONDS: Final = 8.0


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault that begins `at_seconds` after the start and lasts for `seconds`."""

    number: int
    at_seconds: float
    fault: Fault
    target: str
    seconds: float

    @property
    def end_seconds(self) -> float:
        """The time at which the fault is undone."""
        return self.at_seconds + self.seconds


class _Weather(Enum):
    STORM = auto()
    LULL = auto()
    KILLS = auto()
    LOSS = auto()


# The phases with their durations in seconds. The sequence is repeated. The lull after a loss gives the node time to
# come back.
_WEATHER: Final = (
    (_Weather.STORM, 22.0),
    (_Weather.LULL, 3.0),
    (_Weather.KILLS, 5.0),
    (_Weather.STORM, 22.0),
    (_Weather.LULL, 3.0),
    (_Weather.LOSS, 9.0),
    (_Weather.LULL, 3.0),
)


def plan_of(profile: str, seconds: float, seed: int) -> tuple[Planned, ...]:
    """Return all faults of a run that lasts `seconds`, ordered by their beginning. All faults end within the run."""
    drawn = _draw(PROFILES[profile], seconds, Random(f"{profile} {seconds:g} {seed}"))
    return tuple(Planned(number, *fault) for number, fault in enumerate(drawn))


def plan_from(words: list[str]) -> tuple[Planned, ...]:
    """Return the plan described by texts of the form "NAME TARGET AT SECONDS". Raises ValueError."""
    parsed = sorted((_parsed(each) for each in words), key=lambda fault: fault[0])
    return tuple(Planned(number, *fault) for number, fault in enumerate(parsed))


_Drawn = tuple[float, Fault, str, float]


def _parsed(words: str) -> _Drawn:
    name, target, at, seconds = words.split()
    fault = Fault(name)
    if target not in TARGETS[KINDS[fault].scope]:
        raise ValueError(f"{name} is done to one of {', '.join(TARGETS[KINDS[fault].scope])}, not to {target}")
    return float(at), fault, target, float(seconds)


def _draw(faults: tuple[Fault, ...], seconds: float, random: Random) -> Iterator[_Drawn]:
    begins = 0.0
    while begins < seconds:
        for weather, length in _WEATHER:
            ends = min(seconds, begins + length)
            match weather:
                case _Weather.STORM:
                    yield from _storm(faults, begins, ends, random)
                case _Weather.KILLS:
                    yield from _storm(_only({Fault.KILL_WORKER}, faults), begins, ends, random)
                case _Weather.LOSS:
                    yield from _loss(_only({Fault.KILL_NODE, Fault.LOSE_HOST}, faults), begins, ends, random)
                case _Weather.LULL:
                    pass
            begins += length


def _only(wanted: Container[Fault], faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    return tuple(fault for fault in faults if fault in wanted)


def _storm(faults: tuple[Fault, ...], begins: float, ends: float, random: Random) -> Iterator[_Drawn]:
    free_at: dict[tuple[FaultScope, str], float] = {}
    weights = [KINDS[fault].weight for fault in faults]
    at = max(begins, FIRST_SECONDS)
    while faults and at < ends:
        fault = random.choices(faults, weights)[0]
        kind = KINDS[fault]
        target = random.choice(TARGETS[kind.scope])
        length = random.uniform(kind.shortest_seconds, kind.longest_seconds)
        place = kind.scope, "" if kind.scope is FaultScope.VERSION else target
        if free_at.get(place, 0.0) <= at and at + length <= ends:
            yield round(at, 3), fault, target, round(length, 3)
            free_at[place] = at + length + (_REST_SECONDS if length else 0.0)
        at += random.expovariate(1 / GAP_SECONDS)


def _loss(faults: tuple[Fault, ...], begins: float, ends: float, random: Random) -> Iterator[_Drawn]:
    for fault in faults:
        if begins + _LOSS_SECONDS <= ends:
            yield round(begins, 3), fault, random.choice(TARGETS[KINDS[fault].scope]), _LOSS_SECONDS
