"""All that stands in a namespace, read in one go with plain commands."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from protocol import Fleet


@dataclass(frozen=True)
class Picture:
    """Entries and items as texts, times in microseconds. `turns`: of each domain with patterns its marks and places."""

    lanes: dict[tuple[str, str], list[str]]
    bells: dict[str, int]
    inflight: dict[str, list[str]]
    holders: dict[str, str]
    tasks: dict[str, str]
    tickets: dict[str, str]
    epitaphs: dict[str, str]
    delayed: dict[str, int]
    dead: dict[str, int]
    owners: dict[str, int]
    keys: dict[str, str]
    counts: dict[str, int]
    marked: set[str]
    rotation: dict[str, tuple[int, int]]
    rates: dict[str, int]
    former: dict[str, tuple[int, int]]
    ends: str
    sealed: dict[int, str]
    untold: str
    schedules: dict[str, str]
    schedules_due: dict[str, float]
    alive: dict[str, str]
    known: set[str]
    idle: dict[str, int]
    turns: dict[str, dict[str, int]]
    events: int
    poller_bell: int

    def is_shell(self, text: str) -> bool:
        """Whether a text is the entry of a former life of its id."""
        task_id, _, rest = text.partition(" ")
        life = "".join(filter(str.isdigit, rest.rpartition(" ")[2]))
        return task_id in self.former and int(life or 0) < self.former[task_id][0]

    def without_bells(self) -> "Picture":
        """To be compared with: a call without effect may still ring, and have claims look at a queue."""
        return replace(self, bells={}, poller_bell=0, turns={}, idle={})


def take_picture(
    fleet: Fleet, queues: Iterable[str], owners: Iterable[str], unique_keys: Iterable[str], domains: Iterable[str] = ()
) -> Picture:
    """Looks at these queues, the in-flight lists of these owners, these unique keys, these domains with patterns, and
    at everything else."""
    queues, owners, unique_keys, domains = list(queues), list(owners), list(unique_keys), list(domains)
    answers = iter(_ask(fleet, queues, owners, unique_keys))
    lanes, bells = _lanes_and_bells(queues, answers)
    inflight = {owner: next(answers) for owner in owners}
    holders = {unique_key: next(answers) for unique_key in unique_keys}
    (
        tasks, tickets, epitaphs, delayed, dead, expires, held_keys,
        counts, marked, rotation, rates, former, ends, untold, schedules, look_at, alive,
        known, idle, events, poller_bell,
    ) = answers  # fmt: skip
    return Picture(
        lanes,
        bells,
        inflight,
        {unique_key: holder for unique_key, holder in holders.items() if holder},
        tasks,
        tickets,
        epitaphs,
        _microseconds(delayed),
        _microseconds(dead),
        {owner: int(score) for owner, score in expires},
        held_keys,
        {name: int(number) for name, number in counts.items() if int(number)},
        marked,
        {name: (int(state[:20]), int(state[21:])) for name, state in (rotation | _times(fleet, domains)).items()},
        {queue: int(paid_off) for queue, paid_off in rates.items()},
        {task_id: _two_numbers(text) for task_id, text in former.items()},
        ends or "",
        _sealed(fleet),
        untold or "",
        schedules,
        dict(look_at),
        alive,
        known,
        {queue: int(since) for queue, since in idle},
        {domain: _turns(fleet, domain) for domain in domains},
        events,
        poller_bell,
    )


def _ask(fleet: Fleet, queues: list[str], owners: list[str], unique_keys: list[str]) -> list[Any]:
    keys = fleet.keys
    pipe: Any = fleet.redis.pipeline(transaction=False)  # redis-py types its calls as if each answered at once
    for queue in queues:
        pipe.lrange(keys.ready_lane(queue), 0, -1).lrange(keys.delayed_lane(queue), 0, -1).llen(keys.doorbell(queue))
    for owner in owners:
        pipe.lrange(keys.inflight(owner), 0, -1)
    for unique_key in unique_keys:
        pipe.get(keys.unique(unique_key))
    pipe.hgetall(keys.tasks).hgetall(keys.tickets).hgetall(keys.epitaphs)
    pipe.zrange(keys.delayed, 0, -1, withscores=True).zrange(keys.dead, 0, -1, withscores=True)
    pipe.zrange(keys.owners, 0, -1, withscores=True)
    pipe.hgetall(keys.unique_keys).hgetall(keys.counts).smembers(keys.ready)
    pipe.hgetall(keys.rotation).hgetall(keys.rates).hgetall(keys.former)
    pipe.get(keys.ends).get(keys.ends_untold)
    pipe.hgetall(keys.schedules).zrange(keys.schedules_due, 0, -1, withscores=True).hgetall(keys.schedules_alive)
    pipe.smembers(keys.queues).zrange(keys.idle, 0, -1, withscores=True)
    pipe.xlen(keys.events).llen(keys.poller_doorbell)
    answers: list[Any] = pipe.execute()
    return answers


def _lanes_and_bells(
    queues: list[str], answers: Iterator[Any]
) -> tuple[dict[tuple[str, str], list[str]], dict[str, int]]:
    lanes: dict[tuple[str, str], list[str]] = {}
    bells: dict[str, int] = {}
    for queue in queues:
        lanes[queue, "ready"], lanes[queue, "delayed"] = next(answers), next(answers)
        bells[queue] = next(answers)
    return lanes, bells


def _two_numbers(text: str) -> tuple[int, int]:
    first, second, *_ = text.split(" ")
    return int(first), int(second)


def _sealed(fleet: Fleet) -> dict[int, str]:
    numbers: Any = fleet.redis.lrange(fleet.keys.ends_sealed, 0, -1)
    texts: Any = fleet.redis.mget([fleet.keys.sealed_ends(number) for number in numbers]) if numbers else []
    return dict(zip(map(int, numbers), texts, strict=True))


def _times(fleet: Fleet, domains: Iterable[str]) -> dict[str, str]:
    """As they would stand in `rotation`."""
    found: dict[str, Any] = {domain: fleet.redis.hgetall(fleet.keys.times(domain)) for domain in domains}
    return {
        domain if name == "*" else f"{domain} {name}": state
        for domain, states in found.items()
        for name, state in states.items()
    }


def _turns(fleet: Fleet, domain: str) -> dict[str, int]:
    found: Any = fleet.redis.zrange(fleet.keys.turns(domain), 0, -1, withscores=True)
    return {member: int(score) for member, score in found}


def _microseconds(pairs: list[tuple[Any, float]]) -> dict[str, int]:
    return {member: round(score * 1_000_000) for member, score in pairs}
