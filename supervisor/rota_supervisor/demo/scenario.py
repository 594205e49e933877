"""What happens in the demo, and when: the configuration, the streams of tasks, the acts. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Any, Final

from rota.client.call import Call

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


@dataclass(frozen=True, slots=True)
class Cue:
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


@dataclass(frozen=True, slots=True)
class Stream:
    """Calls of one task at a steady rate; `delayed` ones are due later. `arguments`: those of the n-th call."""

    task: str
    queue: str
    per_second: float
    delayed: bool
    arguments: Callable[[int], tuple[Any, ...]]


def _reset(number: int) -> tuple[Any, ...]:
    return (number, f"token-{number}")


def _sold(number: int) -> tuple[Any, ...]:
    return (17, number, 900 + number, 3)


def _expired(number: int) -> tuple[Any, ...]:
    return (17, number)


def _feedback(number: int) -> tuple[Any, ...]:
    return (3, number)


def _report(number: int) -> tuple[Any, ...]:
    return (f"sales-{number}", 0.008)


STREAMS: Final = (
    Stream("send_password_reset", "password-reset", 6, delayed=False, arguments=_reset),
    Stream("send_password_reset", "password-reset", 2, delayed=True, arguments=_reset),
    Stream("send_sold_email", "sold-email", 25, delayed=False, arguments=_sold),
    Stream("send_expired_email", "expired-email", 10, delayed=True, arguments=_expired),
    Stream("ask_for_feedback", "default", 8, delayed=True, arguments=_feedback),
    Stream("build_report", "reports", 3, delayed=False, arguments=_report),
)


def calls_between(since: float, until: float, seconds: float, random: Random) -> Iterator[Call[Any]]:
    """What the streams bring from `since` to `until`, in seconds after the start of a demo of `seconds`.

    Consecutive intervals leave no call out and bring none twice.
    """
    longest = max(2 * _SHORTEST_DELAY_SECONDS, _DELAY_SHARE * seconds)
    for stream in STREAMS:
        for number in range(int(stream.per_second * since), int(stream.per_second * until)):
            delay = random.uniform(_SHORTEST_DELAY_SECONDS, longest) if stream.delayed else None
            yield Call(stream.task, stream.arguments(number), queue=stream.queue, delay=delay)


def flood(seconds: float) -> list[Call[Any]]:
    """More than the fleet can do at once, for the two queues of the middle tier: two thirds to one third."""
    size = int(_FLOOD_PER_SECOND * seconds)
    items = range(_FLOOD_ITEMS, _FLOOD_ITEMS + size)
    return [
        Call("send_sold_email", _sold(item), queue="sold-email")
        if item % 3
        else Call("send_expired_email", _expired(item), queue="expired-email")
        for item in items
    ]


def victim(seconds: float) -> Call[Any]:
    """The task whose worker is killed."""
    return Call("build_report", ("the one that is interrupted", seconds), queue="reports")


def with_workers(config_text: str, count: int) -> str:
    """The configuration with another number of workers, as an editor would change it."""
    return "\n".join(
        f"workers   = {count}" if line.partition("=")[0].strip() == "workers" else line
        for line in config_text.split("\n")
    )
