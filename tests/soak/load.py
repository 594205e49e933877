"""The calls of the producers, as streams generated from a seed. This module does no I/O."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, Final

from soak.evidence import ALWAYS, NO_NUMBER

ORDER: Final = "order"  # the queue whose order is checked; a single worker of one node serves it
CAPPED: Final = "capped"
CAP: Final = 2
RATED: Final = "rated"
RATE: Final = "10/s"
# The queues whose fairness is checked. They are filled at the same time, with tasks that are claimed one by one.
FAIR: Final = ("east", "west", "north")
TOGETHER: Final = "together"  # the queue whose tasks run concurrently, in one worker of each node
TIERS: Final = (("urgent",), ("mail", "news"), ("default", CAPPED, RATED), FAIR, ("bulk", "import"))
WEIGHTS: Final = {"bulk": 3}
_BULK_TASKS: Final = 120
_BURST_TASKS: Final = 40
_GROUP_TASKS: Final = 7
_CHAIN_TASKS: Final = 4
_UNIQUE_KEYS: Final = 4
_REMEMBERED: Final = 50  # a cancellation picks one of this many recently used ids

Draw = Callable[[Random, int], tuple[Any, ...]]


class Verb(StrEnum):
    """The kind of a call: the way in which it sends tasks, or a request to cancel a task."""

    ENQUEUE = "enqueue"
    MANY = "many"  # several tasks in one call
    UNIQUE = "unique"
    PUSH = "push"  # a plain RPUSH to a lane, which bypasses the client
    SCHEDULE = "schedule"  # a plain ZADD to the delayed set, which bypasses the client
    GROUP = "group"  # a group, whose last task follows when all other tasks have ended
    CHAIN = "chain"  # a chain, in which each task follows when the previous task is done
    CANCEL = "cancel"


FLOWS: Final = frozenset({Verb.GROUP, Verb.CHAIN})


@dataclass(frozen=True, slots=True)
class Intent:
    """One call of a producer. It sends tasks with these ids. The tasks have the same name, queue and arguments, and are
    due `delay_seconds` after the call.
    """

    verb: Verb
    ids: tuple[str, ...]
    task: str = ""
    queue: str = ""
    args: tuple[Any, ...] = ()
    delay_seconds: float = 0.0
    number: int = NO_NUMBER

    @property
    def nature(self) -> "Nature":
        """The behavior of the tasks of this call."""
        return NATURES.get(self.task, Nature())

    @property
    def fails(self) -> int:
        """The number of attempts of each task that raise an exception."""
        return int(self.args[0]) if self.task == "fail" else self.nature.fails

    def before(self, task_id: str) -> tuple[str, ...]:
        """Return the ids of the tasks that must end before this task may start."""
        at = self.ids.index(task_id)
        if self.verb is Verb.CHAIN:
            return self.ids[max(0, at - 1) : at]
        return self.ids[:at] if self.verb is Verb.GROUP and at == len(self.ids) - 1 else ()


@dataclass(frozen=True, slots=True)
class Nature:
    """The behavior of a task. `retries` is its number of retries, `fails` is the number of its attempts that raise an
    exception, and `kills` is the number of its attempts that kill the worker. If `gives_up` is set, the first attempt
    makes the task dead.
    """

    retries: int = 10  # Rota's default
    fails: int = 0
    kills: int = 0
    gives_up: bool = False


NATURES: Final = {
    "fail": Nature(retries=6),
    "fail_always": Nature(retries=2, fails=ALWAYS),
    "raise_dead": Nature(gives_up=True),
    "kill_worker": Nature(kills=1),
    "leave": Nature(kills=1),
}


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of similar calls at a steady rate. Each call sends `tasks` tasks. `longest_delay` is in seconds, or 0 if
    the tasks are due at once.
    """

    verb: Verb
    task: str
    queue: str
    per_second: float
    args: Draw
    longest_delay: float = 0.0
    tasks: int = 1


def _nothing(_random: Random, _number: int) -> tuple[Any, ...]:
    return ()


def _seconds(shortest: float, longest: float) -> Draw:
    return lambda random, _number: (round(random.uniform(shortest, longest), 3),)


def _times(most: int) -> Draw:
    return lambda random, _number: (random.randint(1, most),)


def _key(random: Random, _number: int) -> tuple[Any, ...]:
    return (random.randrange(_UNIQUE_KEYS),)


def _sequence(_random: Random, number: int) -> tuple[Any, ...]:
    return (number,)


