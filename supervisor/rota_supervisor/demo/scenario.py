"""What happens in the demo, and when: the configuration, the streams of tasks, the acts. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from random import Random
from typing import Any, Final, NamedTuple

from rota.tasks.call import Call

NAMESPACE: Final = "demo"
TIERS: Final = (("password-reset",), ("sold-email", "expired-email"), ("default", "reports"))
WORKERS: Final = 4
GROWN_WORKERS: Final = 6
SHRUNK_WORKERS: Final = 3
VICTIM_SECONDS: Final = (1.5, 3.0, 6.0, 12.0)  # long enough to be met in mid-task; on a busy machine not the first one

_PRODUCING_SHARE: Final = 0.9
_DELAY_SHARE: Final = 0.12  # the longest delay, so that the last delayed task is due near the end
_SHORTEST_DELAY_SECONDS: Final = 0.3
_FLOOD_PER_SECOND: Final = 30  # tasks of a flood for each second of the demo
_FLOOD_ITEMS: Final = 100_000  # items of floods are numbered from here on

CONFIG_TEXT: Final = """\
# The fleet of `rota demo`. The demo edits `workers` and sends SIGHUP.
namespace = "{namespace}"
redis_url = "{redis_url}"
imports   = ["rota_supervisor.demo.tasks"]
workers   = {workers}

tiers = [
  ["password-reset"],                    # served first, always
  ["sold-email", "expired-email"],       # take turns, by weight
  ["default", "reports"],
]

[queues.password-reset]
lag_objective_seconds = 1

[queues.sold-email]
weight = 3

[http]
listen = "{listen}"

[control]
socket = "{socket}"

[log]
format = "json"
"""


class Act(Enum):
    """What happens beside the steady streams."""

    FLOOD = auto()
    KILL = auto()
    GROW = auto()
    SHRINK = auto()


class Cue(NamedTuple):
    """An act and when it begins, in seconds after the start."""

    at_seconds: float
    act: Act


_ACTS: Final = ((0.1, Act.FLOOD), (0.28, Act.KILL), (0.48, Act.GROW), (0.58, Act.FLOOD), (0.78, Act.SHRINK))


def cues(seconds: float) -> tuple[Cue, ...]:
    """The acts of a demo that lasts `seconds`, in order."""
    return tuple(Cue(share * seconds, act) for share, act in _ACTS)


def producing_seconds(seconds: float) -> float:
    """How long a demo of `seconds` produces; the rest is for what is delayed."""
    return _PRODUCING_SHARE * seconds


class Stream(NamedTuple):
    """Calls of one task at a steady rate; `delayed` ones are due later."""

    task: str
    queue: str
    per_second: float
    delayed: bool


STREAMS: Final = (
    Stream("send_password_reset", "password-reset", 6, delayed=False),
    Stream("send_password_reset", "password-reset", 2, delayed=True),
    Stream("send_sold_email", "sold-email", 25, delayed=False),
    Stream("send_expired_email", "expired-email", 10, delayed=True),
    Stream("ask_for_feedback", "default", 8, delayed=True),
    Stream("build_report", "reports", 3, delayed=False),
)
# The arguments of the n-th call of each task.
_ARGUMENTS: Final[Mapping[str, Callable[[int], tuple[Any, ...]]]] = {
    "send_password_reset": lambda number: (number, f"token-{number}"),
    "send_sold_email": lambda number: (17, number, 900 + number, 3),
    "send_expired_email": lambda number: (17, number),
    "ask_for_feedback": lambda number: (3, number),
    "build_report": lambda number: (f"sales-{number}", 0.008),
}


def calls_between(since: float, until: float, seconds: float, random: Random) -> Iterator[Call[Any]]:
    """What the streams bring from `since` to `until`, in seconds after the start of a demo of `seconds`.

    Consecutive intervals leave no call out and bring none twice.
    """
    longest = max(2 * _SHORTEST_DELAY_SECONDS, _DELAY_SHARE * seconds)
    for task, queue, per_second, delayed in STREAMS:
        for number in range(int(per_second * since), int(per_second * until)):
            delay = random.uniform(_SHORTEST_DELAY_SECONDS, longest) if delayed else None
            yield Call(task, _ARGUMENTS[task](number), queue=queue, delay=delay)


def flood(seconds: float) -> list[Call[Any]]:
    """More than the fleet can do at once, for the two queues of the middle tier: two thirds to one third."""
    calls: list[Call[Any]] = []
    for item in range(_FLOOD_ITEMS, _FLOOD_ITEMS + int(_FLOOD_PER_SECOND * seconds)):
        task, queue = ("send_sold_email", "sold-email") if item % 3 else ("send_expired_email", "expired-email")
        calls.append(Call(task, _ARGUMENTS[task](item), queue=queue))
    return calls


def victim(seconds: float) -> Call[Any]:
    """The task whose worker is killed."""
    return Call("build_report", ("the one that is interrupted", seconds), queue="reports")


def with_workers(config_text: str, count: int) -> str:
    """The configuration with another number of workers, as an editor would change it."""
    return re.sub(r"(?m)^workers .*", f"workers   = {count}", config_text)
