"""Which alerts each trouble raises."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Answer:
    """The alerts that name the cause, of which one fires first, and what else is told of the same cause."""

    right: tuple[str, ...]
    also: tuple[str, ...]


def _answer(*right: str, also: Iterable[str] = ()) -> Answer:
    return Answer(right, tuple(also))


ANSWERS: Final[dict[str, Answer]] = {
    "crash_loop": _answer("RotaWorkerCrashLoop", also=["RotaWorkersMissing"]),
    "hung_task": _answer("RotaTaskHung"),
    "failing_tasks": _answer("RotaDeadLetters", also=["RotaTaskFailing"]),
    "failing_hook": _answer("RotaStartsHeld"),
    "saturation": _answer("RotaLagBurn1h"),
    "rare_late_queue": _answer("RotaLagBurn1h"),
    "unserved_queue": _answer("RotaQueueUnserved"),
    "forgotten_queue": _answer("RotaQueueForgotten"),
    "pollers_stuck": _answer("RotaPollerBehind", "RotaWorkerCrashLoop"),
    "redis_away": _answer("RotaRedisDown"),
    "node_lost": _answer("RotaNodeLost"),
    "fleet_absent": _answer("RotaAbsent"),
    "bad_reload": _answer("RotaConfigReloadFailed"),
    "log_blocked": _answer("RotaLogLinesDropped"),
}
