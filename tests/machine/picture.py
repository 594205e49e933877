"""A copy of the complete contents of a namespace, read with one pipeline of plain commands."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from rota.protocol.keys import Keys
from support.protocol import Fleet


@dataclass(frozen=True)
class Picture:
    """All data of a namespace. Entries and items are stored as texts, and times in microseconds. `turns` has, for each
    tier with patterns, the marked queues and those that have a place in the rotation.
    """

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

    def is_tombstone(self, text: str) -> bool:
        """Whether a text is the entry of an earlier incarnation of its id."""
        task_id, _, rest = text.partition(" ")
        incarnation = "".join(filter(str.isdigit, rest.rpartition(" ")[2]))
        return task_id in self.former and int(incarnation or 0) < self.former[task_id][0]

    def without_bells(self) -> "Picture":
        """Return a copy without doorbells and marks. Even a call that changes nothing else may ring a doorbell and mark
        a queue.
        """
        return replace(self, bells={}, poller_bell=0, turns={}, idle={})


def take_picture(
    fleet: Fleet, queues: Iterable[str], owners: Iterable[str], unique_keys: Iterable[str], domains: Iterable[str] = ()
) -> Picture:
    """Read all data of the namespace. Keys of individual queues, owners and unique keys are read only for the given
    names. `domains` has the names of the tiers with patterns, whose rotation is read too.
    """
    queues, owners, unique_keys, domains = list(queues), list(owners), list(unique_keys), list(domains)
    answers = iter(fleet.look(_questions(fleet.keys, queues, owners, unique_keys, domains)))
    lanes, bells = _lanes_and_bells(queues, answers)
    inflight = {owner: next(answers) for owner in owners}
    holders = {unique_key: holder for unique_key in unique_keys if (holder := next(answers))}
    of_domains = [(domain, _pairs(next(answers)), _scores(next(answers))) for domain in domains]
    turns = {domain: _integers(turns) for domain, _, turns in of_domains}
    rest = _of_the_namespace(fleet, answers, _times(of_domains))
    return Picture(lanes=lanes, bells=bells, inflight=inflight, holders=holders, turns=turns, **rest)


def _of_the_namespace(fleet: Fleet, answers: Iterator[Any], times: dict[str, str]) -> dict[str, Any]:
    """Return the values of the keys that exist once per namespace. The result is keyed by the field names of
    `Picture`.
    """
    tasks, tickets, epitaphs, keys, counts, rotation, rates, former, schedules, alive = map(_pairs, islice(answers, 10))
    delayed, dead, owners, schedules_due, idle = map(_scores, islice(answers, 5))
    marked, known = map(set, islice(answers, 2))
    ends, untold, numbers, events, poller_bell = answers
    return {
        "tasks": tasks,
        "tickets": tickets,
        "epitaphs": epitaphs,
        "delayed": _microseconds(delayed),
        "dead": _microseconds(dead),
        "owners": _integers(owners),
        "keys": keys,
        "counts": {name: int(number) for name, number in counts.items() if int(number)},
        "marked": marked,
        "rotation": {name: (int(state[:20]), int(state[21:])) for name, state in (rotation | times).items()},
        "rates": _integers(rates),
        "former": {task_id: _two_numbers(text) for task_id, text in former.items()},
        "ends": ends or "",
        "sealed": _sealed(fleet, numbers),
        "untold": untold or "",
        "schedules": schedules,
        "schedules_due": schedules_due,
        "alive": alive,
        "known": known,
        "idle": _integers(idle),
        "events": events,
        "poller_bell": poller_bell,
    }


def _questions(
    keys: Keys, queues: list[str], owners: list[str], unique_keys: list[str], domains: list[str]
) -> Iterator[tuple[str | int, ...]]:
    for queue in queues:
        yield "LRANGE", keys.ready_lane(queue), 0, -1
        yield "LRANGE", keys.delayed_lane(queue), 0, -1
        yield "LLEN", keys.doorbell(queue)
    yield from (("LRANGE", keys.inflight(owner), 0, -1) for owner in owners)
    yield from (("GET", keys.unique(unique_key)) for unique_key in unique_keys)
    for domain in domains:
        yield "HGETALL", keys.times(domain)
        yield "ZRANGE", keys.turns(domain), 0, -1, "WITHSCORES"
    hashes = (
        keys.tasks, keys.tickets, keys.epitaphs, keys.unique_keys, keys.counts,
        keys.rotation, keys.rates, keys.former, keys.schedules, keys.schedules_alive,
    )  # fmt: skip
    yield from (("HGETALL", key) for key in hashes)
    scored = keys.delayed, keys.dead, keys.owners, keys.schedules_due, keys.idle
    yield from (("ZRANGE", key, 0, -1, "WITHSCORES") for key in scored)
    yield from (("SMEMBERS", key) for key in (keys.ready, keys.queues))
    yield from (("GET", key) for key in (keys.ends, keys.ends_untold))
    yield "LRANGE", keys.ends_sealed, 0, -1
    yield "XLEN", keys.events
    yield "LLEN", keys.poller_doorbell


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


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _integers(numbers: Mapping[str, str | float]) -> dict[str, int]:
    return {name: int(number) for name, number in numbers.items()}


def _scores(flat: list[str]) -> dict[str, float]:
    return dict(zip(flat[::2], map(float, flat[1::2]), strict=True))


def _sealed(fleet: Fleet, numbers: list[str]) -> dict[int, str]:
    texts = fleet.look([("MGET", *map(fleet.keys.sealed_ends, numbers))])[0] if numbers else []
    return dict(zip(map(int, numbers), texts, strict=True))


def _times(of_domains: Iterable[tuple[str, dict[str, str], dict[str, float]]]) -> dict[str, str]:
    """Return the virtual times of the queues in tiers with patterns. Redis stores these times in a hash for each tier.
    The result has the form of the hash `rotation`, which has the times of all other tiers.
    """
    return {
        domain if name == "*" else f"{domain} {name}": state
        for domain, states, _ in of_domains
        for name, state in states.items()
    }


def _microseconds(scores: dict[str, float]) -> dict[str, int]:
    return {member: round(score * 1_000_000) for member, score in scores.items()}
