"""What is wrong with a fleet, in one line of words each, the worst first: the first thing that people read.

A pure function over what `/status.json` answers. Each rule below names one cause. They stand in the order in which
causes go before what follows from them: who reads the first line and mends that has mended the most.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from rota.durations import in_words
from rota.telemetry.events import DEATHS
from rota_supervisor.exporter.headlines_of_queues import (
    BAD,
    RECENT_SECONDS,
    WARN,
    Headline,
    Row,
    closed_queues,
    count,
    dead,
    failing,
    late,
    unserved,
    workers_of,
)
from rota_supervisor.layout import Role
from rota_supervisor.notice import Json, sentence

GOOD: Final = "good"
MOST: Final = 20
JUST_NOW_SECONDS: Final = 60.0
LOOP_DEATHS: Final = 3  # so many in RECENT_SECONDS are no accident
HUNG_SECONDS: Final = 900.0  # when nobody knows how long such tasks take
HUNG_FACTOR: Final = 10  # times its usual run time
LEAST_HUNG_SECONDS: Final = 10.0
SKEW_SECONDS: Final = 1.0


def headlines(status: Row) -> list[Json]:
    """Return what is wrong, the worst first, at most MOST; or one line that all is well."""
    found = [headline for rule in _RULES for headline in rule(status)]
    found.sort(key=lambda headline: (BAD, WARN).index(headline.level))
    return [headline._asdict() for headline in found[:MOST] or [_all_is_well(status)]]


def _all_is_well(status: Row) -> Headline:
    workers, queues = len(workers_of(status)), len(status["queues"])
    return Headline(GOOD, f"all is well: {count(workers, 'worker')}, {count(queues, 'queue')}, none is late", "fleet")


# The fleet


def _no_redis(status: Row) -> Iterator[Headline]:
    if _fails("redis", status):
        lost = next((event for event in _events(status) if event["event"] in ("redis.lost", "redis.back")), None)
        since = f" for {_age(lost, status)}" if lost is not None and lost["event"] == "redis.lost" else ""
        yield Headline(BAD, f"Redis does not answer{since}: no task starts, those that run go on", "redis")


def _master_is_silent(status: Row) -> Iterator[Headline]:
    if seen := _fails("master_beats", status):
        yield Headline(BAD, f"the master gives no sign of life: {seen}", "fleet")


def _books(status: Row) -> Iterator[Headline]:
    if missing := status["missing_tasks"]:
        yield Headline(BAD, f"{count(missing, 'accepted task')} missing from the books: see rota audit", "fleet")


def _held_back(status: Row) -> Iterator[Headline]:
    for row in status["held"]:
        where = f"pools/{row['pool']}" if row["role"] == Role.WORKER else "fleet"
        yield Headline(BAD, sentence(dict(row)), where)


def _lost_nodes(status: Row) -> Iterator[Headline]:
    for node in status.get("nodes") or ():
        if node["state"] == "lost":
            silent = in_words(node["seen_seconds_ago"])
            text = f"node {node['node']} has been silent for {silent}: the others run what it held"
            yield Headline(BAD, text, f"nodes/{node['node']}")


def _not_serving(status: Row) -> Iterator[Headline]:
    """Processes that should serve and do not; while the master starts or leaves it says so itself."""
    if seen := _fails("master_serves", status):
        yield Headline(WARN, f"this node takes no new tasks: {seen}", "fleet")
        return
    for role, follows in ((Role.POLLER, "what is scheduled is late"), (Role.WORKER, "no task starts")):
        if seen := _fails(f"{role}_serves", status):
            yield Headline(BAD, f"{seen}{_longest_silence(role, status)}: {follows}", _first_of(role, status))


def _longest_silence(role: Role, status: Row) -> str:
    ages = [row["beat_age_seconds"] for row in status["processes"] if row["role"] == role]
    return f", silent for {in_words(max(ages))}" if ages else ""


def _first_of(role: Role, status: Row) -> str:
    slots = [row["slot"] for row in status["processes"] if row["role"] == role]
    return f"workers/{slots[0]}" if slots else "fleet"


def _refused_reload(status: Row) -> Iterator[Headline]:
    reload = status.get("last_reload")
    if reload and reload["result"] == "failure":
        faults = "; ".join(map(str, reload["faults"]))
        yield Headline(WARN, f"the last reload was refused {_age(reload, status)} ago: {faults}", "fleet")


def _quiet(status: Row) -> Iterator[Headline]:
    if seconds := status.get("quiet_seconds"):
        yield Headline(WARN, f"this node has been quiet for {in_words(seconds)}: it starts nothing", "fleet")


def _dropped_log_lines(status: Row) -> Iterator[Headline]:
    if dropped := status.get("log_lines_dropped"):
        yield Headline(WARN, f"{count(dropped, 'log line')} lost: whoever reads the log is too slow", "log")


def _clock_skew(status: Row) -> Iterator[Headline]:
    offset = status.get("clock_offset_seconds")
    if offset is not None and abs(offset) > SKEW_SECONDS:
        which = "behind" if offset > 0 else "ahead of"
        yield Headline(WARN, f"the clock of this machine is {in_words(abs(offset))} {which} that of Redis", "redis")


# Processes


def _deaths(status: Row) -> Iterator[Headline]:
    """Deaths that nobody asked for; the task that most of them ran is named."""
    deaths = [event for event in _events(status) if event["level"] == "warning" and event["event"] in DEATHS]
    recent = [event for event in deaths if status["at"] - event["at"] <= RECENT_SECONDS]
    if len(recent) >= LOOP_DEATHS:
        ran = Counter(event["fields"]["task"] for event in recent if event["fields"].get("task"))
        cause = "".join(f", {times} of them in task {task}" for task, times in ran.most_common(1))
        said = f"{len(recent)} processes died in the last {in_words(RECENT_SECONDS)}{cause}; the last: "
        yield Headline(BAD, said + recent[0]["text"], _slot_of(recent[0]))
    elif recent and status["at"] - recent[0]["at"] <= JUST_NOW_SECONDS:
        yield Headline(WARN, f"{_age(recent[0], status)} ago: {recent[0]['text']}", _slot_of(recent[0]))


def _slot_of(event: Row) -> str:
    return f"workers/{event['fields']['slot']}"


def _hung_tasks(status: Row) -> Iterator[Headline]:
    running = [(process, task) for process in status["processes"] for task in process["tasks"]]
    for process, task in sorted(running, key=lambda each: -each[1]["task_age_seconds"]):
        if words := _too_long(task):
            text = f"worker {process['slot']} has run {task['task']['name']} for {in_words(task['task_age_seconds'])}"
            yield Headline(BAD, f"{text}, {words}", f"workers/{process['slot']}")


def _too_long(task: Row) -> str:
    """Return what makes it too long; "" when it is not."""
    age, limit, usual = task["task_age_seconds"], task.get("limit_seconds"), task.get("usual_seconds")
    has_limit = "it has no limit" if limit is None else f"its limit is {in_words(limit)}"
    if limit is not None and age > limit:
        return has_limit
    if usual is None:
        return f"nobody knows what is usual, and {has_limit}" if age > HUNG_SECONDS else ""
    return (
        f"usually at most {in_words(usual)}; {has_limit}" if age > max(HUNG_FACTOR * usual, LEAST_HUNG_SECONDS) else ""
    )


# What rules ask


def _fails(check: str, status: Row) -> str:
    """Return what this check of `/readyz` saw, if it was not as it should be; else ""."""
    return next((row["seen"] for row in status["ready"]["checks"] if row["name"] == check and not row["ok"]), "")


def _events(status: Row) -> list[Row]:
    """What happened, the newest first."""
    return list(reversed(status.get("events") or ()))


def _age(event: Row, status: Row) -> str:
    return in_words(status["at"] - event["at"])


_RULES: Final[tuple[Callable[[Row], Iterator[Headline]], ...]] = (
    _no_redis,
    _master_is_silent,
    _books,
    _held_back,
    _deaths,
    _not_serving,
    _lost_nodes,
    unserved,
    _hung_tasks,
    closed_queues,
    failing,
    late,
    _refused_reload,
    _quiet,
    _dropped_log_lines,
    _clock_skew,
    dead,
)
