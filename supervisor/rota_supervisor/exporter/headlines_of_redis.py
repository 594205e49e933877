"""What is wrong with Redis and with what it holds, in one line of words each: rules over `/status.json`."""

from collections.abc import Iterator
from typing import Final

from rota.durations import in_words
from rota_supervisor.exporter.headlines_of_queues import BAD, WARN, Headline, Row, count
from rota_supervisor.notice import EVICTS_KEYS, is_slow, slow_words

OLD_SECONDS: Final = 3.0  # what Redis told is as old as this only while it is slow
VERY_SLOW_SECONDS: Final = 0.1
SKEW_SECONDS: Final = 1.0


def away(status: Row) -> Iterator[Headline]:
    """Redis does not answer the master, or answers that it does nothing for now, as with a full disk."""
    if not _reaches(status):
        changes = (event for event in reversed(status.get("events") or ()) if event["event"] in _OF_REDIS)
        lost = next((event for event in changes if event["event"] == "redis.lost"), None)
        refused = lost is not None and lost["fields"].get("refused")
        since = f" for {in_words(status['at'] - lost['at'])}" if lost is not None else ""
        fault = f"refuses{since}: {lost['fields']['error']}" if lost and refused else f"does not answer{since}"
        yield Headline(BAD, f"Redis {fault}: no task starts, those that run go on", "redis")


_OF_REDIS: Final = ("redis.lost", "redis.back")


def slow(status: Row) -> Iterator[Headline]:
    round_trip, age = status.get("redis_round_trip_seconds"), status.get("queue_states_age_seconds")
    if _reaches(status) and round_trip is not None and is_slow(round_trip):
        old = f"; queues are shown as they were {in_words(age)} ago" if age is not None and age > OLD_SECONDS else ""
        yield Headline(BAD if round_trip >= VERY_SLOW_SECONDS else WARN, f"{slow_words(round_trip)}{old}", "redis")


def unknown(status: Row) -> Iterator[Headline]:
    """Nobody told what waits in the queues, so nobody knows whether any is late."""
    if _reaches(status) and not status["redis"] and status.get("redis_asked", True):
        told = f"Redis has not told how {count(len(status['queues']), 'queue')} are"
        yield Headline(WARN, f"unknown: {told}, so what waits there is not known", "redis")


def evicts_keys(status: Row) -> Iterator[Headline]:
    if status.get("evicts_keys"):
        yield Headline(BAD, f"{EVICTS_KEYS}, and tasks with them: its maxmemory-policy is not noeviction", "redis")


def books(status: Row) -> Iterator[Headline]:
    missing = status["missing_tasks"] or 0
    if missing > 0:
        yield Headline(BAD, f"{count(missing, 'accepted task')} missing from the books: see rota audit", "fleet")
    elif missing < 0:
        yield Headline(BAD, f"{count(-missing, 'task')} more ended than were accepted: see rota audit", "fleet")


def unplaced(status: Row) -> Iterator[Headline]:
    if tasks := status.get("unplaced_tasks"):
        text = f"{count(tasks, 'live task')} in no lane, so nobody will run {'it' if tasks == 1 else 'them'}"
        yield Headline(BAD, f"{text}: see rota audit", "fleet")


def orphans(status: Row) -> Iterator[Headline]:
    if lists := status.get("orphans"):
        yield Headline(WARN, f"{count(lists, 'in-flight list')} of owners that nobody registered", "fleet")


def stray_lists(status: Row) -> Iterator[Headline]:
    """Lists that were meant as queues of the fleet, so that no worker takes what was pushed there."""
    for stray in status.get("stray_lists") or ():
        yield Headline(
            WARN, f'no worker takes from the list "{stray["key"]}": {stray["fault"]}; see rota audit', "redis"
        )


def clock_skew(status: Row) -> Iterator[Headline]:
    offset = status.get("clock_offset_seconds")
    if offset is not None and abs(offset) > SKEW_SECONDS:
        which = "behind" if offset > 0 else "ahead of"
        yield Headline(WARN, f"the clock of this machine is {in_words(abs(offset))} {which} that of Redis", "redis")


def _reaches(status: Row) -> bool:
    return all(row["ok"] for row in status["ready"]["checks"] if row["name"] == "redis")