# The streams of each producer. The whole load takes a fifth of the capacity of two cores, so most workers are idle when
# a fault occurs.
STREAMS: Final = (
    Stream(Verb.ENQUEUE, "short", "urgent", 4, _nothing),
    Stream(Verb.ENQUEUE, "short", "mail", 8, _nothing),
    Stream(Verb.ENQUEUE, "work", "mail", 4, _seconds(0.005, 0.1)),
    Stream(Verb.ENQUEUE, "work", "news", 2, _seconds(0.005, 0.2)),
    Stream(Verb.ENQUEUE, "wait", "news", 1, _seconds(0.01, 0.1)),
    Stream(Verb.ENQUEUE, "work", "default", 0.15, _seconds(1.5, 4.0)),
    # The following tasks take longer than the heartbeat limit.
    Stream(Verb.ENQUEUE, "work", "default", 0.05, _seconds(3.5, 6.0)),
    Stream(Verb.ENQUEUE, "short", "default", 4, _nothing, longest_delay=4.0),
    Stream(Verb.ENQUEUE, "work", "default", 2, _seconds(0.01, 0.1), longest_delay=8.0),
    Stream(Verb.ENQUEUE, "work", CAPPED, 3, _seconds(0.02, 0.1)),
    Stream(Verb.ENQUEUE, "short", RATED, 2, _nothing),
    Stream(Verb.ENQUEUE, "fail", "mail", 1.5, _times(4)),
    Stream(Verb.ENQUEUE, "fail_always", "news", 0.1, _nothing),
    Stream(Verb.ENQUEUE, "raise_dead", "news", 0.05, _nothing),
    Stream(Verb.ENQUEUE, "kill_worker", "default", 0.1, _nothing),
    Stream(Verb.ENQUEUE, "leave", "default", 0.05, _nothing),
    Stream(Verb.ENQUEUE, "have_a_child", "default", 0.2, _seconds(0.2, 2.0)),
    Stream(Verb.ENQUEUE, "wait", TOGETHER, 8, _seconds(0.05, 1.0)),
    Stream(Verb.ENQUEUE, "wait", TOGETHER, 0.05, _seconds(3.5, 6.0)),
    Stream(Verb.ENQUEUE, "fail", TOGETHER, 0.5, _times(2)),
    Stream(Verb.ENQUEUE, "kill_worker", TOGETHER, 0.05, _nothing),
    Stream(Verb.GROUP, "wait", TOGETHER, 0.1, _seconds(0.05, 0.5), tasks=_GROUP_TASKS),
    Stream(Verb.UNIQUE, "alone", "default", 2, _key),
    Stream(Verb.MANY, "short", "bulk", 0.06, _nothing, tasks=_BULK_TASKS),
    Stream(Verb.MANY, "short", "import", 0.06, _nothing, tasks=_BULK_TASKS),
    Stream(Verb.PUSH, "short", "mail", 2, _nothing),
    Stream(Verb.PUSH, "work", "default", 0.5, _seconds(0.005, 0.05)),
    Stream(Verb.SCHEDULE, "short", "default", 0.5, _nothing, longest_delay=4.0),
    Stream(Verb.GROUP, "work", "news", 0.2, _seconds(0.005, 0.1), tasks=_GROUP_TASKS),
    Stream(Verb.GROUP, "fail", "mail", 0.1, _times(3), tasks=_GROUP_TASKS),
    Stream(Verb.GROUP, "raise_dead", "mail", 0.03, _nothing, tasks=_GROUP_TASKS),
    Stream(Verb.GROUP, "short", "default", 0.1, _nothing, longest_delay=2.0, tasks=_GROUP_TASKS),
    Stream(Verb.CHAIN, "work", "mail", 0.2, _seconds(0.005, 0.1), tasks=_CHAIN_TASKS),
    Stream(Verb.CANCEL, "", "", 1.5, _nothing),
)
# The streams that only one producer sends: the calls whose order is checked, and the bursts. The bursts fill their
# queues at the same time.
OF_ONE: Final = (
    Stream(Verb.ENQUEUE, "step", ORDER, 5, _sequence),
    *(Stream(Verb.MANY, "work", queue, 0.1, _seconds(0.006, 0.01), tasks=_BURST_TASKS) for queue in FAIR),
)


class Load:
    """The calls of one producer. The ids of its tasks begin with its name. If `is_the_one` is set, the load includes
    the streams that only one producer may send.
    """

    def __init__(self, producer: str, seed: int, *, is_the_one: bool) -> None:
        self._producer = producer
        self._random = Random(f"{producer} {seed}")
        offsets = {stream: self._random.random() for stream in STREAMS}
        self._offsets = offsets | dict.fromkeys(OF_ONE, 0.0) if is_the_one else offsets
        self._sent: list[str] = []
        self._numbers = 0

    def between(self, since: float, until: float) -> Iterator[Intent]:
        """Yield the calls that are due between `since` and `until`, in seconds after the start. `since` must be equal
        to the `until` of the previous call of this method.
        """
        for stream, offsets in self._offsets.items():
            rate = stream.per_second
            for number in range(int(offsets + rate * since), int(offsets + rate * until)):
                intent = self._cancel() if stream.verb is Verb.CANCEL else self._intent(stream, number)
                if intent.ids:
                    yield intent

    def _intent(self, stream: Stream, number: int) -> Intent:
        ids = tuple(self._fresh_id() for _ in range(stream.tasks))
        if (
            stream.verb is not Verb.CHAIN
        ):  # chains are not cancelled, because no check could distinguish their dropped later tasks from lost ones
            self._sent = [*self._sent, *ids[:1]][-_REMEMBERED:]
        delay = round(self._random.uniform(0.05, stream.longest_delay), 3) if stream.longest_delay else 0.0
        place = number if stream.queue == ORDER else NO_NUMBER
        return Intent(stream.verb, ids, stream.task, stream.queue, stream.args(self._random, number), delay, place)

    def _cancel(self) -> Intent:
        return Intent(Verb.CANCEL, tuple(self._random.sample(self._sent, 1)) if self._sent else ())

    def _fresh_id(self) -> str:
        self._numbers += 1
        return f"{self._producer}-{self._numbers:06}"
