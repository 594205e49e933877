"""What is wrong with a fleet, in one line of words each, the worst first: the first thing that people read.

A pure function over what `/status.json` answers. Each rule below names one cause. They stand in the order in which
causes go before what follows from them: who reads the first line and mends that has mended the most.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rota.durations import in_words
from rota.telemetry.events import DEATHS
from rota_supervisor.exporter import headlines_of_queues as queues
from rota_supervisor.exporter import headlines_of_redis as redis
from rota_supervisor.exporter.headlines_of_queues import BAD, RECENT_SECONDS, WARN, Headline, Row, count, workers_of
from rota_supervisor.layout import Role
from rota_supervisor.notice import Json, sentence

GOOD: Final = "good"
MOST: Final = 20
JUST_NOW_SECONDS: Final = 60.0
LOOP_DEATHS: Final = 3  # so many in RECENT_SECONDS are no accident
HUNG_SECONDS: Final = 900.0  # when nobody knows how long such tasks take
HUNG_FACTOR: Final = 10  # times its usual run time
LEAST_HUNG_SECONDS: Final = 10.0
LONG_HUNG_FACTOR: Final = 2  # for tasks of minutes, and so much longer
LONG_HUNG_SECONDS: Final = 600.0
LONG_LOOP_SECONDS: Final = 600.0
LONG_LOOP_DEATHS: Final = 6
SHORT_SECONDS: Final = 30.0  # a worker that is replaced is missing for less
Rule = Callable[[Row], Iterator[Headline]]


def headlines(status: Row) -> list[Json]:
    """Return what is wrong, the worst first, at most MOST; or one line that all is well."""
    found = [headline for condition in CONDITIONS for headline in condition.rule(status)]
    found.sort(key=lambda headline: (BAD, WARN).index(headline.level))
    return [headline._asdict() for headline in found[:MOST] or [_all_is_well(status)]]


def _all_is_well(status: Row) -> Headline:
    size = f"{count(len(workers_of(status)), 'worker')}, {count(len(status['queues']), 'queue')}"
    if not status["redis"]:  # because of [metrics] cluster; otherwise another headline is shown
        return Headline(GOOD, f"all is well here: {size}; what waits is not known, as this node does not ask", "fleet")
    return Headline(GOOD, f"all is well: {size}, none is late", "fleet")


# The fleet


def _master_is_silent(status: Row) -> Iterator[Headline]:
    if seen := _fails("master_beats", status):
        yield Headline(BAD, f"the master gives no sign of life: {seen}", "fleet")


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


def _short_pools(status: Row) -> Iterator[Headline]:
    held = {row["pool"] for row in status["held"]}
    for row in status["pools"]:
        if row.get("short_seconds", 0.0) >= SHORT_SECONDS and row["name"] not in held:
            at_work = sum(row["workers"].get(state, 0) for state in ("running", "quiet"))
            short = f"{at_work} of {count(row['desired'], 'worker')} at work for {in_words(row['short_seconds'])}"
            yield Headline(WARN, f"pool {row['name']} has had {short}", f"pools/{row['name']}")


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
        failed = status.get("log_lines_failed")
        why = "its disk is full, or its reader is gone" if failed else "whoever reads the log is too slow"
        yield Headline(WARN, f"{count(dropped, 'log line')} lost: {why}", "log")


def _dropped_series(status: Row) -> Iterator[Headline]:
    if dropped := status.get("series_dropped"):
        text = f"{count(dropped, 'label set')} found no room and counted as _other: see [metrics] max_series"
        yield Headline(WARN, text, "fleet")


def _adopt_errors(status: Row) -> Iterator[Headline]:
    for source, errors in (status.get("adopt_errors") or {}).items():
        text = f"nothing could be taken from the classic queue {source}, {count(errors, 'time')} in 15 m"
        yield Headline(BAD, text, "fleet")


def _missed_occurrences(status: Row) -> Iterator[Headline]:
    for schedule, missed in (status.get("missed_occurrences") or {}).items():
        yield Headline(WARN, f"schedule {schedule}: {count(missed, 'occurrence')} missed in the last 15 m", "fleet")


# Processes


def _deaths(status: Row) -> Iterator[Headline]:
    """Deaths that nobody asked for; the task that most of them ran is named."""
    deaths = [event for event in _events(status) if event["level"] == "warning" and event["event"] in DEATHS]
    recent, seconds = _within(RECENT_SECONDS, deaths, status), RECENT_SECONDS
    if len(recent) < LOOP_DEATHS and len(long := _within(LONG_LOOP_SECONDS, deaths, status)) >= LONG_LOOP_DEATHS:
        recent, seconds = long, LONG_LOOP_SECONDS
    if len(recent) >= LOOP_DEATHS:
        ran = Counter(event["fields"]["task"] for event in recent if event["fields"].get("task"))
        cause = "".join(f", {times} of them in task {task}" for task, times in ran.most_common(1))
        said = f"{len(recent)} processes died in the last {in_words(seconds)}{cause}; the last: "
        yield Headline(BAD, said + recent[0]["text"], _slot_of(recent[0]))
    elif recent and status["at"] - recent[0]["at"] <= JUST_NOW_SECONDS:
        yield Headline(WARN, f"{_age(recent[0], status)} ago: {recent[0]['text']}", _slot_of(recent[0]))


def _within(seconds: float, events: list[Row], status: Row) -> list[Row]:
    return [event for event in events if status["at"] - event["at"] <= seconds]


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
    enough = min(max(HUNG_FACTOR * usual, LEAST_HUNG_SECONDS), LONG_HUNG_FACTOR * usual + LONG_HUNG_SECONDS)
    return f"usually at most {in_words(usual)}; {has_limit}" if age > enough else ""


# What rules ask


def _fails(check: str, status: Row) -> str:
    """Return what this check of `/readyz` saw, if it was not as it should be; else ""."""
    return next((row["seen"] for row in status["ready"]["checks"] if row["name"] == check and not row["ok"]), "")


def _events(status: Row) -> list[Row]:
    """What happened, the newest first."""
    return list(reversed(status.get("events") or ()))


def _age(event: Row, status: Row) -> str:
    return in_words(status["at"] - event["at"])


class Condition(NamedTuple):
    """One thing that may be wrong: the rule that says so, and the alerts that fire while it holds."""

    rule: Rule
    alerts: tuple[str, ...] = ()


# Causes come before their consequences. Each alert of `deploy/prometheus/alerts.yml` is listed once, except those in
# NO_PAGE. Alerts on windows of hours keep firing for a while after the trouble has ended.
CONDITIONS: Final = (
    Condition(redis.away, ("RotaRedisDown",)),
    Condition(redis.slow, ("RotaRedisSlow",)),
    Condition(redis.unknown, ("RotaQueueStatesMissing",)),
    Condition(redis.evicts_keys, ("RotaRedisEvictsKeys",)),
    Condition(_master_is_silent),
    Condition(redis.books, ("RotaTasksMissing",)),
    Condition(redis.unplaced, ("RotaTasksUnplaced",)),
    Condition(_held_back, ("RotaStartsHeld",)),
    Condition(_deaths, ("RotaWorkerCrashLoop",)),
    Condition(_not_serving),
    Condition(_lost_nodes, ("RotaNodeLost",)),
    Condition(_short_pools, ("RotaWorkersMissing",)),
    Condition(queues.unserved, ("RotaQueueUnserved",)),
    Condition(_hung_tasks, ("RotaTaskHung",)),
    Condition(queues.overdue, ("RotaPollerBehind",)),
    Condition(queues.closed_queues, ("RotaQueueForgotten", "RotaConditionFailed")),
    Condition(_adopt_errors, ("RotaAdoptFailed",)),
    Condition(queues.failing, ("RotaTaskFailing",)),
    Condition(queues.late, ("RotaLagBurn1h", "RotaLagBurn6h", "RotaLagBurn1d", "RotaLagBurn3d")),
    Condition(queues.stalled, ("RotaQueueStalled", "RotaQueueStarved")),
    Condition(_missed_occurrences, ("RotaScheduleMissed",)),
    Condition(redis.orphans, ("RotaOrphans",)),
    Condition(redis.stray_lists),
    Condition(_refused_reload, ("RotaConfigReloadFailed",)),
    Condition(_quiet, ("RotaQuietForgotten",)),
    Condition(_dropped_log_lines, ("RotaLogLinesDropped",)),
    Condition(_dropped_series, ("RotaSeriesDropped",)),
    Condition(redis.clock_skew, ("RotaClockSkew",)),
    Condition(queues.dead, ("RotaDeadLetters",)),
)
NO_PAGE: Final = ("RotaAbsent",)  # no node is there to say anything
