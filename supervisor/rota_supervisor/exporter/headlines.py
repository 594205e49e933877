"""The headlines of the status page: one line of text for each problem of a fleet, the worst first. They are computed
only from the contents of `/status.json`. Each rule below reports one kind of problem. Causes come before their
consequences, so the first problem is usually the one to solve first.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rota.durations import in_words
from rota.server.server_errors import first_sentence
from rota.telemetry.log_events import DEATHS, REDIS_BACK, REDIS_LOST
from rota_supervisor.exporter import queue_headlines as queues
from rota_supervisor.exporter.queue_headlines import BAD, RECENT_SECONDS, WARN, Headline, Row, count, living, workers_of
from rota_supervisor.layout import Role
from rota_supervisor.master_snapshot import EVICTS_KEYS, Json, is_slow, sentence, slow_text

GOOD: Final = "good"
MOST: Final = 20
JUST_NOW_SECONDS: Final = 60.0
LOOP_DEATHS: Final = 3  # this many deaths in RECENT_SECONDS are reported together, as a serious problem
HUNG_SECONDS: Final = 900.0  # a task with an unknown usual run time counts as hung after this time
HUNG_FACTOR: Final = 10  # a task counts as hung after this multiple of its usual run time
LEAST_HUNG_SECONDS: Final = 10.0
LONG_HUNG_FACTOR: Final = 2  # the same for tasks that take minutes, with LONG_HUNG_SECONDS added
LONG_HUNG_SECONDS: Final = 600.0
LONG_LOOP_SECONDS: Final = 600.0
LONG_LOOP_DEATHS: Final = 6
SHORT_SECONDS: Final = 30.0  # a worker is normally replaced in less time than this
Rule = Callable[[Row], Iterator[Headline]]


def headlines(status: Row) -> list[Json]:
    """Return at most MOST headlines, the worst first, or a single headline if all is well."""
    found = [headline for condition in CONDITIONS for headline in condition.rule(status)]
    found.sort(key=lambda headline: (BAD, WARN).index(headline.level))
    return [headline._asdict() for headline in found[:MOST] or [_all_is_well(status)]]


def _all_is_well(status: Row) -> Headline:
    size = f"{count(len(workers_of(status)), 'worker')}, {count(len(status['queues']), 'queue')}"
    # The age is None if `[metrics] cluster` is `never`. It is also None if Redis does not reply, which another headline
    # reports.
    if status["queue_states_age_seconds"] is None:
        return Headline(
            GOOD, f"all is well here: {size}; this node does not query Redis, so waiting tasks are not known", "fleet"
        )
    return Headline(GOOD, f"all is well: {size}, no queue is late", "fleet")


# The fleet


def _master_is_silent(status: Row) -> Iterator[Headline]:
    if seen := _fails("master_beats", status):
        yield Headline(BAD, f"the master sends no heartbeats: {seen}", "fleet")


def _starts_delayed(status: Row) -> Iterator[Headline]:
    for row in status["held"]:
        where = f"pools/{row['pool']}" if row["role"] == Role.WORKER else "fleet"
        yield Headline(BAD, sentence(row), where)


def _lost_nodes(status: Row) -> Iterator[Headline]:
    for node in status.get("nodes") or ():
        if node["state"] == "lost":
            silent = in_words(node["seen_seconds_ago"])
            text = f"node {node['node']} has sent no heartbeat for {silent}: the other nodes run its tasks"
            yield Headline(BAD, text, f"nodes/{node['node']}")


def _not_serving(status: Row) -> Iterator[Headline]:
    """Report processes that should serve but do not. While the master itself starts or stops, only its start or stop is
    reported.

    Quiet nodes have a separate headline.
    """
    if status.get("quiet_seconds"):
        return
    if seen := _fails("master_serves", status):
        yield Headline(WARN, f"this node accepts no new tasks: {seen}", "fleet")
        return
    for role, follows in ((Role.POLLER, "scheduled tasks are late"), (Role.WORKER, "no task starts")):
        if seen := _fails(f"{role}_serves", status):
            yield Headline(BAD, f"{seen}{_longest_silence(role, status)}: {follows}", _first_of(role, status))


def _short_pools(status: Row) -> Iterator[Headline]:
    delayed = {row["pool"] for row in status["held"]}
    for row in status["pools"]:
        if row.get("short_seconds", 0.0) >= SHORT_SECONDS and row["name"] not in delayed:
            at_work = sum(row["workers"].get(state, 0) for state in ("running", "quiet"))
            short = f"only {at_work} of {count(row['desired'], 'worker')} for {in_words(row['short_seconds'])}"
            yield Headline(WARN, f"pool {row['name']} has had {short}", f"pools/{row['name']}")


def _longest_silence(role: Role, status: Row) -> str:
    ages = [row["beat_age_seconds"] for row in living(role, status)]
    return f", no heartbeat for {in_words(max(ages))}" if ages else ""


def _first_of(role: Role, status: Row) -> str:
    slots = [row["slot"] for row in living(role, status)]
    return f"workers/{slots[0]}" if slots else "fleet"


def _refused_reload(status: Row) -> Iterator[Headline]:
    reload = status.get("last_reload")
    if reload and reload["result"] == "failure":
        faults = "; ".join(map(str, reload["faults"]))
        yield Headline(WARN, f"the last reload was refused {_age(reload, status)} ago: {faults}", "fleet")


def _quiet(status: Row) -> Iterator[Headline]:
    """Report that a person made this node quiet, because this can be why tasks are late."""
    if seconds := status.get("quiet_seconds"):
        level = BAD if any(queues.lateness(queue)[0] for queue in status["queues"]) else WARN
        yield Headline(level, f"this node has been quiet for {in_words(seconds)}: it starts no tasks", "fleet")


def _dropped_log_lines(status: Row) -> Iterator[Headline]:
    if dropped := status.get("log_lines_dropped"):
        failed = status.get("log_lines_failed")
        why = "the disk is full, or the reader of the log has exited" if failed else "the reader of the log is too slow"
        yield Headline(WARN, f"{count(dropped, 'log line')} lost: {why}", "log")


def _dropped_series(status: Row) -> Iterator[Headline]:
    if dropped := status.get("series_dropped"):
        text = (
            f"{count(dropped, 'label set')} over the limit of series, now counted as _other: see [metrics] max_series"
        )
        yield Headline(WARN, text, "fleet")


def _adopt_errors(status: Row) -> Iterator[Headline]:
    for source, errors in (status.get("adopt_errors") or {}).items():
        text = f"adoption from the legacy list {source} failed {count(errors, 'time')} in 15 m"
        yield Headline(BAD, text, "fleet")


def _missed_occurrences(status: Row) -> Iterator[Headline]:
    for schedule, missed in (status.get("missed_occurrences") or {}).items():
        yield Headline(WARN, f"schedule {schedule}: {count(missed, 'occurrence')} missed in the last 15 m", "fleet")


# Processes


def _deaths(status: Row) -> Iterator[Headline]:
    """Report unexpected deaths of processes. If many processes died, report their number and the task that most of them
    were running. Otherwise, report the last death if it happened within JUST_NOW_SECONDS.
    """
    deaths = [event for event in _events(status) if event["level"] == "warning" and event["event"] in DEATHS]
    recent = _within(RECENT_SECONDS, deaths, status)
    seconds = RECENT_SECONDS
    if len(recent) < LOOP_DEATHS and len(long := _within(LONG_LOOP_SECONDS, deaths, status)) >= LONG_LOOP_DEATHS:
        recent = long
        seconds = LONG_LOOP_SECONDS
    if len(recent) >= LOOP_DEATHS:
        ran = Counter(event["fields"]["task"] for event in recent if event["fields"].get("task"))
        cause = "".join(f", {times} of them in task {task}" for task, times in ran.most_common(1))
        summary = f"{len(recent)} processes died in the last {in_words(seconds)}{cause}; the last: "
        yield Headline(BAD, summary + recent[0]["text"], _slot_of(recent[0]))
    elif recent and status["at"] - recent[0]["at"] <= JUST_NOW_SECONDS:
        yield Headline(WARN, f"{_age(recent[0], status)} ago: {recent[0]['text']}", _slot_of(recent[0]))


def _within(seconds: float, events: list[Row], status: Row) -> list[Row]:
    return [event for event in events if status["at"] - event["at"] <= seconds]


def _slot_of(event: Row) -> str:
    return f"workers/{event['fields']['slot']}"


def _hung_tasks(status: Row) -> Iterator[Headline]:
    running = [(process, task) for process in status["processes"] for task in process["tasks"]]
    for process, task in sorted(running, key=lambda each: -each[1]["task_age_seconds"]):
        if why := _too_long(task):
            text = f"worker {process['slot']} has run {task['task']['name']} for {in_words(task['task_age_seconds'])}"
            yield Headline(BAD, f"{text}, {why}", f"workers/{process['slot']}")


def _too_long(task: Row) -> str:
    """Return the reason why a task counts as running too long, or "" if it does not."""
    age = task["task_age_seconds"]
    limit = task.get("limit_seconds")
    usual = task.get("usual_seconds")
    has_limit = "it has no limit" if limit is None else f"its limit is {in_words(limit)}"
    if limit is not None and age > limit:
        return has_limit
    if usual is None:
        return f"its usual run time is not known, and {has_limit}" if age > HUNG_SECONDS else ""
    enough = min(max(HUNG_FACTOR * usual, LEAST_HUNG_SECONDS), LONG_HUNG_FACTOR * usual + LONG_HUNG_SECONDS)
    return f"usually at most {in_words(usual)}; {has_limit}" if age > enough else ""


# Redis

OLD_SECONDS: Final = 3.0  # data from Redis gets this old only while Redis is slow
VERY_SLOW_SECONDS: Final = 0.1
SKEW_SECONDS: Final = 1.0


def _redis_away(status: Row) -> Iterator[Headline]:
    """Report that Redis does not reply to the master, or refuses all calls, for example because its disk is full."""
    if not _reaches(status):
        changes = (
            event for event in reversed(status.get("events") or ()) if event["event"] in (REDIS_LOST, REDIS_BACK)
        )
        lost = next((event for event in changes if event["event"] == REDIS_LOST), None)
        refused = lost is not None and lost["fields"].get("refused")
        lasts = f" for {in_words(status['at'] - lost['at'])}" if lost is not None else ""
        fault = f"has not responded{lasts}" if lasts else "does not respond"
        if lost and refused:
            fault = f"has refused{lasts}: {first_sentence(lost['fields']['error'])}"
        yield Headline(BAD, f"Redis {fault}: no task starts, but running tasks continue", "redis")


def _redis_slow(status: Row) -> Iterator[Headline]:
    round_trip = status.get("redis_round_trip_seconds")
    age = status.get("queue_states_age_seconds")
    if _reaches(status) and round_trip is not None and is_slow(round_trip):
        old = f"; queues are shown as they were {in_words(age)} ago" if age is not None and age > OLD_SECONDS else ""
        yield Headline(BAD if round_trip >= VERY_SLOW_SECONDS else WARN, f"{slow_text(round_trip)}{old}", "redis")


def _redis_unknown(status: Row) -> Iterator[Headline]:
    """Report that the state of the queues is unknown, so that late tasks would not be noticed."""
    if _reaches(status) and status["queue_states_age_seconds"] is None and status.get("redis_asked", True):
        queues_text = count(len(status["queues"]), "queue")
        yield Headline(WARN, f"the state of {queues_text} is not known: Redis has not returned it", "redis")


def _evicts_keys(status: Row) -> Iterator[Headline]:
    if status.get("evicts_keys"):
        yield Headline(BAD, f"{EVICTS_KEYS}, so tasks may be lost: set its maxmemory-policy to noeviction", "redis")


def _redis_counters(status: Row) -> Iterator[Headline]:
    missing = status["missing_tasks"] or 0
    if missing > 0:
        yield Headline(BAD, f"{count(missing, 'accepted task')} not accounted for: see rota audit", "fleet")
    elif missing < 0:
        yield Headline(BAD, f"{count(-missing, 'task')} more have ended than were accepted: see rota audit", "fleet")


def _unplaced(status: Row) -> Iterator[Headline]:
    if tasks := status.get("unplaced_tasks"):
        text = f"{count(tasks, 'live task')} in no lane, so no worker will run {'it' if tasks == 1 else 'them'}"
        yield Headline(BAD, f"{text}: see rota audit", "fleet")


def _orphans(status: Row) -> Iterator[Headline]:
    if lists := status.get("orphans"):
        yield Headline(WARN, f"{count(lists, 'in-flight list')} without a registered owner", "fleet")


def _stray_lists(status: Row) -> Iterator[Headline]:
    """Report lists that look like queues of the fleet, but from which no worker takes tasks."""
    for stray in status.get("stray_lists") or ():
        yield Headline(
            WARN, f'no worker takes from the list "{stray["key"]}": {stray["fault"]}; see rota audit', "redis"
        )


def _clock_skew(status: Row) -> Iterator[Headline]:
    offset = status.get("clock_offset_seconds")
    if offset is not None and abs(offset) > SKEW_SECONDS:
        which = "behind" if offset > 0 else "ahead of"
        yield Headline(WARN, f"the clock of this machine is {in_words(abs(offset))} {which} that of Redis", "redis")


def _reaches(status: Row) -> bool:
    return all(row["ok"] for row in status["ready"]["checks"] if row["name"] == "redis")


# Helpers of the rules


def _fails(check: str, status: Row) -> str:
    """Return why a check of `/readyz` failed, or "" if it passed."""
    return next((row["seen"] for row in status["ready"]["checks"] if row["name"] == check and not row["ok"]), "")


def _events(status: Row) -> list[Row]:
    """Return the events, newest first."""
    return list(reversed(status.get("events") or ()))


def _age(event: Row, status: Row) -> str:
    return in_words(status["at"] - event["at"])


# The table


class FleetCondition(NamedTuple):
    """A state of the fleet that people should know about: the rule that reports it, and the alerts that it causes."""

    rule: Rule  # yields the headlines of the condition
    alerts: tuple[str, ...] = ()  # the alerts that fire while the condition holds


# Causes come before their consequences. Each alert of `deploy/prometheus/alerts.yml` is listed once, except those in
# NO_PAGE. An alert whose window is hours long keeps firing for a while after the headline has disappeared.
CONDITIONS: Final = (
    FleetCondition(_redis_away, ("RotaRedisDown",)),
    FleetCondition(_redis_slow, ("RotaRedisSlow",)),
    FleetCondition(_redis_unknown, ("RotaQueueStatesMissing",)),
    FleetCondition(_evicts_keys, ("RotaRedisEvictsKeys",)),
    FleetCondition(_master_is_silent, ("RotaMasterSilent",)),
    FleetCondition(_redis_counters, ("RotaTasksMissing",)),
    FleetCondition(_unplaced, ("RotaTasksUnplaced",)),
    FleetCondition(_starts_delayed, ("RotaStartsHeld",)),
    FleetCondition(_deaths, ("RotaWorkerCrashLoop",)),
    FleetCondition(_quiet, ("RotaQuietForgotten",)),
    FleetCondition(_not_serving),
    FleetCondition(_lost_nodes, ("RotaNodeLost",)),
    FleetCondition(_short_pools, ("RotaWorkersMissing",)),
    FleetCondition(queues.unserved, ("RotaQueueUnserved",)),
    FleetCondition(_hung_tasks, ("RotaTaskHung",)),
    FleetCondition(queues.overdue, ("RotaPollerBehind",)),
    FleetCondition(queues.closed_queues, ("RotaQueueForgotten", "RotaConditionFailed")),
    FleetCondition(_adopt_errors, ("RotaAdoptFailed",)),
    FleetCondition(queues.failing, ("RotaTaskFailing",)),
    FleetCondition(queues.late, ("RotaLagBurn1h", "RotaLagBurn6h", "RotaLagBurn1d", "RotaLagBurn3d")),
    FleetCondition(queues.stalled, ("RotaQueueStalled", "RotaQueueStarved")),
    FleetCondition(_missed_occurrences, ("RotaScheduleMissed",)),
    FleetCondition(_orphans, ("RotaOrphans",)),
    FleetCondition(_stray_lists),
    FleetCondition(_refused_reload, ("RotaConfigReloadFailed",)),
    FleetCondition(_dropped_log_lines, ("RotaLogLinesDropped",)),
    FleetCondition(_dropped_series, ("RotaSeriesDropped",)),
    FleetCondition(_clock_skew, ("RotaClockSkew",)),
    FleetCondition(queues.dead, ("RotaDeadLetters",)),
)
NO_PAGE: Final = ("RotaAbsent",)  # when this alert fires, no node is left to show the page
